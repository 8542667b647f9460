//! Timelines, predicted by [`crate::simulate`] or measured by the runner, in one type.
//!
//! ```
//! use pipewright_core::cost::Cluster;
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::plan::{Draft, Model};
//! use pipewright_core::timeline::{Step, Trace, chrome};
//! use pipewright_core::units::Nanos;
//!
//! let cuts = vec![5, 10, 14];
//! let draft = Draft::new(Model::Preset(Preset::Vgg16), Cluster::preset("dgx-a100")?, cuts);
//! let timeline = draft.plan()?.1.timeline;
//! assert!((0.0..1.0).contains(&timeline.bubble()));
//!
//! // As a file for Perfetto, and back.
//! let steps = vec![Step { number: 0, start: Nanos::ZERO, timeline }];
//! let trace = Trace { model: "vgg16".into(), steps };
//! assert_eq!(chrome::read(&chrome::write(&trace))?, trace);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod causes;
pub mod chrome;
mod idle;
mod memory;
mod reason;
mod updates;

pub use idle::{Idle, idle};
pub use reason::{IdlePart, Reason, Why, reason};

use crate::ids::{LaneId, MicroBatch, StageId};
use crate::schedule::Action;
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// One step on all lanes. Moments count from the start of the step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// By lane.
    pub lanes: Vec<Lane>,
    /// Messages, in no particular order.
    pub messages: Vec<Message>,
    /// Bytes sent besides these: sums of gradients, and the messages of replicas that do the same and are not
    /// drawn. 0 where only what was seen is known, as in traces.
    pub elsewhere: Bytes,
    /// End of the last span.
    pub step: Nanos,
}

/// Some steps of a run, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Model of the plan that ran.
    pub model: String,
    /// The steps.
    pub steps: Vec<Step>,
}

/// One step of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Its number in the run.
    pub number: u64,
    /// When it began, from the start of the run.
    pub start: Nanos,
    /// What happened in it.
    pub timeline: Timeline,
}

/// Steps at the begin of a run that take longer: pages are touched, libraries choose algorithms.
const WARM_UP: u64 = 2;

impl Trace {
    /// The steps behind the warm-up; all, where there are no others.
    pub fn steady(&self) -> impl Iterator<Item = &Step> {
        let warm = self.steps.iter().any(|step| step.number >= WARM_UP);
        self.steps.iter().filter(move |step| !warm || step.number >= WARM_UP)
    }

    /// The steady step whose duration is the median: one outlier changes nothing.
    pub fn median(&self) -> Option<&Step> {
        let mut steps: Vec<&Step> = self.steady().collect();
        steps.sort_by_key(|s| (s.timeline.step, s.number));
        steps.get(steps.len() / 2).copied()
    }
}

/// One lane's step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// What the lane's processor does, ascending and without overlap.
    pub spans: Vec<Span>,
    /// Bytes in use, as steps: each entry holds until the next one.
    pub memory: Vec<(Nanos, Bytes)>,
    /// Size of the rank's arena: the peak that is reserved.
    pub arena: Bytes,
    /// What goes on beside the work, ascending in its start; may overlap it and each other.
    pub asides: Vec<Aside>,
}

/// Something that is no work of the lane's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aside {
    /// When it begins.
    pub start: Nanos,
    /// When it ends.
    pub end: Nanos,
    /// What it is.
    pub what: What,
}

/// What can go on beside a lane's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The lane waits for others; what it takes to get a message in is part of it.
    Wait(Wait),
    /// Gradients of a stage are summed with other ranks, from the first bucket's start until all
    /// were waited for.
    AllReduce(StageId),
    /// The lane waits for samples and copies them.
    Input,
}

/// What a lane can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// A message to come.
    Message,
    /// A message to be received.
    Receiver,
    /// Other ranks in something that all do together.
    Ranks,
}

/// A piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it begins.
    pub start: Nanos,
    /// When it ends.
    pub end: Nanos,
    /// What it is.
    pub work: Work,
}

/// What a lane's processor can be busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// An action of the schedule.
    Run(Action),
    /// The update of a stage's parameters.
    Optimizer(StageId),
}

/// A tensor that travels between lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sending lane.
    pub from: LaneId,
    /// Receiving lane.
    pub to: LaneId,
    /// Stage that computed it.
    pub stage: StageId,
    /// Which micro-batch.
    pub micro_batch: MicroBatch,
    /// Whether it is a gradient on its way back.
    pub gradient: bool,
    /// Size.
    pub bytes: Bytes,
    /// When the sender hands it over.
    pub sent: Nanos,
    /// When the receiver has it.
    pub received: Nanos,
}

impl Lane {
    /// Time spent working.
    pub fn busy(&self) -> Nanos {
        self.spans.iter().map(|s| s.end - s.start).sum()
    }

    /// Most bytes in use at one moment.
    pub fn peak(&self) -> Bytes {
        self.memory.iter().map(|(_, bytes)| *bytes).max().unwrap_or_default()
    }
}

impl Timeline {
    /// Idle share of the lanes' time in the step, between 0 and 1.
    pub fn bubble(&self) -> f64 {
        let total = self.step.0 as f64 * self.lanes.len() as f64;
        let busy: Nanos = self.lanes.iter().map(Lane::busy).sum();
        if total == 0.0 { 0.0 } else { 1.0 - busy.0 as f64 / total }
    }

    /// The largest arena and its lane.
    pub fn peak(&self) -> Option<(LaneId, Bytes)> {
        let lanes = (0..).map(LaneId).zip(self.lanes.iter().map(|lane| lane.arena));
        // The first of equals, so that the answer does not jump between lanes.
        lanes.reduce(|a, b| if b.1 > a.1 { b } else { a })
    }

    /// Bytes that all ranks send in the step, gradients that they sum included.
    pub fn traffic(&self) -> Bytes {
        self.messages.iter().map(|m| m.bytes).sum::<Bytes>() + self.elsewhere
    }
}
