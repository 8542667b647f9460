//! Groups of ranks that hold the same parameters and sum their gradients.

use super::Inputs;
use crate::graph::Op;
use crate::ids::{LaneId, NodeId, ParamId, StageId};
use crate::plan::TensorGroup;
use std::collections::BTreeSet;

/// Groups of lanes, each standing for those lanes of all replicas, once for each rank of a tensor group; and the
/// tensor groups behind them, lane by lane.
pub(super) struct Groups {
    /// Each with more than one rank, ascending lanes.
    lanes: Vec<Vec<LaneId>>,
    /// By stage.
    of_stage: Vec<Option<u32>>,
    pub ties: Vec<Tied>,
}

/// Parameters that are one in the model.
pub(super) struct Tied {
    /// The table, then its copies.
    pub params: Vec<ParamId>,
    /// Their group.
    pub group: Option<u32>,
}

impl Groups {
    pub fn new(inputs: &Inputs) -> Self {
        let mut groups = Self { lanes: vec![], of_stage: vec![], ties: vec![] };
        for stage in (0..inputs.schedule.stages()).map(StageId) {
            let group = groups.add(inputs, holders(inputs, stage));
            groups.of_stage.push(group);
        }
        for params in tied(inputs) {
            let lanes = params.iter().flat_map(|p| holders(inputs, stage_of(inputs, *p)));
            let group = groups.add(inputs, lanes.collect());
            groups.ties.push(Tied { params, group });
        }
        groups
    }

    fn add(&mut self, inputs: &Inputs, lanes: BTreeSet<LaneId>) -> Option<u32> {
        let mesh = inputs.mesh();
        if lanes.len() * mesh.replicas as usize == 1 {
            return None;
        }
        let lanes: Vec<LaneId> = lanes.into_iter().collect();
        let known = self.lanes.iter().position(|other| *other == lanes);
        Some(
            known.unwrap_or_else(|| {
                self.lanes.push(lanes);
                self.lanes.len() - 1
            }) as u32
                * mesh.tensor,
        )
    }

    /// The ranks of a group that sums gradients, ascending.
    pub fn ranks(&self, inputs: &Inputs, group: u32) -> impl Iterator<Item = u32> {
        let mesh = inputs.mesh();
        let copies = (group % mesh.tensor..mesh.copies()).step_by(mesh.tensor as usize);
        self.lanes[(group / mesh.tensor) as usize]
            .iter()
            .flat_map(move |lane| copies.clone().map(move |copy| mesh.rank(*lane, copy)))
    }

    /// How many ranks a group has, and which of them is the first of `lane`'s.
    pub fn members(&self, inputs: &Inputs, group: u32, lane: LaneId) -> (u32, u32) {
        let mesh = inputs.mesh();
        let lanes = &self.lanes[(group / mesh.tensor) as usize];
        let before = lanes.iter().filter(|other| **other < lane).count() as u32;
        (lanes.len() as u32 * mesh.replicas, before * mesh.replicas)
    }

    /// The tensor groups of a lane.
    pub fn tensor(&self, inputs: &Inputs, lane: LaneId) -> TensorGroup {
        let mesh = inputs.mesh();
        let group = self.lanes.len() as u32 * mesh.tensor + lane.0 * mesh.replicas;
        TensorGroup { degree: mesh.tensor, group }
    }

    pub fn of_stage(&self, stage: StageId) -> Option<u32> {
        self.of_stage[stage.index()]
    }

    /// Whether a parameter is summed by a tie and not with its stage.
    pub fn is_tied(&self, param: ParamId) -> bool {
        self.ties.iter().any(|tie| tie.params.contains(&param))
    }
}

/// The ranks of each group, ascending, so one of the first replica first; groups by the number that
/// programs name: see [`TensorGroup`].
pub fn groups(inputs: &Inputs) -> Vec<Vec<LaneId>> {
    let (groups, mesh) = (Groups::new(inputs), inputs.mesh());
    let sums = (0..groups.lanes.len() as u32 * mesh.tensor)
        .map(|group| groups.ranks(inputs, group).map(LaneId).collect());
    let divided =
        if mesh.tensor > 1 { inputs.schedule.lanes.len() as u32 * mesh.replicas } else { 0 };
    let tensor = (0..divided)
        .map(|group| (group * mesh.tensor..(group + 1) * mesh.tensor).map(LaneId).collect());
    sums.chain(tensor).collect()
}

/// The lanes that hold a stage.
pub(super) fn holders(inputs: &Inputs, stage: StageId) -> BTreeSet<LaneId> {
    inputs.schedule.routes.iter().map(|route| route[stage.index()]).collect()
}

/// Tables with copies of theirs.
fn tied(inputs: &Inputs) -> Vec<Vec<ParamId>> {
    let mut ties: Vec<Vec<ParamId>> = vec![];
    for node in inputs.graph.nodes() {
        let Op::TiedLinear { weight, .. } = node.op else { continue };
        match ties.iter_mut().find(|tie| tie[0] == weight) {
            Some(tie) => tie.extend(&node.params),
            None => ties.push([&[weight], &node.params[..]].concat()),
        }
    }
    ties
}

fn stage_of(inputs: &Inputs, param: ParamId) -> StageId {
    let owner = inputs.graph.nodes().iter().position(|node| node.params.contains(&param));
    let owner = NodeId(owner.expect("every parameter belongs to a node") as u32);
    StageId(inputs.cuts.partition_point(|cut| *cut <= owner.0) as u32)
}
