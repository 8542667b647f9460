//! The forms of parallel training that PyTorch offers, as comparable rows: step time, memory,
//! traffic, communications.
//!
//! | form | what travels in a step |
//! |---|---|
//! | alone | nothing |
//! | `DataParallel` | scatter of samples, broadcast of weights, gather of outputs, reduce of gradients |
//! | `DistributedDataParallel` | all-reduces of gradient buckets beside the backward pass |
//! | ZeRO-1, ZeRO-2 | reduce-scatters of the buckets, all-gather of the weights |
//! | tensor parallel | sums of activations and of their gradients, within each layer |
//! | model parallel | values and gradients across the cuts, one device at work at a time |
//! | pipeline | the same per micro-batch (GPipe order) |
//! | hybrid | replicas of a pipeline, all-reduce of each stage's gradients |
//!
//! PyTorch's documentation of `nn.DataParallel`, Li et al. 2020 (DDP, VLDB 13), Rajbhandari et
//! al. 2020, Shoeybi et al. 2019, Huang et al. 2019. Known limits: `DataParallel`'s interpreter lock costs nothing; gradients
//! become ready by item; memory is an estimate that knows nothing of what operations keep or reuse.

mod divided;
mod replicated;
mod staged;

pub use replicated::{bucket_ends, buckets};

use super::collective::{Channel, Collective, hierarchical, time};
use super::memory::{Sharding, States};
use super::{Cluster, Workload};
use crate::graph::{Graph, Precision, TensorParallelError};
use crate::ids::LaneId;
use crate::units::{Bytes, Nanos};
use thiserror::Error;

/// A form of parallel training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One device.
    Alone,
    /// One process drives all devices.
    DataParallel,
    /// One process a device, gradients summed beside the backward pass.
    DistributedDataParallel,
    /// The same with the optimizer state divided.
    Zero1,
    /// Gradients divided too.
    Zero2,
    /// Every layer divided, sums within.
    TensorParallel,
    /// Layers divided, no micro-batches.
    ModelParallel,
    /// Layers divided, micro-batches.
    Pipeline,
    /// Replicas of a pipeline.
    Hybrid,
}

impl Form {
    /// Parts of a mini-batch that are passes of their own, side by side or one after the other.
    pub fn parts(self, devices: u32, replicas: u32, micro_batches: u32) -> u64 {
        let (replicas, micro_batches) = (u64::from(replicas), u64::from(micro_batches));
        match self {
            Form::Alone | Form::TensorParallel | Form::ModelParallel => 1,
            Form::DataParallel | Form::DistributedDataParallel | Form::Zero1 | Form::Zero2 => {
                u64::from(devices)
            }
            Form::Pipeline => micro_batches,
            Form::Hybrid => replicas * micro_batches,
        }
    }
}

/// What a form is applied to.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The network; its samples are the mini-batch. Of the form's [`parts`](Form::parts): [`Workload::in_parts`].
    pub work: &'a Workload,
    /// The layers of which `work` was made, and the precision that they train in: what dividing them takes.
    pub layers: Option<(&'a Graph, Precision)>,
    /// The machine.
    pub cluster: &'a Cluster,
    /// Devices to use.
    pub devices: u32,
    /// First item of each stage but the first, ascending; for the forms that divide layers.
    pub cuts: &'a [u32],
    /// Micro-batches of a pipeline.
    pub micro_batches: u32,
    /// What is kept per parameter.
    pub states: States,
}

/// What a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// Forward pass.
    Forward,
    /// Backward pass.
    Backward,
    /// A collective, or a message that the device waits for.
    Communication,
    /// Optimizer.
    Update,
}

/// A piece of a step on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The device.
    pub device: u32,
    /// What it does.
    pub doing: Doing,
    /// When it begins.
    pub start: Nanos,
    /// When it ends.
    pub end: Nanos,
}

/// A row of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct FormCost {
    /// The form.
    pub form: Form,
    /// Devices at work.
    pub devices: u32,
    /// Time of a step.
    pub step: Nanos,
    /// Memory of the fullest device: weights, gradients, optimizer state, stash.
    pub peak: Bytes,
    /// Bytes that all devices together send in a step.
    pub traffic: Bytes,
    /// Collectives and messages of a step.
    pub communications: u64,
    /// Time line; communication beside computation overlaps it.
    pub parts: Vec<Part>,
}

