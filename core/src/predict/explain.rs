//! Explanations of a step: why it takes as long as it does, and what would shorten it.
//!
//! The critical path is cut into terms that add up to the step: the computing of each stage, the
//! start-up and the transfer of each link, sums of gradients, waits for receivers, the optimizer. What bounds
//! the step is the largest of them; what a change is worth is never read off a term but simulated. Timelines
//! that a runner measured are explained by the same terms.

use super::{PredictError, Prediction, outline};
use crate::cost::Cluster;
use crate::graph::Graph;
use crate::ids::{LaneId, StageId};
use crate::order::{descending, sort_by_numbers};
use crate::partition::{layer_times, moves};
use crate::plan::{Plan, ScheduleText};
use crate::schedule::ScheduleKind;
use crate::timeline::causes::{Arrivals, Cause, critical_path};
use crate::timeline::{Timeline, What as Aside, Work};
use crate::units::Nanos;
use std::collections::BTreeMap;
use std::fmt;

/// A kind of time on the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Passes of a stage.
    Stage(StageId),
    /// Latency of messages between two lanes, t0 of Takisawa 2022.
    StartUp(LaneId, LaneId),
    /// The rest of the messages' time: bytes over bandwidth.
    Transfer(LaneId, LaneId),
    /// Gradients of a stage are summed with other ranks.
    Sum(StageId),
    /// A lane that waits until its last message has been taken, or for samples.
    Wait(LaneId),
    /// Updates of parameters.
    Optimizer(StageId),
}

/// A share of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// What takes it.
    pub what: What,
    /// How much of the critical path.
    pub time: Nanos,
}

/// What a step's time is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// From the start of the step to its end, each span begun by the one before it: lanes and
    /// indexes of their spans.
    pub path: Vec<(usize, usize)>,
    /// The largest first; they add up to the step.
    pub terms: Vec<Term>,
}

/// The terms of a step on `cluster`; `arrivals` are the timeline's. Linear in spans and messages.
pub fn explain(timeline: &Timeline, arrivals: &Arrivals, cluster: &Cluster) -> Explanation {
    let path = critical_path(timeline, arrivals);
    let mut terms = BTreeMap::<What, Nanos>::new();
    let mut end = Nanos::ZERO;
    for &place in &path {
        let (lane, index) = place;
        let span = timeline.lanes[lane].spans[index];
        for term in gap(timeline, arrivals, cluster, place, end) {
            *terms.entry(term.what).or_default() += term.time;
        }
        let what = match span.work {
            Work::Run(action) => What::Stage(action.stage),
            Work::Optimizer(stage) => What::Optimizer(stage),
        };
        *terms.entry(what).or_default() += span.end.saturating_sub(span.start.max(end));
        end = end.max(span.end);
    }
    // What goes on behind the last work: a message, a sum, the end of a measured step.
    if let Some(&(lane, _)) = path.last() {
        *terms.entry(What::Wait(LaneId(lane as u32))).or_default() +=
            timeline.step.saturating_sub(end);
    }
    let mut terms: Vec<Term> = terms.into_iter().map(|(what, time)| Term { what, time }).collect();
    terms.retain(|term| term.time > Nanos::ZERO);
    // Of equal ones those stay first that the map has first.
    sort_by_numbers(&mut terms, |term| [descending(term.time.0), 0]);
    Explanation { path, terms }
}

/// What happened between `end`, when the span before it on the path ended, and its start.
fn gap(
    timeline: &Timeline,
    arrivals: &Arrivals,
    cluster: &Cluster,
    (lane, index): (usize, usize),
    end: Nanos,
) -> Vec<Term> {
    let span = timeline.lanes[lane].spans[index];
    let idle = span.start.saturating_sub(end);
    let message = match (arrivals.wait(timeline, lane, index).1, span.work) {
        (Cause::Message(at), _) => Some(at),
        // Not waited for, but taken in while the lane was idle.
        (Cause::Lane, Work::Run(action)) => arrivals
            .message(timeline, lane, action)
            .filter(|at| timeline.messages[*at].received > end),
        (Cause::Lane, Work::Optimizer(_)) => None,
    };
    if let Some(message) = message.map(|at| &timeline.messages[at]) {
        let (from, to) = (message.from, message.to);
        let start_up = match message.sent >= end {
            true => cluster.link(from, to).latency_ns.min(idle),
            false => Nanos::ZERO,
        };
        return vec![
            Term { what: What::StartUp(from, to), time: start_up },
            Term { what: What::Transfer(from, to), time: idle.saturating_sub(start_up) },
        ];
    }
    match span.work {
        Work::Optimizer(stage) if sums(timeline, lane, stage) => {
            vec![Term { what: What::Sum(stage), time: idle }]
        }
        _ => vec![Term { what: What::Wait(LaneId(lane as u32)), time: idle }],
    }
}

/// Whether the lane sums gradients of the stage with others.
fn sums(timeline: &Timeline, lane: usize, stage: StageId) -> bool {
    timeline.lanes[lane].asides.iter().any(|aside| aside.what == Aside::AllReduce(stage))
}

