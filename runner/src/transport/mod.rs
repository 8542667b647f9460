//! Messages between ranks: bytes, no tensors.
//!
//! One trait, two implementations: [`local`] runs ranks as threads of one process, so that
//! everything works in `cargo test` and on a laptop; `mpi` runs them as MPI processes. One
//! conformance suite (`runner/tests/transport_suite`) holds both to the same behaviour.
//!
//! A rank is driven by one thread, except that it may *be* any thread ([`local::LocalTransport`]
//! is `Send`), and that a second one may drive [`Nonblocking`]: calls that never block. No call of training (`start_send`, `wait_send`, `recv`, `all_reduce`, `barrier`)
//! allocates.

mod clock;
mod error;
mod launch;
pub mod local;
pub(crate) mod mail;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod nonblocking;

pub use error::{DeviceFault, TransportError};
pub use launch::{crowded, launched_by_mpi, launched_rank};
pub use nonblocking::{CollectiveOp, Nonblocking, ProcessGroup, Request};

/// Most values of one [`Transport::all_reduce`].
pub const REDUCE_MAX: usize = 128;

/// How [`Transport::all_reduce`] joins the ranks' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// The sum, added in the order of ranks: the same bits on every rank and every transport.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// What a group of ranks does with values of its own. The root is the group's first rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank gets the sum of all ranks' values: the same bits on every rank.
    AllReduce,
    /// Every rank gets the root's values.
    Broadcast,
    /// The root gets the sum; the other ranks' values mean nothing afterwards.
    Reduce,
}

/// What a group of ranks does with values of which each rank has a [part](pipewright_core::plan::part): its place in
/// the group says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartCollective {
    /// Every rank gets the sum of its part; what stands in the others' means nothing afterwards.
    ReduceScatter,
    /// Every rank gets every rank's part.
    AllGather,
}

/// One rank's end of the connections to all ranks, itself included.
///
/// # Errors
/// Every call may fail with [`TransportError::Aborted`], [`TransportError::Gone`] or
/// [`TransportError::Mpi`]. After any error the run is over for this rank: all it can do is
/// [`Transport::abort`] or drop the transport.
///
/// # Panics
/// Ranks, slots and lengths that do not exist are bugs of the caller and panic. Tags stay below
/// 2²⁸: Open MPI takes more, MPICH does not.
pub trait Transport {
    /// This rank, from 0.
    fn rank(&self) -> u32;

    /// Number of ranks.
    fn ranks(&self) -> u32;

    /// Starts sending `bytes` to rank `to`; never waits for the receiver.
    ///
    /// Messages of one sender, receiver and tag arrive in the order in which they were started;
    /// those of different tags may be received in any order. `slot` is the caller's name for this
    /// send, below the number given at construction, and in use until [`Transport::wait_send`].
    ///
    /// # Safety
    /// `bytes` must stay valid and unchanged until `wait_send(slot)` has returned, a call has
    /// returned an error, or the transport has been dropped. A panic counts as none of these
    /// until the transport is dropped: let buffers live longer than the transport.
    ///
    /// # Panics
    /// When `slot` is in use.
    unsafe fn start_send(
        &mut self,
        to: u32,
        tag: u32,
        bytes: &[u8],
        slot: usize,
    ) -> Result<(), TransportError>;

    /// Waits until the bytes of `slot` may change. Returns at once if nothing is outstanding.
    fn wait_send(&mut self, slot: usize) -> Result<(), TransportError>;

    /// Waits for the next message of `tag` from rank `from` and writes it into `into`.
    ///
    /// # Errors
    /// [`TransportError::Size`] when its length is not that of `into`.
    fn recv(&mut self, from: u32, tag: u32, into: &mut [u8]) -> Result<(), TransportError>;

    /// Makes groups of ranks known, for [`Transport::start_collective`], and room for `slots` of its
    /// calls at a time. Called once, by all ranks, with equal groups; a rank appears once in a group.
    fn connect(&mut self, groups: &[Vec<u32>], slots: usize) -> Result<(), TransportError>;