/// Why a form does not apply.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FormError {
    /// No devices or no micro-batches.
    #[error("{0} is 0, must be at least 1")]
    Zero(&'static str),
    /// Cuts that name no stages.
    #[error("cuts {0:?} must ascend and lie between 1 and the last of {1} items")]
    Cuts(Vec<u32>, usize),
    /// Devices that are not the pipeline's stages, or a multiple of them.
    #[error("{devices} devices for {stages} stages: {must}")]
    Devices {
        /// Devices given.
        devices: u32,
        /// Stages that the cuts make.
        stages: u32,
        /// What it takes.
        must: &'static str,
    },
    /// A network of times and bytes, as of a profile.
    #[error("times of layers do not say how to divide them: give the network itself")]
    NoLayers,
    /// A mini-batch that does not divide.
    #[error("{samples} samples of a mini-batch do not divide into {parts} parts")]
    Parts {
        /// Samples.
        samples: u64,
        /// Parts.
        parts: u64,
    },
    /// Layers that cannot be divided.
    #[error(transparent)]
    Undivided(#[from] TensorParallelError),
}

/// Times and bytes of one form.
///
/// # Errors
/// When devices, cuts and micro-batches do not fit the form.
pub fn cost(form: Form, case: &Case) -> Result<FormCost, FormError> {
    case.check(form)?;
    Ok(match form {
        Form::Alone => replicated::alone(case),
        Form::DataParallel => replicated::data_parallel(case),
        Form::DistributedDataParallel => replicated::distributed(case, Sharding::Whole),
        Form::Zero1 => replicated::distributed(case, Sharding::Optimizer),
        Form::Zero2 => replicated::distributed(case, Sharding::Gradients),
        Form::TensorParallel => divided::tensor_parallel(case)?,
        Form::ModelParallel => staged::pipeline(form, case, 1),
        Form::Pipeline | Form::Hybrid => staged::pipeline(form, case, case.micro_batches),
    })
}

impl Case<'_> {
    fn check(&self, form: Form) -> Result<(), FormError> {
        if self.devices == 0 {
            return Err(FormError::Zero("devices"));
        }
        if self.micro_batches == 0 {
            return Err(FormError::Zero("micro_batches"));
        }
        if !matches!(form, Form::ModelParallel | Form::Pipeline | Form::Hybrid) {
            return Ok(());
        }
        let items = self.work.items.len();
        let ascend = self.cuts.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = self.cuts.iter().all(|cut| *cut >= 1 && (*cut as usize) < items);
        if !(ascend && inside) {
            return Err(FormError::Cuts(self.cuts.to_vec(), items));
        }
        let (devices, stages) = (self.devices, self.stages());
        let must = match form {
            Form::Hybrid => "a multiple of the stages",
            _ => "as many as stages",
        };
        let fits = devices == stages || (form == Form::Hybrid && devices.is_multiple_of(stages));
        if fits { Ok(()) } else { Err(FormError::Devices { devices, stages, must }) }
    }

    fn stages(&self) -> u32 {
        self.cuts.len() as u32 + 1
    }

    /// Time of the optimizer for `parameters` bytes of weights whose state is divided among
    /// `replicas`: everything it keeps is read and written once.
    fn update(&self, parameters: Bytes, replicas: u32) -> Nanos {
        let device = &self.cluster.device;
        let kept = self.state_bytes(parameters, replicas, self.states.sharding);
        let speed = device.memory_bytes_per_sec * device.memory_efficiency();
        Nanos::from_secs(2.0 * kept.0 as f64 / speed)
    }

    /// Weights, gradients and optimizer state for `parameters` bytes of weights.
    fn state_bytes(&self, parameters: Bytes, replicas: u32, sharding: Sharding) -> Bytes {
        let states = States { sharding, ..self.states };
        let size = states.bytes(1, 1).weights.0;
        states.bytes(parameters.0 / size, replicas).total()
    }

    /// The links of `ranks` ranks, every `stride`-th one.
    fn channel(&self, ranks: u32, stride: u32) -> Channel {
        let last = LaneId(ranks.saturating_sub(1).saturating_mul(stride));
        Channel::from(self.cluster.link(LaneId(0), last))
    }

    /// A collective among `ranks` ranks, every `stride`-th one.
    fn collective(&self, what: Collective, ranks: u32, stride: u32, bytes: Bytes) -> Nanos {
        let flat = time(what, ranks, bytes.0 as f64, self.channel(ranks, stride));
        let per_node = (self.cluster.ranks_per_node / stride).max(1);
        let nested = what == Collective::AllReduce
            && per_node > 1
            && ranks > per_node
            && ranks.is_multiple_of(per_node);
        if !nested {
            return Nanos::from_secs(flat);
        }
        let (local, network) = (&self.cluster.local, &self.cluster.network);
        let nested = hierarchical(per_node, ranks / per_node, bytes.0 as f64, local, network);
        Nanos::from_secs(flat.min(nested))
    }

    /// A ring all-reduce's bytes, sent by all ranks together.
    fn ring_traffic(ranks: u32, bytes: Bytes) -> Bytes {
        bytes * 2 * u64::from(ranks.saturating_sub(1))
    }
}

/// `time` of the whole mini-batch, for one of `parts` equal parts.
fn share(time: Nanos, parts: u32) -> Nanos {
    Nanos(time.0.div_ceil(u64::from(parts)))
}
