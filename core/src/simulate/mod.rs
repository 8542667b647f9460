//! Programs run without data: the predicted timeline.
//!
//! Rules: a lane executes its instructions in order; a message arrives `link.time(bytes)` after it
//! is sent, and sending takes the lane no time (on a cluster with blocking sends it waits for the
//! arrival); a receive waits for the arrival; waiting for a send
//! waits until the receiver has the message. Lanes that share devices take turns: with k busy
//! lanes on c < k devices each runs at c/k of its speed (`shared.rs`).
//!
//! A message to the lane itself takes no time. A bucket of gradients is complete in the middle of
//! the backward pass that completes it, at its kernel's place among the pass's kernels; calls of a
//! group of ranks follow each other, each begins when all ranks have come and takes its
//! [`crate::cost::collective::price`], beside what the processors do.
//!
//! Codecs are work. Of what goes from stage to stage the sender encodes before and the receiver decodes
//! after its way. What ranks encode and decode of gradients is done beside their passes where a node
//! has two devices for each rank; else it takes its share of the passes' device: a pass that runs
//! meanwhile gets half of it and takes so much longer (`own_work.rs`). What is left when the lane
//! waits for the sums costs nothing more: it is in their price.
//!
//! [`simulate`] is the truth for plans. [`estimate`] does the same for a schedule alone, without
//! programs, for searches and for schedules that no plan can hold; [`simulate_chain`] is the whole
//! timeline of a plan that is a chain, without its instructions.
//!
//! Where receivers copy (processes of one machine), a message is there after the link's latency,
//! and the receiver is busy with its bytes from when it comes for it.
//!
//! What a tensor group sums within a pass is in the pass's time, as the price of a call, and the ranks of a
//! group are simulated as copies of a lane, as replicas are.
//!
//! Linear in instructions without sharing. Known limit: links are not shared between messages.
//!
//! ```
//! use pipewright_core::cost::Cluster;
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::plan::{Draft, Model};
//! use pipewright_core::simulate::{Copies, simulate};
//!
//! let cuts = vec![5, 10, 14];
//! let draft = Draft::new(Model::Preset(Preset::Vgg16), Cluster::preset("dgx-a100")?, cuts);
//! let (plan, predicted) = draft.plan()?;
//! let timeline =
//!     simulate(&predicted.programs, &predicted.stages, &plan.cluster, Copies::default())?;
//! assert_eq!(timeline, predicted.timeline);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod actions;
mod chain;
mod estimate;
mod footprint;
mod machine;
mod meeting;
mod own_work;
mod ready;
mod reduce;
mod shared;

pub use actions::{Hop, Sends};
pub use chain::simulate_chain;
pub use estimate::{Estimate, LaneEstimate, estimate, lanes_over_time};
pub use footprint::Footprint;
pub use machine::{Stuck, Waiting};

use crate::cost::{Cluster, Costs};
use crate::graph::autodiff::{Computation, ComputationKind, Part, TrainingGraph};
use crate::ids::LaneId;
use crate::order::sort_by_numbers;
use crate::plan::{DataParallel, Mesh, Program};
use crate::schedule::ActionKind;
use crate::timeline::{Aside, Timeline};
use crate::units::Nanos;
use machine::Machine;

/// Times of one stage for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCost {
    /// Forward pass.
    pub forward: Nanos,
    /// Input-gradient part of the backward pass.
    pub backward_input: Nanos,
    /// Weight-gradient part.
    pub backward_weight: Nanos,
    /// Optimizer update, once a step.
    pub update: Nanos,
}

impl StageCost {
    /// Sums the costs of a stage's computations, repetitions included, by the pass that they run in.
    pub fn new(graph: &TrainingGraph, costs: &Costs) -> Self {
        Self::of_each(graph, costs, Costs::time)
    }

    /// What of its passes the tensor group exchanges.
    pub fn exchanged(graph: &TrainingGraph, costs: &Costs) -> Self {
        Self { update: Nanos::ZERO, ..Self::of_each(graph, costs, Costs::exchange) }
    }

