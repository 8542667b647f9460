//! Messages and sums between the memories of ranks' devices, without their hosts.

use crate::transport::{Collective, TransportError};
use pipewright_core::plan::{Precision, Region};

/// A region of a collective call that has a root: the group's rank of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rooted {
    /// The rank's place in the group.
    pub root: u32,
    /// The values.
    pub region: Region,
}

/// A moment in a device's work: [`Fabric::mark`] counts them from 1, and all begins at 0.
pub type Mark = u64;

/// Moves regions of ranks' arenas from device to device. Nothing waits for another rank on the host:
/// what is started here and what the device is asked for elsewhere wait for each other on the device,
/// as each call says. Messages of one sender, receiver and edge arrive in the order in which they were
/// started; those of different edges, and sums, do not wait for each other.
///
/// # Errors
/// [`TransportError`], as for [`Transport`](crate::transport::Transport): after any error the run is over
/// for this rank, and what was under way has been given up.
pub trait Fabric: Send {
    /// For reports: `nccl 2.24.3`.
    fn name(&self) -> &str;

    /// Starts to send a region as it is when the device has done what it was asked for so far. `handle`
    /// is in use until [`Self::sent`].
    fn send(
        &mut self,
        to: u32,
        tag: u32,
        region: Region,
        handle: usize,
    ) -> Result<(), TransportError>;

    /// What the device is asked for from now on comes after the message of `handle` has left.
    fn sent(&mut self, handle: usize) -> Result<(), TransportError>;

    /// Starts to receive a region, which nothing touches any more that was asked for after `free`. What the
    /// device is asked for from now on comes after it has arrived.
    fn receive(
        &mut self,
        from: u32,
        tag: u32,
        region: Region,
        free: Mark,
    ) -> Result<(), TransportError>;

    /// The moment at which the device has done what it was asked for so far.
    fn mark(&mut self) -> Result<Mark, TransportError>;

    /// Starts a collective call on values, in place, as they are when the device has done what it was asked for so
    /// far; they lie as `precision` stores them. All ranks of a group start the same calls in the same order. `slot`
    /// is in use until [`Self::joined`].
    fn join(
        &mut self,
        call: Collective,
        group: usize,
        values: &[Rooted],
        precision: Precision,
        slot: usize,
    ) -> Result<(), TransportError>;

    /// What the device is asked for from now on comes after the call of `slot`.
    fn joined(&mut self, slot: usize) -> Result<(), TransportError>;

    /// Starts the part of a host in an encoded sum of a group, on single precision values as for [`Self::join`]: each of
    /// `shards` is added up at its owner, the host's rank of that number in the group. When this rank has
    /// done its part, that is mark `mark` of the device, which [`Coder::reached`](super::Coder::reached)
    /// asks for. All ranks of the host start the same in the same order. `slot` is in use until
    /// [`Self::joined`].
    fn reduce_intra_node(
        &mut self,
        group: usize,
        shards: &[Region],
        slot: usize,
        mark: usize,
    ) -> Result<(), TransportError>;

    /// Starts to hand each shard out from its owner, where its sum now is, after what was begun with the same
    /// `slot`. All ranks of the host start the same in the same order.
    fn broadcast_intra_node(
        &mut self,
        group: usize,
        shards: &[Region],
        slot: usize,
    ) -> Result<(), TransportError>;

    /// Waits until something is so, and looks meanwhile whether the others still live. Where asking fails,
    /// that is an error of this, too.
    fn wait_until(
        &mut self,
        is_so: &mut dyn FnMut() -> Result<bool, TransportError>,
    ) -> Result<(), TransportError>;

    /// Waits until the device has done what it was asked for so far, and looks meanwhile whether the others
    /// still live. It comes before anything else on the host that would wait for the device: that could
    /// wait for ever.
    fn settle(&mut self) -> Result<(), TransportError>;
}
