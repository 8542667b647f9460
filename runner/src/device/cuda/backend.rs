//! The backend: launches are handed to it.

use super::kernels::{ConvolutionStep, DevicePtr, Launch, ProductStep, Step, Storage};
use crate::data::{SampleBuffer, plain};
use crate::device::{DeviceError, Graphs};
use pipewright_core::plan::Precision;

/// A device's memory, and a queue of work on it: what is asked for is done in order. The driver is one;
/// tests have another that needs no GPU.
///
/// Beside the queue bytes travel to numbered places:
///
/// ```text
/// stage(0) ── on their way ──> arrived(0)   copies that read them   taken(0) ──> stage(0) again
/// ```
pub trait Backend: Send {
    /// For messages.
    fn name(&self) -> &str;

    /// Zeroed memory, which lives as long as this does; `what` it is for, for messages.
    ///
    /// # Errors
    /// When there is not so much.
    fn allocate(&mut self, bytes: u64, what: &str) -> Result<DevicePtr, DeviceError>;

    /// Writes bytes, which are the caller's again when it returns.
    ///
    /// # Errors
    /// When the device has failed.
    fn upload(&mut self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Reads bytes, when all that was asked for before is done.
    ///
    /// # Errors
    /// When the device has failed, at this or at something before.
    fn download(&mut self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies within the device's memory.
    ///
    /// # Errors
    /// When the device has failed.
    fn copy(&mut self, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<(), DeviceError>;

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// When the device has failed.
    fn zero(&mut self, at: DevicePtr, bytes: u64) -> Result<(), DeviceError>;

    /// A kernel of ours.
    ///
    /// # Errors
    /// When the device has failed, or the kernel cannot be compiled.
    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError>;

    /// A product of matrices.
    ///
    /// # Errors
    /// When the device has failed.
    fn product(&mut self, product: &ProductStep, storage: Storage) -> Result<(), DeviceError>;

    /// A convolution.
    ///
    /// # Errors
    /// When the device has failed.
    fn convolution(
        &mut self,
        convolution: &ConvolutionStep,
        storage: Storage,
    ) -> Result<(), DeviceError>;

    /// Notes moment `number`, at which all that was asked for before is done. Numbers are given from 0 on.
    ///
    /// # Errors
    /// When the device has failed.
    fn moment(&mut self, number: usize) -> Result<(), DeviceError>;

    /// What was asked for so far is mark `number`, in the place of an earlier one. Marks are the device's,
    /// so that one queue of work may ask for those of another.
    ///
    /// # Errors
    /// When the device has failed.
    fn mark(&mut self, number: usize) -> Result<(), DeviceError>;

    /// Whether all is done that a mark stands for; nothing for one that nobody made.
    ///
    /// # Errors
    /// When the device has failed.
    fn reached(&mut self, number: usize) -> Result<bool, DeviceError>;

    /// Another queue of work on the same device, for another thread: addresses are the same, and what is
    /// asked of one does not wait for the other. It ends before this does. None where there is one queue.
    ///
    /// # Errors
    /// When the device has failed.
    fn beside(&mut self) -> Result<Option<Box<dyn Backend>>, DeviceError>;

    /// Waits until all is done, and adds how many nanoseconds ago each of the first `count` moments was.
    ///
    /// # Errors
    /// When the device has failed.
    fn ages(&mut self, count: usize, ages: &mut Vec<u64>) -> Result<(), DeviceError>;

    /// A buffer of so many words that samples are read into, of the kind that [`Self::stage`] fills.
    ///
    /// # Errors
    /// When the host has no such memory.
    fn buffer(&mut self, words: usize) -> Result<Box<dyn SampleBuffer>, DeviceError> {
        Ok(plain(words))
    }

    /// Whether it wants to see a step's work once before the first one; see [`Accelerator`].
    ///
    /// [`Accelerator`]: crate::device::Accelerator
    fn rehearses(&self) -> bool {
        false
    }

    /// From now on results count: what was asked for so far was a rehearsal.
    fn rehearsed(&mut self) {}

    /// Sets bytes on their way to a place; `fill` writes them before this returns. They get there when
    /// what was asked for before [`Self::taken`] was last called for the place is done. Returns where the
    /// place is, which changes only when it has to grow.
    ///
    /// # Errors
    /// When the device has failed, or has no memory for them.
    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<DevicePtr, DeviceError>;

    /// What is asked for from now on begins when the bytes of a place are there.
    ///
    /// # Errors
    /// When the device has failed.
    fn arrived(&mut self, place: usize) -> Result<(), DeviceError>;

    /// What was asked for so far is the last that reads the bytes of a place.
    ///
    /// # Errors
    /// When the device has failed.
    fn taken(&mut self, place: usize) -> Result<(), DeviceError>;

    /// Bytes of shared memory that a block may ask for: 96 KiB on the GPUs that most are like.
    fn most_shared(&self) -> u32 {
        96 << 10
    }

    /// Whether it has matrix units that multiply halves, 16 x 16 by 16 x 8 at once, and TF32.
    fn matrix_units(&self) -> bool {
        true
    }

    /// Whether images with their channels innermost are quicker, for computations of so many bits: where a
    /// library convolves them on the tensor cores.
    fn channels_last(&self, _precision: Precision) -> bool {
        false
    }

    /// Whether a convolution by our own kernels finds scratch in it: then nobody reserves any for the many
    /// that a library does.
    fn brings_scratch(&self) -> bool {
        false
    }

    /// Begins with what was asked for, where it has not begun.
    ///
    /// # Errors
    /// When the device has failed.
    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// What was chosen of libraries' algorithms by time, in words.
    fn algorithms(&mut self) -> Vec<String> {
        vec![]
    }

    /// Why products of fp8 were made in bf16, of the first that was; none where none was.
    fn no_fp8(&self) -> Option<String> {
        None
    }

    /// How much is replayed; none where no graphs are made.
    fn graphs(&self) -> Option<Graphs> {
        None
    }
}

/// A backend that does again what it was asked for once.
pub trait Capture: Backend + Sized {
    /// What it was asked for.
    type Graph: Send;

    /// What `issue` asks for is not done but becomes a graph. It asks for launches, products, copies,
    /// zeros and uploads, and for nothing that it did not ask for before: memory is allocated and kernels
    /// are loaded. Of uploads, of `uploads` bytes in all, places and sizes count.
    ///
    /// # Errors
    /// When the device makes no graph of it; then it goes on as if nothing had been asked for.
    fn capture(
        &mut self,
        uploads: usize,
        issue: &mut dyn FnMut(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<Self::Graph, DeviceError>;

    /// Asks for all of a graph, with these bytes for its uploads, in their order. They are the caller's
    /// again when this returns.
    ///
    /// # Errors
    /// When the device has failed.
    fn replay(&mut self, graph: &mut Self::Graph, uploads: &[u8]) -> Result<(), DeviceError>;
}

/// Has a backend do a step.
///
/// # Errors
/// When the device has failed.
pub fn perform<B: Backend + ?Sized>(
    backend: &mut B,
    step: &Step,
    storage: Storage,
) -> Result<(), DeviceError> {
    match step {
        Step::Kernel(launch) => backend.launch(launch),
        Step::Product(product) => backend.product(product, storage),
        Step::Convolution(convolution) => backend.convolution(convolution, storage),
    }
}
