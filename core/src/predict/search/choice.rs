//! A point of the search space and what it is worth.

use crate::compress::{CodecKind, Reduction, USUAL};
use crate::cost::{Cluster, Link};
use crate::plan::Edges;
use crate::schedule::ScheduleKind;
use crate::units::{Bytes, Nanos};
use std::fmt;

/// How ranks may send each other gradients and activations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Encoding {
    /// How replicas sum gradients.
    pub gradients: Reduction,
    /// Whether they do so by hosts.
    pub by_hosts: bool,
    /// How values travel between stages.
    pub edges: Edges,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{}", self.gradients, if self.by_hosts { " by hosts" } else { "" })?;
        for (codec, between) in [(self.edges.within, "within"), (self.edges.across, "between")] {
            if !codec.is_lossless() {
                write!(f, ", {codec} {between} nodes")?;
            }
        }
        Ok(())
    }
}

/// The usual codecs for gradients, flat: they are judged where none was asked for.
pub fn usual_encodings() -> Vec<Encoding> {
    USUAL
        .iter()
        .map(|gradients| Encoding { gradients: *gradients, ..Encoding::default() })
        .collect()
}

/// Every combination that makes sense on `cluster` of these sums, and of these codecs between nodes:
/// by hosts only where a host has several ranks.
pub fn encodings(
    cluster: &Cluster,
    gradients: &[Reduction],
    across: &[CodecKind],
) -> Vec<Encoding> {
    let several = cluster.nodes > 1 && cluster.ranks_per_node > 1;
    let mut found = vec![];
    for &across in across.iter().filter(|codec| cluster.nodes > 1 || codec.is_lossless()) {
        for &gradients in gradients {
            let edges = Edges { across, ..Edges::default() };
            found.push(Encoding { gradients, by_hosts: false, edges });
            if several && !gradients.is_plain() {
                found.push(Encoding { gradients, by_hosts: true, edges });
            }
        }
    }
    found.retain(|way| *way != Encoding::default());
    found
}

/// Choices that are made already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fixed {
    /// Ranks in all, not more and not fewer: lanes x replicas x tensor-parallel degree.
    pub ranks: Option<u32>,
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
    /// The way of what ranks send each other, by index; `None` for single precision.
    pub encoding: Option<Option<usize>>,
}

impl Fixed {
    /// Pipelines and replicas of them, with no item divided.
    pub fn plain(self) -> Self {
        Self { tensor: Some(1), ..self }
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
    /// Index of the way of what ranks send each other; `None` for single precision.
    pub encoding: Option<usize>,
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

    /// Whether no item is divided: see [`Fixed::plain`].
    pub fn is_plain(&self) -> bool {
        self.tensor == 1
    }

    /// One line: `8 lanes x 16 replicas x 4 tensor-parallel, 96 micro-batches, interleaved:2, recompute
    /// 3/16 stages, fp8`.
    pub fn describe(&self, encodings: &[Encoding]) -> String {
        let again = self.recompute.iter().filter(|again| **again).count();
        let counted = |count: u32, one: &str, several: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {several}"),
        };
        let mut line = counted(self.lanes, "lane", "lanes");
        line += &format!(" x {}", counted(self.replicas, "replica", "replicas"));
        if self.tensor > 1 {
            line += &format!(" x {} tensor-parallel", self.tensor);
        }
        let micro_batches = counted(self.micro_batches, "micro-batch", "micro-batches");
        line += &format!(", {micro_batches}, {}", self.schedule);
        if again > 0 {
            line += &format!(", recompute {again}/{} stages", self.recompute.len());
        }
        if let Some(at) = self.encoding {
            line += &format!(", {}", encodings[at]);
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

/// The link between two lanes of a choice, and how what it carries is encoded.
pub(super) fn lane_link(
    cluster: &Cluster,
    choice: &Choice,
    edges: Edges,
    (a, b): (u32, u32),
) -> (Link, CodecKind) {
    let width = choice.replicas * choice.tensor;
    let node = |lane: u32| lane * width / cluster.ranks_per_node;
    match node(a) == node(b) {
        true => (cluster.local, edges.within),
        false => (cluster.network, edges.across),
    }
}
