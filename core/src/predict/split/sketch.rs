//! A split on the chain of nodes: the schedule without programs.
//!
//! What crosses a border is counted on every border that it crosses, so a value that skips stages counts
//! more than it does in programs; trials say what is true.

use super::trial::Trials;
use crate::cost::{Cluster, Workload};
use crate::predict::search::Chain;
use crate::schedule::Schedule;
use crate::simulate::{Footprint, Hop, Sends, StageCost, estimate};
use crate::units::{Bytes, Nanos};

pub(super) struct Sketch<'a> {
    pub work: Workload,
    pub chain: Chain,
    schedule: &'a Schedule,
    cluster: &'a Cluster,
    /// Ranks of a lane's replicas stand side by side: the first rank of each lane.
    rank_of: Vec<crate::ids::LaneId>,
    /// What the optimizer keeps, in copies of the parameters.
    kept: u64,
    /// Among how many replicas that is divided, and among how many gradients are.
    divided: Divided,
    /// Whether the step is that of a full pipeline.
    steady: bool,
    /// Whether devices are too small for some splits.
    pub tight: bool,
}

/// Replicas that divide something; 1 where none do.
struct Divided {
    optimizer: u64,
    gradients: u64,
}

/// Values of splits that do not fit are above those of all that do.
const FULL: u64 = 1 << 62;

impl<'a> Sketch<'a> {
    pub fn new(trials: &'a Trials, tight: bool) -> Self {
        let precision = trials.plan.training.precision;
        let work = Workload::of_training(&trials.graph, &trials.costs, precision);
        let nodes: Vec<u32> = (0..work.items.len() as u32).collect();
        let chain = Chain::new(&work, &nodes, 1).expect("undivided items are what they are");
        let plan = &trials.plan;
        let replicas = plan.data_parallel.replicas.max(1);
        let among = |divides: bool| if divides { u64::from(replicas) } else { 1 };
        let divided = Divided {
            optimizer: among(plan.data_parallel.divides_updates()),
            gradients: among(plan.data_parallel.divides_gradients()),
        };
        let lanes = 0..trials.schedule.lanes.len() as u32;
        let rank = |lane| crate::ids::LaneId(plan.mesh().rank(crate::ids::LaneId(lane), 0));
        Self {
            work,
            chain,
            schedule: &trials.schedule,
            cluster: &plan.cluster,
            rank_of: lanes.map(rank).collect(),
            kept: plan.optimizer.state_tensors() as u64,
            divided,
            steady: trials.is_steady(),
            tight,
        }
    }

    /// The estimated step; where memory is tight, of splits that do not fit the bytes that are too many.
    pub fn value(&self, cuts: &[u32]) -> Nanos {
        let chain = &self.chain;
        let ends = cuts.iter().copied().chain([chain.len() as u32]);
        let ranges = [0].into_iter().chain(cuts.iter().copied()).zip(ends);
        let (mut costs, mut footprints) = (vec![], vec![]);
        for (from, to) in ranges {
            let sums = chain.range(from, to);
            costs.push(StageCost {
                forward: sums.forward,
                backward_input: sums.backward_input,
                backward_weight: sums.backward_weight,
                update: Nanos::ZERO,
            });
            footprints.push(Footprint {
                weights: sums.parameters,
                gradients: Bytes(sums.parameters.0 / self.divided.gradients),
                optimizer: Bytes(sums.parameters.0 * self.kept / self.divided.optimizer),
                stash: sums.stash,
                ..Footprint::default()
            });
        }
        let hop = |hop: Hop| {
            let ends = [hop.from, hop.to].map(|lane| self.rank_of[lane.index()]);
            let bytes = chain.input(cuts[hop.boundary.index()]);
            self.cluster.link(ends[0], ends[1]).time(bytes)
        };
        match estimate(self.schedule, &costs, &footprints, Sends::Outbox, hop) {
            Ok(found) if self.tight && found.peak() > self.cluster.device.memory => {
                Nanos(FULL.saturating_add(found.peak().0))
            }
            // Where nothing flushes, the time between two micro-batches.
            Ok(found) => match found.steady.filter(|_| self.steady) {
                Some(each) => each,
                None => found.makespan,
            },
            Err(_) => Nanos(u64::MAX),
        }
    }
}
