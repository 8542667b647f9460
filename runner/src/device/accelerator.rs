//! Devices with memory of their own.

use super::coder::Coder;
use super::fused_group::FusedOp;
use crate::data::{SampleBuffer, plain};
use crate::transport::{DeviceFault, TransportError};
use pipewright_core::plan::{Precision, Region};
use pipewright_core::units::Bytes;
use pipewright_kernels::{Call, Rule, Update};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A value's place in the arena, and how it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its bytes.
    pub region: Region,
    /// Its elements.
    pub elements: u64,
    /// Whether an element takes two bytes, by the plan's precision; the others take four, f32 or u32.
    pub packed: bool,
    /// How it lies, of an image for which there is more than one way; else, and where that is not said, samples
    /// and then channels are outermost.
    pub image: Option<Image>,
}

/// How an image lies: `[samples, channels, plane]`, or `[samples, plane, channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its channels.
    pub channels: u64,
    /// Positions of each.
    pub plane: u64,
    /// Whether they are innermost.
    pub channels_last: bool,
}

/// A computation's tensors by their places in the arena; what they are says
/// [`Operands`](pipewright_kernels::Operands).
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Values read.
    pub reads: &'a [Place],
    /// Values written.
    pub writes: &'a [Place],
    /// All parameters of the node, f32.
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

impl From<DeviceError> for TransportError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Messages(error) => error,
            error => Self::Device(DeviceFault::new(error)),
        }
    }
}

/// What a device tells at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// How much is replayed; none where a device makes no graphs.
    pub graphs: Option<Graphs>,
    /// What was chosen of libraries' algorithms by time, in words.
    pub algorithms: Vec<String>,
    /// Why products of fp8 were made in bf16, of the first that was.
    pub no_fp8: Option<String>,
}

/// How much of a device's work is replayed: commands that come again as they were, in one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graphs {
    /// Graphs that were made of commands.
    pub captured: u64,
    /// How often one of them was replayed.
    pub replayed: u64,
    /// Sequences of commands that were handed over one by one.
    pub one_by_one: u64,
    /// Calls of libraries that are in no graph, because the device refuses them there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<String>,
    /// Why no graphs are made, or no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// A processor with memory of its own: the rank's arena, at the same offsets. What is asked for is done in
