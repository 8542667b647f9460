//! A plan's cluster as a trace of its run shows it.
//!
//! Every node's times are multiplied so that the passes of its stage take what the trace says; the
//! link is the one fitted to the messages. The result is a profile like one that was measured
//! node by node, so planner, explorer and `runner simulate` read it.

use super::Prediction;
use crate::cost::calibrate::{
    CalibrateError, Fit, MessageSample, SpanSample, StageFit, link, stages,
};
use crate::cost::{Cluster, Link, MeasuredNode, NodeCost, Profile, Sample, SplitSample};
use crate::ids::{NodeId, StageId};
use crate::plan::Plan;
use crate::schedule::ActionKind;
use crate::timeline::{Aside, Lane, Message, Timeline, Trace, Wait, What, Work};
use crate::units::Nanos;
use std::collections::BTreeMap;
use thiserror::Error;

/// What a lane is busy with: a pass, or the update of a stage's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Busy {
    /// A pass.
    Pass(ActionKind),
    /// The update.
    Update,
}

impl Busy {
    /// The stage and the kind of a piece of work.
    pub fn of(work: Work) -> (StageId, Self) {
        match work {
            Work::Run(action) => (action.stage, Busy::Pass(action.kind)),
            Work::Optimizer(stage) => (stage, Busy::Update),
        }
    }

    /// The letter of the pass; U for the update.
    pub fn letter(self) -> char {
        match self {
            Busy::Pass(kind) => kind.letter(),
            Busy::Update => 'U',
        }
    }
}

/// What a trace says about a machine.
#[derive(Clone, Debug)]
pub struct TraceFit {
    /// Mean times of each stage's passes and update over all steps.
    pub stages: Vec<StageFit<Busy>>,
    /// Latency and bandwidth of the messages, where their sizes tell them apart.
    pub link: Result<(Link, Fit), CalibrateError>,
}

/// A trace that is none of the plan's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ForeignTrace {
    /// It has work of a stage that the plan has not.
    #[error("the trace has a stage {0}, which is not in the plan")]
    Stage(StageId),
}

impl TraceFit {
    /// Means of every stage's passes, latency and bandwidth of the messages.
    ///
    /// # Errors
    /// When nothing was computed in the trace.
    pub fn new(trace: &Trace) -> Result<Self, CalibrateError> {
        let timelines = || trace.steady().map(|step| &step.timeline);
        let spans: Vec<SpanSample<Busy>> = timelines().flat_map(samples).collect();
        let mut messages = vec![];
        for timeline in timelines() {
            let waits: Vec<Vec<Aside>> = timeline.lanes.iter().map(waits).collect();
            for message in &timeline.messages {
                let Some(waits) = waits.get(message.to.index()) else { continue };
                messages.push(MessageSample { bytes: message.bytes, time: travel(waits, message) });
            }
        }
        Ok(Self { stages: stages(&spans)?, link: link(&messages) })
    }

    /// The cluster of `plan` with these times, and with this link where there is one.
    ///
    /// Times are compared with those of the predicted timeline, which have in them what ranks on
    /// the same cores take from each other: the measured ones have it, too.
    ///
    /// # Errors
    /// When the trace is of another plan.
    pub fn cluster(&self, plan: &Plan, prediction: &Prediction) -> Result<Cluster, ForeignTrace> {
        let known = prediction.stages.len();
        if let Some(fit) = self.stages.iter().find(|fit| fit.stage.index() >= known) {
            return Err(ForeignTrace::Stage(fit.stage));
        }
        let predicted: Vec<SpanSample<Busy>> = samples(&prediction.timeline).collect();
        let predicted = stages(&predicted).unwrap_or_default();
        let mut factors = Factors::new();
        for fit in &self.stages {
            let same = |p: &&StageFit<Busy>| p.stage == fit.stage && p.kind == fit.kind;
            let before = predicted.iter().find(same).map_or(0.0, |p| p.mean.value);
            if before > 0.0 {
                factors.insert((fit.stage, fit.kind), fit.mean.value / before);
            }
        }
        let mut cluster = plan.cluster.clone();
        if !cluster.name.ends_with(CALIBRATED) {
            cluster.name += CALIBRATED;
        }
        if let Ok((link, _)) = &self.link {
            cluster.local = *link;
        }
        cluster.profile = Some(profile(prediction, plan, &factors));
        Ok(cluster)
    }
}