/// What of a critical path computing takes whatever the size of the micro-batch (launch, dispatch, accumulation);
/// zero where measured times do not tell.
pub fn constant(plan: &Plan, prediction: &Prediction, path: &[(usize, usize)]) -> Nanos {
    use crate::schedule::ActionKind::{Backward, BackwardInput, BackwardWeight, Forward};
    if plan.cluster.profile.is_some() {
        return Nanos::ZERO;
    }
    let mut computations = 0;
    for &(lane, index) in path {
        let Work::Run(action) = prediction.timeline.lanes[lane].spans[index].work else { continue };
        let [forward, input, weight] = prediction.computations[action.stage.index()];
        computations += match action.kind {
            Forward => forward,
            Backward => input + weight,
            BackwardInput => input,
            BackwardWeight => weight,
        };
    }
    plan.cluster.device.constant(&prediction.graph) * computations
}

/// The number of micro-batches that makes the step shortest, with the same cuts and schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestMicroBatches {
    /// The shortest step.
    pub best: u32,
    /// Its time.
    pub step: Nanos,
    /// Least and most micro-batches whose step is at most 1 % longer, all between them included.
    pub flat: (u32, u32),
    /// Every number that was tried, ascending, with its step.
    pub tried: Vec<(u32, Nanos)>,
}

/// Numbers of micro-batches beyond this are not tried: overheads have long won.
const MICRO_BATCHES_MAX: u32 = 1024;

/// Simulates `plan` with every number of micro-batches that divides a replica's share of the mini-batch
/// and that its schedule allows. `None` for a schedule without a name, which cannot be made for another number.
///
/// # Errors
/// What does not fit about the plan itself.
pub fn best_micro_batches(plan: &Plan) -> Result<Option<BestMicroBatches>, PredictError> {
    let Ok(kind) = plan.schedule.name.parse::<ScheduleKind>() else { return Ok(None) };
    let mut tried = vec![];
    let each = plan.mini_batch / u64::from(plan.data_parallel.replicas);
    for m in 1..=MICRO_BATCHES_MAX.min(u32::try_from(each).unwrap_or(u32::MAX)) {
        if each.is_multiple_of(u64::from(m))
            && let Ok(schedule) = ScheduleText::of(kind, plan.stages(), m)
        {
            let other = Plan { schedule, micro_batches: m, ..plan.clone() };
            tried.push((m, outline(&other)?.timeline.step));
        }
    }
    let Some(at) = (0..tried.len()).min_by_key(|i| tried[*i].1) else { return Ok(None) };
    let (best, step) = tried[at];
    let close = |entry: &&(u32, Nanos)| entry.1.0 * 100 <= step.0 * 101;
    let flat_from = tried[..at].iter().rev().take_while(close).last().map_or(best, |e| e.0);
    let flat_to = tried[at..].iter().take_while(close).last().map_or(best, |e| e.0);
    Ok(Some(BestMicroBatches { best, step, flat: (flat_from, flat_to), tried }))
}

/// A cut at another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which cut of the plan.
    pub cut: usize,
    /// The first node of the stage after it, once moved.
    pub node: u32,
    /// The layer after which the cut is then.
    pub after: String,
    /// The step with the cut there.
    pub step: Nanos,
}

/// Candidates that are simulated, the most even ones first.
const MOVES_MAX: usize = 16;

/// The move of one cut to another border between layers that shortens the step most; `None` when
/// none does by 0.1 % or more, and for a plan with recomputation, which belongs to its cuts.
///
/// # Errors
/// What does not fit about the plan itself.
pub fn best_move(plan: &Plan, prediction: &Prediction) -> Result<Option<Move>, PredictError> {
    if !plan.recompute.is_empty() {
        return Ok(None);
    }
    let graph = &prediction.graph;
    let times = layer_times(graph, &prediction.costs);
    let bounds = layer_bounds(graph, &plan.cuts);
    let now = prediction.timeline.step;
    let mut best: Option<Move> = None;
    for (cut, layer) in moves(&bounds, &times).into_iter().take(MOVES_MAX) {
        let node = graph.layers()[layer].first_node.0;
        let mut moved = plan.clone();
        moved.cuts[cut] = node;
        let step = outline(&moved)?.timeline.step;
        // Under 0.1 % a suggestion is noise.
        if step.0 * 1000 < now.0 * 999 && best.as_ref().is_none_or(|b| step < b.step) {
            best = Some(Move { cut, node, after: graph.layers()[layer - 1].name.clone(), step });
        }
    }
    Ok(best)
}

/// The first layer of each stage and the number of layers; a cut inside of a layer counts as one
/// after it.
fn layer_bounds(graph: &Graph, cuts: &[u32]) -> Vec<usize> {
    let layers = graph.layers();
    let at = |cut: &u32| layers.partition_point(|l| l.first_node.0 < *cut);
    std::iter::once(0).chain(cuts.iter().map(at)).chain([layers.len()]).collect()
}

impl Explanation {
    /// What bounds the step.
    pub fn bound(&self) -> Option<Term> {
        self.terms.first().copied()
    }

    /// Time of the path in messages.
    pub fn messages(&self) -> Nanos {
        let travels =
            |t: &&Term| matches!(t.what, What::StartUp(..) | What::Transfer(..) | What::Wait(_));
        self.terms.iter().filter(travels).map(|t| t.time).sum()
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Stage(stage) => write!(f, "stage {stage} computes"),
            What::StartUp(from, to) => write!(f, "start-up of messages {from} -> {to}"),
            What::Transfer(from, to) => write!(f, "transfer {from} -> {to}"),
            What::Sum(stage) => write!(f, "gradient sums of stage {stage}"),
            What::Wait(lane) => write!(f, "lane {lane} waits"),
            What::Optimizer(stage) => write!(f, "optimizer of stage {stage}"),
        }
    }
}
