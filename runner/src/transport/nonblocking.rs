//! Messages and collective calls that nobody waits for: what the [exchange](crate::exchange) of encoded
//! gradients is made of.

use super::{Collective, TransportError};
use pipewright_core::compress::Rounding;

/// Ranks that exchange messages or call together, by their number in the run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessGroup {
    /// In the order that all of them know.
    pub ranks: Vec<u32>,
    /// Tells groups of the same ranks apart: each has an order of calls and tags of its own.
    pub purpose: u32,
}

/// What the ranks of a group do with values of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveOp {
    /// With values in single precision; the root is the group's first rank.
    Float(Collective),
    /// Every rank gets the largest of all ranks' values, single precision and not NaN.
    Max,
    /// Every rank gets the sum of all ranks' E5M2 codes, one byte each, every addition rounded so.
    Codes(Rounding),
}

/// Something that was started. Spent when [`Nonblocking::test`] has said how it ended.
#[derive(Debug)]
pub struct Request(pub(super) usize);

/// An endpoint for calls that never block, beside those of [`Transport`](super::Transport): a thread
/// of its own may hold it where [`Nonblocking::threaded`] says so.
///
/// # Errors
/// As for `Transport`: after any error the run is over for this rank. Memory given to a call is free
/// after [`Nonblocking::abandon`] or a drop. With things under way these stop the run for all ranks; with MPI
/// they end the process.
///
/// # Panics
/// Groups, ranks and requests that do not exist are bugs of the caller and panic.
pub trait Nonblocking: Send {
    /// Starts to send `bytes` to the `to`-th rank of a group. Messages of one sender, group and
    /// tag (below 2¹⁶) arrive in the order in which they were started.
    ///
    /// # Safety
    /// The bytes must stay valid and unchanged until `test` has said that they are sent.
    unsafe fn send(
        &mut self,
        process_group: usize,
        to: usize,
        tag: u32,
        bytes: *const [u8],
    ) -> Result<Request, TransportError>;

    /// Starts to receive the next message of the `from`-th rank of a group, which may be shorter than
    /// `into`. Receives of one sender, group and tag are tested in the order in which they were
    /// started, the next one after the one before has ended.
    ///
    /// # Safety
    /// `into` must stay valid, and be neither read nor written, until `test` has said that it is
    /// there.
    unsafe fn receive(
        &mut self,
        process_group: usize,
        from: usize,
        tag: u32,
        into: *mut [u8],
    ) -> Result<Request, TransportError>;

    /// Starts a collective call on `len` elements at `values`, of the type that `op` says. All
    /// ranks of a group start the same calls in the same order.
    ///
    /// # Safety
    /// The elements must stay valid, and be neither read nor written, until `test` has said that it
    /// is done.
    unsafe fn call(
        &mut self,
        process_group: usize,
        op: CollectiveOp,
        values: *mut u8,
        len: usize,
    ) -> Result<Request, TransportError>;

    /// Lets everything under way advance, and notes for [`Nonblocking::test`] what has ended: once a round, since
    /// a look costs a call to the system with some transports.
    fn look(&mut self) -> Result<(), TransportError>;

    /// Whether it had ended at the last look, and then the bytes of the message that was received (0 for others).
    fn test(&mut self, request: &Request) -> Result<Option<usize>, TransportError>;

    /// Bytes of all messages handed over so far; collective calls do not say theirs.
    fn sent_bytes(&self) -> u64;

    /// Gives everything up after an error, here or in the caller.
    fn abandon(&mut self);

    /// Whether another thread than the transport's may make these calls.
    fn threaded(&self) -> bool;
}