/// What is added to the name of a cluster.
const CALIBRATED: &str = ", calibrated";

/// Mean seconds over predicted ones.
type Factors = BTreeMap<(StageId, Busy), f64>;

/// All work of a step.
fn samples(timeline: &Timeline) -> impl Iterator<Item = SpanSample<Busy>> + '_ {
    timeline.lanes.iter().flat_map(|lane| &lane.spans).map(|span| {
        let (stage, kind) = Busy::of(span.work);
        SpanSample { stage, kind, time: span.end.saturating_sub(span.start) }
    })
}

/// When the lane waited for messages, ascending in the end.
fn waits(lane: &Lane) -> Vec<Aside> {
    let for_messages = |aside: &&Aside| aside.what == What::Wait(Wait::Message);
    let mut waits: Vec<Aside> = lane.asides.iter().filter(for_messages).copied().collect();
    waits.sort_by_key(|aside| aside.end);
    waits
}

/// How long a message took once both sides were there: from when it was sent, or from when the
/// receiver came for it if that was later, until it had it.
fn travel(waits: &[Aside], message: &Message) -> Nanos {
    let came = waits.binary_search_by_key(&message.received, |aside| aside.end);
    let since = came.map_or(message.sent, |at| waits[at].start.max(message.sent));
    message.received.saturating_sub(since)
}

/// A profile that the plan's cluster has keeps the sizes that it was measured at; without one there is the
/// size of the plan's micro-batches.
fn profile(prediction: &Prediction, plan: &Plan, factors: &Factors) -> Profile {
    let kernels = prediction.programs.iter().flat_map(|program| &program.stages).flat_map(|s| {
        let stage = s.stage;
        s.kernels.iter().map(move |kernel| (kernel.node, stage))
    });
    let stage_of: BTreeMap<NodeId, StageId> = kernels.collect();
    let graph = &prediction.graph;
    let known = plan.cluster.profile.iter().filter(|profile| profile.model == graph.name());
    let known: BTreeMap<&str, &Vec<Sample>> =
        known.flat_map(|p| &p.nodes).map(|node| (node.node.as_str(), &node.samples)).collect();
    let node = |(node, stage): (&NodeId, &StageId)| {
        let name = &graph.node(*node).name;
        let predicted = || vec![of_costs(prediction.costs.node(*node), plan.samples())];
        let samples = known.get(name.as_str()).map_or_else(predicted, |known| (*known).clone());
        let samples = samples.iter().map(|sample| stretched(sample, *stage, factors)).collect();
        MeasuredNode { node: name.clone(), samples }
    };
    Profile { model: graph.name().into(), nodes: stage_of.iter().map(node).collect() }
}

/// The predicted times of a node as if they were measured.
fn of_costs(cost: &NodeCost, samples: u64) -> Sample {
    Sample {
        samples,
        forward_ns: cost.forward,
        input_gradient_ns: cost.input_gradient,
        weight_gradient_ns: cost.weight_gradient,
        sum_gradients_ns: cost.sum_gradients,
        update_ns: cost.update,
        split: None,
    }
}

/// A node's times with those of its stage.
fn stretched(sample: &Sample, stage: StageId, factors: &Factors) -> Sample {
    // A backward pass in one piece says the same of both of its parts.
    let factor = |busy: &[Busy]| {
        busy.iter().find_map(|busy| factors.get(&(stage, *busy))).copied().unwrap_or(1.0)
    };
    let whole = Busy::Pass(ActionKind::Backward);
    let forward = factor(&[Busy::Pass(ActionKind::Forward)]);
    let input = factor(&[Busy::Pass(ActionKind::BackwardInput), whole]);
    let weight = factor(&[Busy::Pass(ActionKind::BackwardWeight), whole]);
    let times = |time: Nanos, factor: f64| Nanos::from_secs(time.secs() * factor);
    Sample {
        samples: sample.samples,
        forward_ns: times(sample.forward_ns, forward),
        input_gradient_ns: times(sample.input_gradient_ns, input),
        weight_gradient_ns: times(sample.weight_gradient_ns, weight),
        sum_gradients_ns: times(sample.sum_gradients_ns, input),
        update_ns: times(sample.update_ns, factor(&[Busy::Update])),
        split: sample.split.map(|split| SplitSample {
            input_gradient_ns: times(split.input_gradient_ns, input),
            weight_gradient_ns: times(split.weight_gradient_ns, weight),
        }),
    }
}
