//! The split of a plan whose step is shortest, and a bound of what any other split can reach.
//!
//! The slowest stage is not the time of a step: start-up, messages and memory count differently in
//! every schedule. So
//! 1. *starts* are made: the balanced split of layers, that of nodes, the exact split of the graph
//!    with transfers and memory ([`exact`]), and for several stages a lane even lanes ([`chunks`]);
//! 2. *sketches* refine them: the schedule on the chain of nodes, without programs (`sketch.rs`);
//! 3. *trials* decide: stages are laid out and simulated as [`super::predict`] does, the best starts
//!    refined once more around their cuts.
//!
//! Borders between layers are kept unless cutting inside of layers is allowed and makes the step shorter by
//! more than one part in [`WORTH`]. The balanced split is one of the trials, so nothing slower is returned. Budgets count
//! work, not seconds: the same draft gives the same cuts.
//!
//! Cuts divide the nodes in the order that they have; [`reordered`] finds another for branches.

mod bound;
mod order;
mod sketch;
mod trial;

pub use order::reordered;

use super::PredictError;
use crate::cost::Workload;
use crate::graph::Graph;
use crate::order::sort_by_numbers;
use crate::partition::{
    Footprint, PartitionError, Pipeline, Worker, balanced, chunks, exact, refine, split,
};
use crate::plan::{Draft, ScheduleText};
use crate::schedule::Schedule;
use crate::units::{Bytes, Nanos};
use sketch::Sketch;
use std::collections::BTreeSet;
use thiserror::Error;
use trial::Trials;

/// A split inside of layers has to shorten the step by more than one part in so many.
const WORTH: u64 = 200;

/// Places beside a cut that trials look at, on either side.
const NEAR: usize = 4;

/// Starts that are refined by trials.
const STARTS: usize = 2;

/// Actions of all sketches of a start: about 5 ms.
const SKETCHED: u64 = 100_000;

/// Sketches of a start at most: they count, however short, as each sums its stages.
const SKETCHES: u64 = 1000;

/// Downsets that the exact split looks at, a quarter of it with transfers.
const DOWNSETS: usize = 3_000;

/// Nodes and actions of all trials: about 30 ms.
pub const USUAL: u64 = 60_000;

/// Where cuts may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Borders {
    /// Between layers only.
    Layers,
    /// Between any two nodes, where that is worth it.
    Nodes,
}

/// A split and what it was chosen for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestSplit {
    /// First nodes of the stages after the first.
    pub cuts: Vec<u32>,
    /// Its simulated step, without recomputation; where the schedule does not flush, of a full pipeline.
    pub step: Nanos,
    /// That of the balanced split of layers.
    pub balanced: Nanos,
    /// No split of the nodes in their order has a shorter step in this schedule.
    pub bound: Nanos,
    /// Whether every lane fits its device.
    pub fits: bool,
    /// Whether the balanced split does.
    pub balanced_fits: bool,
    /// Splits that were simulated.
    pub trials: u32,
}

/// Why there is no best split.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SplitError {
    /// More stages than layers.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The draft does not fit together.
    #[error(transparent)]
    Predict(#[from] PredictError),
}

/// The best split of `draft`, whose own cuts are not looked at, in the order `order`. `work` bounds the
/// trials in nodes and actions; [`USUAL`] is for one plan, and at least the starts are tried.
///
/// Where some split fits the memory of the devices, the fastest of those that do; else the fastest.
///
/// # Errors
/// More stages than layers, or a draft that makes no plan.
pub fn best_split(
    draft: &Draft,
    order: &ScheduleText,
    borders: Borders,
    work: u64,
) -> Result<BestSplit, SplitError> {
    let trials = Trials::new(draft, order)?;
    let (graph, stages) = (&trials.graph, trials.schedule.stages());
    let even = balanced(graph, &trials.costs, stages)?;
    let first = trials.run(&even)?;
    let sketch = Sketch::new(&trials, !first.fits);
    let bound = bound::bound(&sketch, &trials);
    let mut best = BestSplit {
        cuts: even.clone(),
        step: first.step,
        balanced: first.step,
        bound,
        fits: first.fits,
        balanced_fits: first.fits,
        trials: 1,
    };
    if stages > 1 {
        let searched = Searched { trials: &trials, sketch: &sketch, even: &even };
        searched.improve(&mut best, borders, work);
    }
    Ok(best)
}

