//! A point of the search space and what it is worth.

use crate::cost::collective::Codec;
use crate::cost::{Cluster, Device};
use crate::schedule::ScheduleKind;
use crate::units::{Bytes, Nanos};
use std::fmt;

/// A codec for gradients, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Compression {
    /// For people.
    pub name: &'static str,
    /// Its figures.
    pub codec: Codec,
}

/// bf16, fp8 and 1 bit, which a device encodes at the pace of its memory: a value and its residual
/// are read and written, 16 bytes for 4 of gradient.
pub fn default_codecs(device: &Device) -> Vec<Compression> {
    let bytes_per_sec = device.memory_bytes_per_sec / 4.0;
    let codec = |name, ratio| Compression { name, codec: Codec { ratio, bytes_per_sec } };
    vec![codec("bf16", 1.0 / 2.0), codec("fp8", 1.0 / 4.0), codec("1bit", 1.0 / 31.0)]
}

/// Choices that are made already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fixed {
    /// Lanes of the pipeline.
    pub lanes: Option<u32>,
    /// Stages of the pipeline: lanes times chunks.
    pub stages: Option<u32>,
    /// Copies of the whole pipeline.
    pub replicas: Option<u32>,
    /// Tensor-parallel degree.
    pub tensor: Option<u32>,
    /// Micro-batches of a replica's step.
    pub micro_batches: Option<u32>,
    /// The schedule. Schedules whose updates are not synchronous train something else and are
    /// only searched when asked for here.
    pub schedule: Option<ScheduleKind>,
    /// Only schedules that keep every stage on one lane.
    pub one_route: bool,
    /// Whether stages compute activations again: everywhere, or nowhere.
    pub recompute: Option<bool>,
    /// The codec by index, or none.
    pub codec: Option<Option<usize>>,
}

impl Fixed {
    /// Only what today's runner executes: pipelines and replicas of them, with no item divided.
    pub fn plain(self) -> Self {
        Self { tensor: Some(1), codec: Some(None), ..self }
    }
}

/// A complete plan of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Devices that divide every item.
    pub tensor: u32,
    /// Copies of the pipeline, each with its share of the mini-batch.
    pub replicas: u32,
    /// Lanes of the pipeline.
    pub lanes: u32,
    /// Micro-batches of a replica's step.
    pub micro_batches: u32,
    /// Order of actions.
    pub schedule: ScheduleKind,
    /// First block of each stage after the first.
    pub starts: Vec<u32>,
    /// By stage: whether activations are computed again.
    pub recompute: Vec<bool>,
    /// Index of the codec for gradients.
    pub codec: Option<usize>,
}

impl Choice {
    /// Devices that it uses.
    pub fn devices(&self) -> u32 {
        self.tensor * self.replicas * self.lanes
    }

    /// Stages.
    pub fn stages(&self) -> u32 {
        self.starts.len() as u32 + 1
    }

    /// Samples of a micro-batch.
    pub fn samples(&self, mini_batch: u64) -> u64 {
        mini_batch / (u64::from(self.replicas) * u64::from(self.micro_batches))
    }

    /// Whether today's runner executes it: see [`Fixed::plain`].
    pub fn is_plain(&self) -> bool {
        self.tensor == 1 && self.codec.is_none()
    }

    /// One line: `t 8 x d 16 x p 8, m 96, interleaved:2, recompute 3/16 stages, fp8`.
    pub fn describe(&self, codecs: &[Compression]) -> String {
        let again = self.recompute.iter().filter(|again| **again).count();
        let mut line = format!(
            "t {} x d {} x p {}, m {}, {}",
            self.tensor, self.replicas, self.lanes, self.micro_batches, self.schedule
        );
        if again > 0 {
            line += &format!(", recompute {again}/{} stages", self.recompute.len());
        }
        if let Some(codec) = self.codec {
            line += &format!(", {}", codecs[codec].name);
        }
        line
    }
}

/// What a choice is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The choice.
    pub choice: Choice,
    /// Time of a step.
    pub step: Nanos,
    /// Most memory that a device uses.
    pub peak: Bytes,
    /// Bytes that all devices send in a step, tensor-parallel collectives not counted.
    pub traffic: Bytes,
    /// Idle share of the lanes' time until the last of them is done.
    pub bubble: f64,
    /// Of the step, the sum of gradients over replicas.
    pub gradients: Nanos,
}

/// Three figures, least is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    pub step: Nanos,
    pub peak: Bytes,
    pub traffic: Bytes,
}

impl Figures {
    /// At least as good in everything.
    pub fn covers(&self, other: &Self) -> bool {
        self.step <= other.step && self.peak <= other.peak && self.traffic <= other.traffic
    }
}

impl Scored {
    pub(super) fn figures(&self) -> Figures {
        Figures { step: self.step, peak: self.peak, traffic: self.traffic }
    }
}

impl fmt::Display for Scored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (step, peak, traffic) = (self.step, self.peak, self.traffic);
        write!(f, "{step} step, {peak} peak, {traffic} sent, bubble {:.1} %", 100.0 * self.bubble)
    }
}

/// The link between two lanes of a choice.
pub(super) fn lane_link(cluster: &Cluster, choice: &Choice, a: u32, b: u32) -> crate::cost::Link {
    let width = choice.replicas * choice.tensor;
    let node = |lane: u32| lane * width / cluster.devices_per_node;
    if node(a) == node(b) { cluster.local } else { cluster.network }
}
