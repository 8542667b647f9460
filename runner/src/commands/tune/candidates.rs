//! Plans that may be tried next: those that a search finds on the calibrated cluster, and the best one with
//! a cut moved by a layer, or with half or twice its micro-batches.

use crate::args::{Order, Recompute};
use crate::commands::plan::{Question, Ranked, find};
use crate::failure::Failure;
use pipewright_core::cost::Cluster;
use pipewright_core::graph::Graph;
use pipewright_core::plan::{Draft, Plan};
use pipewright_core::predict::Prediction;
use pipewright_core::schedule::{ScheduleKind, Updates};
use pipewright_core::units::Nanos;

/// Plans that a search estimates at most.
const ESTIMATES: u64 = 4_000;

/// A plan that may be tried.
pub(super) struct Candidate {
    pub plan: Plan,
    /// What a step is predicted to take.
    pub predicted: Nanos,
    pub why: &'static str,
}

/// What is the same in two plans that are one plan.
pub(super) fn is_same(a: &Plan, b: &Plan) -> bool {
    (&a.model, &a.cuts, &a.recompute) == (&b.model, &b.cuts, &b.recompute)
        && (a.micro_batches, a.data_parallel) == (b.micro_batches, b.data_parallel)
        && a.schedule.lanes == b.schedule.lanes
}

/// Whether parameters change while micro-batches are under way.
pub(super) fn is_asynchronous(plan: &Plan) -> Option<ScheduleKind> {
    let kind = plan.schedule.name.parse::<ScheduleKind>().ok()?;
    (kind.updates() != Updates::Synchronous).then_some(kind)
}

/// The choices of a plan, on `cluster`.
fn draft(plan: &Plan, cluster: &Cluster) -> Draft {
    Draft { cluster: cluster.clone(), recompute: plan.recompute.clone(), ..plan.draft() }
}

/// What a search of everything but ranks and mini-batch finds for plans that train as `first` does, the
/// fastest by its prediction first.
pub(super) fn searched(
    first: &Plan,
    graph: &Graph,
    cluster: &Cluster,
) -> Result<Vec<Candidate>, Failure> {
    // Weights that are old train something else: they stay where they are, and come from nowhere.
    let schedule = is_asynchronous(first).map_or(Order::Automatic, Order::Kind);
    let recompute = match first.recompute.is_empty() {
        true => Recompute::None,
        false => Recompute::Auto,
    };
    let question = Question {
        ranks: Some(first.ranks()),
        schedule: Some(schedule),
        recompute,
        holds_memory: true,
        ..Question::open(&first.communication, ESTIMATES)
    };
    let draft = Draft { recompute: vec![], ..draft(first, cluster) };
    let candidate = |ranked: Ranked| {
        let predicted = ranked.prediction.timeline.step;
        let plan = as_first(first, ranked.plan);
        Candidate { plan, predicted, why: "searched" }
    };
    Ok(find(&question, graph, &draft)?.ranked.into_iter().map(candidate).collect())
}

/// `best` with one cut moved to the next border of layers on either side.
pub(super) fn neighbours(best: &Plan, cluster: &Cluster) -> Vec<Candidate> {
    let Ok((graph, _)) = best.check() else { return vec![] };
    if !best.recompute.is_empty() || is_asynchronous(best).is_some() {
        return vec![];
    }
    let borders: Vec<u32> = graph.layers().iter().map(|layer| layer.first_node.0).collect();
    let mut moved = vec![];
    for (at, cut) in best.cuts.iter().enumerate() {
        let before = borders.iter().rev().find(|border| *border < cut);
        let after = borders.iter().find(|border| *border > cut);
        for border in before.into_iter().chain(after).filter(|border| !best.cuts.contains(border)) {
            let mut cuts = best.cuts.clone();
            cuts[at] = *border;
            let ascends = cuts.windows(2).all(|pair| pair[0] < pair[1]);
            if ascends && cuts.first().is_none_or(|first| *first > 0) {
                moved.push(cuts);
            }
        }
    }
    // An order of one's own is kept; drafts in one by name are predicted together.
    let make = |cuts: Vec<u32>| {
        let draft = Draft { cuts, ..draft(best, cluster) };
        let (plan, prediction) = draft.plan_in(best.schedule.clone()).ok()?;
        let predicted = prediction.timeline.step;
        let plan = as_first(best, plan);
        fits(&prediction, cluster).then_some(Candidate { plan, predicted, why: "a cut moved" })
    };
    moved.into_iter().filter_map(make).collect()
}

/// `best` with half and with twice its micro-batches, in the same order by name.
pub(super) fn other_micro_batches(best: &Plan, cluster: &Cluster) -> Vec<Candidate> {
    let Ok(schedule) = best.schedule.name.parse::<ScheduleKind>() else { return vec![] };
    if !best.recompute.is_empty() || is_asynchronous(best).is_some() {
        return vec![];
    }
    let make = |micro_batches: u32| {
        let draft = Draft { schedule, micro_batches, ..draft(best, cluster) };
        let (plan, prediction) = draft.plan().ok()?;
        let predicted = prediction.timeline.step;
        let plan = as_first(best, plan);
        fits(&prediction, cluster).then_some(Candidate {
            plan,
            predicted,
            why: "other micro-batches",
        })
    };
    let half = (best.micro_batches > 1).then_some(best.micro_batches / 2);
    half.into_iter().chain(best.micro_batches.checked_mul(2)).filter_map(make).collect()
}

fn fits(prediction: &Prediction, cluster: &Cluster) -> bool {
    prediction.programs.iter().all(|program| program.arena <= cluster.device.memory)
}

/// What a draft says nothing of.
fn as_first(first: &Plan, plan: Plan) -> Plan {
    Plan { weights: first.weights.clone(), resized: first.resized, ..plan }
}