/// What a search for cuts looks at.
struct Searched<'a> {
    trials: &'a Trials,
    sketch: &'a Sketch<'a>,
    /// The balanced split of layers.
    even: &'a [u32],
}

impl Searched<'_> {
    /// Layers first, then nodes.
    fn improve(&self, best: &mut BestSplit, borders: Borders, work: u64) {
        let graph = &self.trials.graph;
        let layers: Vec<u32> = graph.layers()[1..].iter().map(|l| l.first_node.0).collect();
        let of_layers = self.refined(&[self.even.to_vec()], &layers);
        self.tried(best, &of_layers, &layers, work / 3, 0);
        if borders == Borders::Layers {
            return;
        }
        let nodes = places(graph);
        let mut starts = vec![best.cuts.clone()];
        starts.extend(self.starts());
        let of_nodes = self.refined(&starts, &nodes);
        self.tried(best, &of_nodes, &nodes, work - work / 3, WORTH);
    }

    /// Splits that ignore the layers.
    fn starts(&self) -> Vec<Vec<u32>> {
        let (work, trials) = (&self.sketch.work, self.trials);
        let stages = trials.schedule.stages();
        let times = self.sketch.chain.times();
        let mut starts = vec![];
        if times.len() >= stages as usize {
            let first = split(&times, stages as usize);
            starts.push(first.into_iter().map(|node| node as u32).collect());
        }
        let route = &trials.schedule.routes[0];
        if trials.schedule.routes.len() == 1 && route.len() > trials.schedule.lanes.len() {
            let lanes: Vec<u32> = route.iter().map(|lane| lane.0).collect();
            starts.extend(chunks(work, &lanes));
        }
        starts.push(in_proportion(&times, &lanes_of(&trials.schedule)));
        let placed = exact(work, &pipeline(trials, self.sketch)).ok();
        starts.extend(placed.and_then(|placement| placement.cuts()));
        starts.retain(|cuts: &Vec<u32>| cuts.len() as u32 + 1 == stages && is_split(cuts, work));
        starts
    }

    /// Each start refined by sketches, the fastest first.
    fn refined(&self, starts: &[Vec<u32>], allowed: &[u32]) -> Vec<Vec<u32>> {
        let actions = self.trials.actions().max(1);
        let budget = (SKETCHED / actions).clamp(40, SKETCHES) as u32;
        let mut found: Vec<(Nanos, Vec<u32>)> = vec![];
        for start in starts {
            let refined = refine(start, allowed, budget, |cuts| self.sketch.value(cuts));
            if found.iter().all(|(_, cuts)| *cuts != refined.cuts) {
                found.push((refined.time, refined.cuts));
            }
        }
        sort_by_numbers(&mut found, |(time, _)| [time.0, 0]);
        found.into_iter().map(|(_, cuts)| cuts).collect()
    }

    /// Tries splits, refines the first ones, and keeps what is better by more than a part in `worth`.
    fn tried(
        &self,
        best: &mut BestSplit,
        starts: &[Vec<u32>],
        allowed: &[u32],
        work: u64,
        worth: u64,
    ) {
        let each = (work / self.trials.work()).max(1) as u32;
        let keep = best.clone();
        for start in starts.iter().take(STARTS) {
            let near = near(start, allowed);
            let budget = (each / STARTS as u32).max(1);
            let found = refine(start, &near, budget, |cuts| {
                best.trials += 1;
                self.trials.value(cuts, keep.fits)
            });
            let Ok(trial) = self.trials.run(&found.cuts) else { continue };
            let limit = keep.step.0 - keep.step.0.checked_div(worth).unwrap_or(0);
            let shorter = trial.step < best.step && trial.step.0 <= limit;
            let better = match (best.fits, trial.fits) {
                (true, false) => false,
                (false, true) => true,
                _ => shorter,
            };
            if better {
                (best.cuts, best.step, best.fits) = (found.cuts, trial.step, trial.fits);
            }
        }
    }
}

