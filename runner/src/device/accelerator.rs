//! Devices with memory of their own.

use super::cpu::{Call, Rule, Update};
use crate::transport::TransportError;
use pipewright_core::plan::Region;
use pipewright_core::units::Bytes;
use thiserror::Error;

/// A computation's tensors by their places in the arena; what they are says
/// [`Operands`](super::cpu::Operands).
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Values read.
    pub reads: &'a [Region],
    /// Values written.
    pub writes: &'a [Region],
    /// All parameters of the node.
    pub params: &'a [Region],
    /// One gradient per trainable parameter; kernels add to them.
    pub gradients: &'a [Region],
    /// The mini-batch's statistics so far, when they are deferred.
    pub deferred: &'a [Region],
    /// Scratch.
    pub workspace: Option<Region>,
}

/// A parameter with what belongs to it, by place.
#[derive(Clone, Copy, Debug)]
pub struct ParameterPlaces {
    /// Its values.
    pub weight: Region,
    /// Its gradient; zero afterwards.
    pub gradient: Region,
    /// What the optimizer keeps.
    pub state: [Option<Region>; 2],
    /// Axes of its shape.
    pub axes: usize,
}

/// How one tensor is written from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// As it is.
    Copy,
    /// f32 from bf16.
    Unpack,
    /// bf16 from f32.
    Pack,
}

/// Why a device cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// Memory that is not there.
    #[error("{device} has {free} of memory left, and {asked} are needed for {what}")]
    OutOfMemory {
        /// Which device.
        device: String,
        /// For what: a stage, say.
        what: String,
        /// Bytes asked for.
        asked: Bytes,
        /// Bytes left.
        free: Bytes,
    },
    /// A kernel that it has not.
    #[error("{device} has no kernel for {what}")]
    NoKernel {
        /// Which device.
        device: String,
        /// The computation.
        what: String,
    },
    /// Anything else, in the driver's words.
    #[error("{device}: {what}: {why}")]
    Failed {
        /// Which device.
        device: String,
        /// What was done.
        what: String,
        /// What it says.
        why: String,
    },
    /// It cannot talk to those of other ranks any more.
    #[error(transparent)]
    Messages(#[from] TransportError),
}

/// A processor with memory of its own: the rank's arena, at the same offsets. What is asked for is done in
/// order; only [`Self::download`] waits until it is done.
pub trait Accelerator: Send {
    /// Writes bytes from `offset` on. They are the caller's again when it returns.
    ///
    /// # Errors
    /// When the device has failed.
    fn upload(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Reads bytes from `offset` on, when all that was asked for before is done.
    ///
    /// # Errors
    /// When the device has failed, at this or at something before.
    fn download(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// A computation of the training graph.
    ///
    /// # Errors
    /// When the device has failed, or has no such kernel.
    fn launch(&mut self, call: &Call, places: &Places) -> Result<(), DeviceError>;

    /// Updates parameters, those of a stage.
    ///
    /// # Errors
    /// When the device has failed.
    fn update(
        &mut self,
        rule: &Rule,
        update: &Update,
        parameters: &[ParameterPlaces],
    ) -> Result<(), DeviceError>;

    /// Writes one region from another, which it does not overlap.
    ///
    /// # Errors
    /// When the device has failed.
    fn convert(
        &mut self,
        from: Region,
        into: Region,
        conversion: Conversion,
    ) -> Result<(), DeviceError>;

    /// Sets a region to zero.
    ///
    /// # Errors
    /// When the device has failed.
    fn zero(&mut self, region: Region) -> Result<(), DeviceError>;
}