    fn of_each(
        graph: &TrainingGraph,
        costs: &Costs,
        time: fn(&Costs, &Computation) -> Nanos,
    ) -> Self {
        let mut total = Self::default();
        for (at, computation) in (0..).zip(&graph.computations) {
            let part = match graph.part(at) {
                Part::Forward => &mut total.forward,
                Part::InputGradient => &mut total.backward_input,
                Part::WeightGradient => &mut total.backward_weight,
            };
            *part += time(costs, computation);
            if computation.kind == ComputationKind::WeightGradient {
                let cost = costs.node(computation.node);
                total.update += cost.update;
                if computation.reduces {
                    total.update += cost.tensor_sum;
                }
            }
        }
        total
    }

    /// The whole backward pass.
    pub fn backward(&self) -> Nanos {
        self.backward_input + self.backward_weight
    }

    /// The time of an action.
    pub fn of(&self, kind: ActionKind) -> Nanos {
        match kind {
            ActionKind::Forward => self.forward,
            ActionKind::Backward => self.backward(),
            ActionKind::BackwardInput => self.backward_input,
            ActionKind::BackwardWeight => self.backward_weight,
        }
    }
}

/// Copies of the pipeline and what they do together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copies<'a> {
    /// How many there are, and how they keep the same parameters.
    pub data_parallel: DataParallel,
    /// Ranks that sum gradients together, see [`crate::plan::groups`].
    pub groups: &'a [Vec<LaneId>],
    /// Whether encoded gradients travel between hosts only.
    pub by_hosts: bool,
}

impl Copies<'_> {
    /// Who executes the programs: replicas, each of tensor groups.
    fn mesh(&self, programs: &[Program]) -> Mesh {
        let tensor = programs.first().map_or(1, |program| program.tensor.degree);
        self.data_parallel.mesh(tensor)
    }
}

/// Predicts one training step. Where every rank has a device of its own, replicas do the same at
/// the same moments and the timeline shows the first; else it shows all ranks.
///
/// # Errors
/// When programs wait for each other: every lane that cannot go on, and for what.
pub fn simulate(
    programs: &[Program],
    stages: &[StageCost],
    cluster: &Cluster,
    copies: Copies,
) -> Result<Timeline, Stuck> {
    let all = copies.mesh(programs).copies();
    if have_own_devices(cluster, programs.len() as u32 * all) {
        Machine::new(programs, stages, cluster, copies, 1).run()
    } else {
        shared::run(Machine::new(programs, stages, cluster, copies, all), cluster)
    }
}

/// Whether each of so many ranks has a device of its own.
fn have_own_devices(cluster: &Cluster, ranks: u32) -> bool {
    let mut ranks_on = std::collections::BTreeMap::<u32, u32>::new();
    for rank in 0..ranks {
        *ranks_on.entry(cluster.node_of(LaneId(rank))).or_default() += 1;
    }
    ranks_on.values().all(|ranks| *ranks <= cluster.devices_per_node)
}

/// What a lane did besides its work, ascending in its start.
fn in_order(asides: &mut Vec<Aside>) {
    sort_by_numbers(asides, |aside| [aside.start.0, 0]);
}

/// The step that follows when each lane's work takes these times, in the order of its program: those
/// of a timeline give that timeline again, and what a measured one adds to it can be asked one piece
/// of work at a time. Nobody shares a device: times as they passed have that in them.
///
/// `times` has the lanes of one replica or of all, as timelines have; work without a time takes none.
///
/// # Errors
/// When programs wait for each other.
///
/// # Panics
/// When `times` has other lanes: a mistake of the caller.
pub fn replay(
    programs: &[Program],
    times: &[Vec<Nanos>],
    cluster: &Cluster,
    copies: Copies,
) -> Result<Timeline, Stuck> {
    let replicas = times.len() / programs.len().max(1);
    assert!(replicas > 0 && times.len() == programs.len() * replicas, "lanes of whole replicas");
    Machine::new(programs, &[], cluster, copies, replicas as u32).with(times).run()
}