/// How many lanes each stage is on.
fn lanes_of(schedule: &Schedule) -> Vec<u64> {
    let lanes = |stage: usize| {
        BTreeSet::from_iter(schedule.routes.iter().map(|route| route[stage])).len() as u64
    };
    (0..schedule.stages() as usize).map(lanes).collect()
}

/// First nodes of stages that have their share of the time, by weight.
fn in_proportion(times: &[Nanos], weights: &[u64]) -> Vec<u32> {
    let (all, total) = (weights.iter().sum::<u64>(), times.iter().copied().sum::<Nanos>());
    let (mut until, mut share) = (Nanos::ZERO, 0);
    let mut ends = times.iter().map(|time| {
        until += *time;
        until
    });
    let mut cuts = vec![];
    let mut node = 0;
    for weight in &weights[..weights.len() - 1] {
        share += weight;
        let bound = u128::from(total.0) * u128::from(share) / u128::from(all.max(1));
        node += 1 + ends.by_ref().take_while(|end| u128::from(end.0) < bound).count() as u32;
        cuts.push(node);
    }
    cuts
}

/// Where a stage may begin: at nodes that compute, and not at those that only say again what the node
/// before has.
fn places(graph: &Graph) -> Vec<u32> {
    let nodes = (0..).zip(graph.nodes());
    let begins = |(at, node): &(u32, &crate::graph::Node)| {
        *at > 0 && !node.op.is_source() && !node.op.is_view()
    };
    nodes.filter(begins).map(|(at, _)| at).skip(1).collect()
}

/// The places of `allowed` close to one of `cuts`.
fn near(cuts: &[u32], allowed: &[u32]) -> Vec<u32> {
    let mut near = vec![];
    for cut in cuts {
        let at = allowed.partition_point(|place| place < cut);
        let from = at.saturating_sub(NEAR);
        near.extend(&allowed[from..(at + NEAR + 1).min(allowed.len())]);
    }
    near.sort_unstable();
    near.dedup();
    near
}

fn is_split(cuts: &[u32], work: &Workload) -> bool {
    cuts.first().is_none_or(|first| *first > 0)
        && cuts.windows(2).all(|pair| pair[0] < pair[1])
        && cuts.last().is_none_or(|last| (*last as usize) < work.items.len())
}

/// Devices in a row, as the exact split sees the draft's.
fn pipeline(trials: &Trials, sketch: &Sketch) -> Pipeline {
    let plan = &trials.plan;
    let cluster = &plan.cluster;
    let lanes = trials.schedule.lanes.len() as u64;
    let stages = u64::from(trials.schedule.stages());
    // Stages of one lane share its device. What fits everywhere needs no limit, and where the
    // parameters alone are too many nothing is found below it.
    let memory = Bytes(cluster.device.memory.0 / (stages / lanes.max(1)).max(1));
    let held: Bytes = sketch.work.items.iter().map(|item| item.state).sum();
    let limited = sketch.tight && held.0 / stages < memory.0;
    let worker = Worker { memory: limited.then_some(memory), ..Worker::default() };
    Pipeline {
        workers: vec![worker; stages as usize],
        link: Some(cluster.local),
        footprint: Footprint {
            optimizer_copies: plan.optimizer.state_tensors() as u32,
            micro_batches: plan.micro_batches,
        },
        limit: DOWNSETS,
        ..Pipeline::of(0)
    }
}
