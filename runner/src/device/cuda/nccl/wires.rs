//! Communicators, streams and events behind one trait: NCCL and the driver, or their stand-in in tests.

use crate::device::Rooted;
use crate::transport::Collective;
use pipewright_core::plan::{Precision, Region};

/// How the ranks of a communicator find each other: made by one of them, told to all.
pub type Id = [u8; 128];

/// A rank's place in a communicator.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// What all its ranks were told.
    pub id: &'a Id,
    /// Its number, the same on all ranks.
    pub line: usize,
    /// This rank's number in it.
    pub place: u32,
    /// Its ranks, by their numbers in it.
    pub ranks: &'a [u32],
}

/// A queue of work on the device, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream(pub usize);

impl Stream {
    /// The one of the rank's computations.
    pub const COMPUTES: Self = Self(0);
}

/// A place in a stream, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event(pub usize);

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// In the library's words.
    pub why: String,
    /// Whether that is how the loss of another rank looks.
    pub lost: bool,
}

/// Communicators on streams of one device. No call waits for another rank.
///
/// # Errors
/// [`Broken`]: the communicator is of no use any more.
pub trait Wires: Send {
    /// A communicator.
    type Comm: Copy + Send;

    /// For reports.
    fn name(&self) -> String;

    /// A new id.
    fn id(&mut self) -> Result<Id, Broken>;

    /// Begins to connect this rank to the others of a communicator.
    fn begin(&mut self, seat: Seat) -> Result<Self::Comm, Broken>;

    /// Whether what was begun last on a communicator, or sent, received and joined there, has been given to
    /// its stream.
    fn is_ready(&mut self, comm: Self::Comm) -> Result<bool, Broken>;

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

    /// Sends a region to number `to` of a communicator.
    fn send(
        &mut self,
        comm: Self::Comm,
        to: u32,
        region: Region,
        stream: Stream,
    ) -> Result<(), Broken>;

    /// Receives a region from number `from` of a communicator.
    fn receive(
        &mut self,
        comm: Self::Comm,
        from: u32,
        region: Region,
        stream: Stream,
    ) -> Result<(), Broken>;

    /// A collective call in place on values as `precision` stores them, on all regions at once.
    fn join(
        &mut self,
        comm: Self::Comm,
        call: Collective,
        values: &[Rooted],
        precision: Precision,
        stream: Stream,
    ) -> Result<(), Broken>;

    /// The same on single precision values; of each region the number with its place is the root.
    fn join_shards(
        &mut self,
        comm: Self::Comm,
        call: Collective,
        shards: &[Region],
        stream: Stream,
    ) -> Result<(), Broken> {
        let values = (0..).zip(shards).map(|(root, region)| Rooted { root, region: *region });
        self.join(comm, call, &values.collect::<Vec<_>>(), Precision::F32, stream)
    }

    /// Where a stream is now is mark `number` of the device, for who encodes there.
    fn mark(&mut self, number: usize, on: Stream) -> Result<(), Broken>;

    /// Begins to end a communicator in order, together with the other ranks; [`Self::is_ready`] says when that
    /// is done.
    fn end(&mut self, comm: Self::Comm) -> Result<(), Broken>;

    /// Frees a communicator that has ended.
    fn free(&mut self, comm: Self::Comm);

    /// What gives all communicators up that are not free, with all that is under way in them. It may take
    /// its time, on any thread.
    fn abort(&mut self) -> Box<dyn FnOnce() + Send>;
}
