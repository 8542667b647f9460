//! The plan becomes one program per rank.
//!
//! 1. each stage gets its training graph, and its values their places (`stage.rs`);
//! 2. each lane's actions become instructions: what to receive before, to send after, which slot
//!    and outbox entry to use (`lane.rs`);
//! 3. pools get their counts, and everything its offset in the arena.

mod emit;
mod exchange;
mod fused;
mod groups;
mod in_place;
mod lane;
mod packed;
mod place;
mod stage;
mod versions;
mod windows;
mod wires;

pub(super) use fused::held;
pub use groups::groups;
pub(super) use in_place::InPlace;
pub(super) use packed::stored;
pub(crate) use stage::{AreaBytes, area_bytes};
pub(super) use stage::{in_place, working_bytes};

use super::{Area, Communication, DataParallel, Instruction, Optimizer, Program, Training};
use crate::cost::{Cluster, Halves};
use crate::graph::Graph;
use crate::graph::autodiff::{self, BackwardStyle, TrainingGraph};
use crate::ids::{LaneId, NodeId, StageId, ValueId};
use crate::schedule::{Hands, Schedule};
use crate::units::Bytes;

/// Everything that lowering needs; all of it was checked.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The model.
    pub graph: &'a Graph,
    /// First nodes of the stages after the first.
    pub cuts: &'a [u32],
    /// Who does what when.
    pub schedule: &'a Schedule,
    /// Samples of one micro-batch.
    pub samples: u64,
    /// Copies of the pipeline.
    pub data_parallel: DataParallel,
    /// How what ranks send each other is encoded.
    pub communication: &'a Communication,
    /// Which ranks share a node.
    pub cluster: &'a Cluster,
    /// How parameters change: what is kept for each.
    pub optimizer: Optimizer,
    /// How training goes: what else is kept or done.
    pub training: Training,
    /// How the devices compute with what is stored in two bytes.
    pub halves: Halves,
}

impl Inputs<'_> {
    /// The nodes of a stage.
    fn stage_nodes(&self, stage: StageId) -> std::ops::Range<u32> {
        let end = self.graph.nodes().len() as u32;
        let start = stage.index().checked_sub(1).map_or(0, |before| self.cuts[before]);
        start..self.cuts.get(stage.index()).copied().unwrap_or(end)
    }
}

/// The training graphs of all stages, in order: what costs and memory follow from.
pub fn training_graphs(inputs: &Inputs) -> Vec<TrainingGraph> {
    let division = inputs.graph.division(inputs.cuts);
    let style = match inputs.schedule.splits_backward() {
        true => BackwardStyle::Split,
        false => BackwardStyle::Fused,
    };
    autodiff::training_graphs(inputs.graph, &division, style)
}

/// Lowers the training graphs of `inputs` to one program per lane. Linear in actions, quadratic
/// in the values of a stage.
pub fn lower(inputs: &Inputs, graphs: &[TrainingGraph]) -> Vec<Program> {
    let edges = Edges::new(inputs, graphs);
    let lanes = inputs.schedule.lanes.len() as u32;
    (0..lanes).map(|lane| lane::lower_lane(inputs, graphs, &edges, LaneId(lane))).collect()
}

/// The programs without their instructions: where everything lies, and how large the arenas are.
pub fn lay_out(inputs: &Inputs, graphs: &[TrainingGraph]) -> Vec<Program> {
    let edges = Edges::new(inputs, graphs);
    let lanes = inputs.schedule.lanes.len() as u32;
    (0..lanes).map(|lane| lane::lay_out_lane(inputs, graphs, &edges, LaneId(lane))).collect()
}

/// Bytes of a value of a stage, as it is kept and sent.
pub(crate) fn value_bytes(inputs: &Inputs, graph: &TrainingGraph, value: ValueId) -> Bytes {
    stored(inputs, &graph.values[value.index()])
}

/// The instructions of an evaluation on each lane: forward passes of the first `micro_batches` of a
/// mini-batch, in the arenas that [`lower`] laid out. Apart from training's, because only the runner needs them.
pub fn lower_evaluation(
    inputs: &Inputs,
    graphs: &[TrainingGraph],
    micro_batches: u32,
) -> Vec<Vec<Instruction>> {
    let edges = Edges::new(inputs, graphs);
    let lanes = inputs.schedule.lanes.len() as u32;
    (0..lanes)
        .map(|lane| lane::evaluate_lane(inputs, graphs, &edges, LaneId(lane), micro_batches))
        .collect()
}

/// Every way on which messages travel, numbered: the tag of micro-batch i on edge e is
/// `e x micro-batches + i`, unique in the step.
struct Edges {
    sorted: Vec<Edge>,
    /// By lane and stage: outbox entries.
    outboxes: crate::schedule::Outboxes,
    groups: groups::Groups,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    from: StageId,
    to: StageId,
    node: NodeId,
    /// Which reader's contribution; `None` for an activation.
    gradient_of_use: Option<u32>,
}

impl Edges {
    fn new(inputs: &Inputs, graphs: &[TrainingGraph]) -> Self {
        let division = inputs.graph.division(inputs.cuts);
        let forward = division.crossings.iter().map(|c| Edge {
            from: c.from,
            to: c.to,
            node: c.node,
            gradient_of_use: None,
        });
        let mut edges: Vec<Edge> = forward.collect();
        for (from, graph) in (0..).map(StageId).zip(graphs) {
            for port in &graph.gradient_sends {
                let gradient_of_use = Some(port.use_index);
                edges.push(Edge { from, to: port.peer, node: port.node, gradient_of_use });
            }
        }
        edges.sort_unstable();
        let hands: Vec<Hands> = graphs.iter().map(hands).collect();
        let outboxes = inputs.schedule.outboxes_to(&hands);
        Self { sorted: edges, outboxes, groups: groups::Groups::new(inputs) }
    }

    fn number(&self, edge: Edge) -> u32 {
        self.sorted.binary_search(&edge).expect("both ends derive the same edges") as u32
    }
}

/// What a stage hands to earlier ones, and whether it lies in slots: see `stage.rs`.
fn hands(graph: &TrainingGraph) -> Hands {
    let areas = stage::areas(graph);
    let sent = || graph.gradient_sends.iter();
    Hands {
        receivers: sent().map(|port| port.peer).collect(),
        from_slot: sent().any(|port| areas[port.value.index()] == Area::Slot),
    }
}
