//! Streams of one device that write numbers and wait for them: the driver's, or their stand-in in tests.

use crate::device::DevicePtr;
use crate::device::cuda::kernels::Launch;
use crate::device::cuda::nccl::{Broken, Event, Stream};

/// What sets numbers, whatever streams wait for.
pub type Release = Box<dyn FnOnce() + Send>;

/// Streams and events of a rank on a device that it shares. No call waits for another rank.
///
/// # Errors
/// [`Broken`]: the device is of no use any more.
pub trait Streams: Send {
    /// A new stream.
    fn stream(&mut self) -> Result<Stream, Broken>;

    /// A new event.
    fn event(&mut self) -> Result<Event, Broken>;

    /// The event is where its stream is now, from now on.
    fn record(&mut self, event: Event, on: Stream) -> Result<(), Broken>;

    /// What is put into `stream` from now on comes after the event, as it was recorded last.
    fn wait(&mut self, event: Event, stream: Stream) -> Result<(), Broken>;

    /// Whether all work of a stream is done.
    fn is_idle(&mut self, stream: Stream) -> Result<bool, Broken>;

    /// Where a stream is now is mark `number` of the device.
    fn mark(&mut self, number: usize, on: Stream) -> Result<(), Broken>;

    /// The stream writes a number. Whoever sees it there sees what the stream did before.
    fn write(&mut self, at: DevicePtr, number: u32, on: Stream) -> Result<(), Broken>;

    /// The stream goes on when a number is there, or one behind it: they count in a circle.
    fn until(&mut self, at: DevicePtr, number: u32, on: Stream) -> Result<(), Broken>;

    /// The stream launches a kernel.
    fn launch(&mut self, launch: &Launch, on: Stream) -> Result<(), Broken>;

    /// What sets `count` numbers, so many bytes apart, to one at once, from any thread.
    fn release(&mut self, at: DevicePtr, apart: u64, count: u64, number: u32) -> Release;

    /// Lets go of other ranks' arenas, which nothing reads any more.
    fn close(&mut self) -> Result<(), Broken>;
}