    /// Starts a collective call over group `group`, in which this rank is; never waits for others.
    /// All ranks of a group start the same calls in the same order with equally many values. `slot`
    /// is in use until [`Transport::wait_collective`]; its numbers are apart from those of sends.
    ///
    /// # Safety
    /// `values` must stay valid, and be neither read nor written, until `wait_collective(slot)` has
    /// returned, a call has returned an error, or the transport has been dropped.
    unsafe fn start_collective(
        &mut self,
        call: Collective,
        group: usize,
        values: &mut [f32],
        slot: usize,
    ) -> Result<(), TransportError>;

    /// The same of a call on parts. Sums over threads are added in the order of the group, as those of
    /// [`Collective::AllReduce`] are; over processes MPI chooses the order of each part's sum.
    ///
    /// # Safety
    /// As [`Transport::start_collective`].
    unsafe fn start_part_collective(
        &mut self,
        call: PartCollective,
        group: usize,
        values: &mut [f32],
        slot: usize,
    ) -> Result<(), TransportError>;

    /// Lets calls under way advance: where no thread of its own does, somebody must call.
    fn progress(&mut self) -> Result<(), TransportError>;

    /// Waits until the values of `slot` are the result. Returns at once if nothing is outstanding.
    fn wait_collective(&mut self, slot: usize) -> Result<(), TransportError>;

    /// Which of several crews this rank is in, from 0, and how many there are. A crew has all ranks of a
    /// plan, and knows of the others by [`Transport::share_from`] alone; the first one trains, the others
    /// are there to try things.
    fn crew(&self) -> (u32, u32);

    /// Ranks of the same number in all crews get the bytes that crew `crew`'s has. All of them call it
    /// with equally many bytes. Not for training steps.
    fn share_from(&mut self, crew: u32, bytes: &mut [u8]) -> Result<(), TransportError>;

    /// Joins `values` over all ranks, element by element; every rank gets the same result. For
    /// small control data: at most [`REDUCE_MAX`] values, equally many on every rank.
    fn all_reduce(&mut self, values: &mut [f64], op: ReduceOp) -> Result<(), TransportError>;

    /// Brings every rank's `bytes`, of any length, to rank 0: one entry per rank there, `None`
    /// elsewhere. Allocates: not for training.
    fn gather(&mut self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, TransportError>;

    /// Waits until all ranks have come here.
    fn barrier(&mut self) -> Result<(), TransportError>;

    /// By rank, the number of its host: ranks of one host share memory. All ranks call it.
    fn hosts(&mut self) -> Result<Vec<u32>, TransportError>;

    /// An endpoint for calls that nobody waits for, among the ranks of `groups`: those that this rank
    /// is in, each once, with room for `requests` at a time: with more it allocates. All ranks call
    /// it, and those of a group all name it, with ranks in the same order. Drop it before the
    /// transport.
    fn nonblocking(
        &mut self,
        process_groups: &[ProcessGroup],
        requests: usize,
    ) -> Result<Box<dyn Nonblocking>, TransportError>;

    /// Nanoseconds on a clock that all ranks share; only differences mean something. On one host
    /// exact; between hosts off by at most half the fastest round trip at start, plus drift.
    fn now_ns(&self) -> u64;

    /// Tells every rank to stop. Afterwards calls return [`TransportError::Aborted`] everywhere,
    /// or, with MPI, all processes end with `exit_code` and this never returns: print first.
    fn abort(&mut self, exit_code: i32, why: &str);

    /// The implementation's name in reports.
    fn name(&self) -> &'static str;

    /// Name of the machine this rank runs on.
    fn host(&self) -> String;
}

impl ReduceOp {
    /// Joins the contributions of all ranks, `of_rank` giving each in turn, into `values`.
    fn join_all<'a>(self, values: &mut [f64], ranks: u32, of_rank: impl Fn(u32) -> &'a [f64]) {
        values.copy_from_slice(of_rank(0));
        for rank in 1..ranks {
            for (value, &other) in values.iter_mut().zip(of_rank(rank)) {
                *value = self.join(*value, other);
            }
        }
    }

    /// Joins two values. A NaN wins over numbers: a rank that diverged must not be hidden.
    fn join(self, a: f64, b: f64) -> f64 {
        match self {
            ReduceOp::Sum => a + b,
            ReduceOp::Max if a.is_nan() || a > b => a,
            ReduceOp::Min if a.is_nan() || a < b => a,
            ReduceOp::Max | ReduceOp::Min => b,
        }
    }
}