/// order; only [`Self::download`] and [`Self::kept`] wait until it is done. Until one of them is called, or
/// [`Self::flush`], it may not have begun.
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

    /// Whether images are to lie with their channels innermost where that can be, for computations of so many bits.
    fn channels_last(&self, _precision: Precision) -> bool {
        false
    }

    /// Whether it does chains of computations together.
    fn fuses(&self) -> bool {
        false
    }

    /// The computations of a chain, as if they came one after the other; but values that are not to be
    /// stored need not be where they lie afterwards, and nobody looks.
    ///
    /// # Errors
    /// When the device has failed, or has no such kernel.
    fn launch_fused(&mut self, ops: &[FusedOp]) -> Result<(), DeviceError> {
        ops.iter().try_for_each(|op| self.launch(&op.call, &op.places))
    }

    /// Updates parameters, those of a stage, which computations of `precision` read.
    ///
    /// # Errors
    /// When the device has failed.
    fn update(
        &mut self,
        rule: &Rule,
        update: &Update,
        precision: Precision,
        parameters: &[ParameterPlaces],
    ) -> Result<(), DeviceError>;

    /// Copies one region to another, which it does not overlap.
    ///
    /// # Errors
    /// When the device has failed.
    fn copy(&mut self, from: Region, into: Region) -> Result<(), DeviceError>;

    /// Sets a region to zero.
    ///
    /// # Errors
    /// When the device has failed.
    fn zero(&mut self, region: Region) -> Result<(), DeviceError>;

    /// Notes the moment at which all that was asked for before is done.
    ///
    /// # Errors
    /// When the device has failed.
    fn moment(&mut self) -> Result<(), DeviceError>;

    /// Waits until all is done, and adds how many nanoseconds ago each moment was that was noted since the
    /// last call, in their order.
    ///
    /// # Errors
    /// When the device has failed.
    fn ages(&mut self, ages: &mut Vec<u64>) -> Result<(), DeviceError>;

    /// Keeps the bytes of a region as they are when all that was asked for before is done, beside the
    /// arena, from `at` on. Nobody waits.
    ///
    /// # Errors
    /// When the device has failed.
    fn keep(&mut self, region: Region, at: u64) -> Result<(), DeviceError>;

    /// Reads the first bytes of what was kept, when all that was asked for before is done.
    ///
    /// # Errors
    /// When the device has failed, at this or at something before.
    fn kept(&mut self, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// A buffer of so many words that samples are read into, of the kind that [`Self::stage`] fills.
    ///
    /// # Errors
    /// When the host has no such memory.
    fn buffer(&mut self, words: usize) -> Result<Box<dyn SampleBuffer>, DeviceError> {
        Ok(plain(words))
    }

    /// Whether it wants to see the computations of a step once before the first one: then it allocates all
    /// memory and loads all kernels before anybody waits for it.
    fn rehearses(&self) -> bool {
        false
    }

    /// The device has seen them, and results count from now on.
    fn rehearsed(&mut self) {}

    /// Sets bytes on their way to a place beside the arena, while the device goes on with what it was
    /// asked for. `fill` writes them, all of them, before this returns, or puts a buffer that has them in the
    /// place of the one that it is given, of the same size. Places are numbered from 0. What is staged stays
    /// there until something else is.
    ///
    /// # Errors
    /// When the device has failed, or has no memory for them.
    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<(), DeviceError>;

    /// Writes a region from what was staged at a place, as many bytes, when they are there. Nobody waits.
    ///
    /// # Errors
    /// When the device has failed.
    fn take(&mut self, place: usize, into: Region) -> Result<(), DeviceError>;

    /// Has the device begin with what it was asked for: the host is about to wait for somebody else.
    ///
    /// # Errors
    /// When the device has failed.
    fn flush(&mut self) -> Result<(), DeviceError>;

    /// The same at the end of a mini-batch: the next one may be asked for in the same words.
    ///
    /// # Errors
    /// When the device has failed.
    fn end_batch(&mut self) -> Result<(), DeviceError>;

    /// Writes the sum of the squares of each region's f32 values, in double precision: finite where all
    /// of them are, the same bits in every run. Waits until it is done.
    ///
    /// # Errors
    /// When the device has failed.
    fn squares(&mut self, regions: &[Region], sums: &mut [f64]) -> Result<(), DeviceError>;

    /// Keeps a copy of regions in memory of its own, in the place of what it kept before.
    ///
    /// # Errors
    /// When the device has failed, or has not so much memory.
    fn save(&mut self, regions: &[Region]) -> Result<(), DeviceError>;

    /// Writes back what was kept of these regions, the same ones in the same order.
    ///
    /// # Errors
    /// When the device has failed.
    fn restore(&mut self, regions: &[Region]) -> Result<(), DeviceError>;

    /// All that was asked for so far is mark `number`, which [`Coder::reached`] asks for.
    ///
    /// # Errors
    /// When the device has failed.
    fn mark(&mut self, number: usize) -> Result<(), DeviceError>;

    /// Its codecs, where it has some.
    ///
    /// # Errors
    /// When the device has failed.
    fn coder(&mut self) -> Result<Option<Box<dyn Coder>>, DeviceError>;

    /// A message or a sum from another device has written a region, or will have before what is asked for
    /// next. Devices that keep nothing made of values need not know.
    fn written(&mut self, _region: Region) {}

    /// What was chosen of libraries' algorithms by time, in words.
    fn algorithms(&mut self) -> Vec<String> {
        vec![]
    }

    /// Why products of fp8 were made in bf16, of the first that was; none where none was.
    fn no_fp8(&self) -> Option<String> {
        None
    }

    /// How much is replayed; none where a device makes no graphs.
    fn graphs(&self) -> Option<Graphs> {
        None
    }
}
