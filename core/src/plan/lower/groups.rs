//! Groups of ranks that hold the same parameters and sum their gradients.

use super::Inputs;
use crate::graph::Op;
use crate::ids::{LaneId, NodeId, ParamId, StageId};
use crate::plan::{Mesh, TensorGroup};
use std::collections::BTreeSet;

/// Groups of lanes, each standing for those lanes of all replicas, once for each rank of a tensor group; and the
/// tensor groups behind them, lane by lane.
pub(super) struct Groups {
    /// Each with more than one rank, ascending lanes.
    lanes: Vec<Vec<LaneId>>,
    /// By stage.
    of_stage: Vec<Option<u32>>,
    /// Those that sum gradients of experts: the same lanes of every so many-th replica. Each with more than one rank.
    expert_lanes: Vec<Vec<LaneId>>,
    /// By stage: which of these.
    experts_of_stage: Vec<Option<usize>>,
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
        let mut groups = Self {
            lanes: vec![],
            of_stage: vec![],
            expert_lanes: vec![],
            experts_of_stage: vec![],
            ties: vec![],
        };
        for stage in (0..inputs.schedule.stages()).map(StageId) {
            let group = groups.add(inputs, holders(inputs, stage));
            groups.of_stage.push(group);
            let experts = groups.add_experts(inputs, holders(inputs, stage));
            groups.experts_of_stage.push(experts);
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
        Some(place(&mut self.lanes, lanes) as u32 * mesh.tensor)
    }

    fn add_experts(&mut self, inputs: &Inputs, lanes: BTreeSet<LaneId>) -> Option<usize> {
        let mesh = inputs.mesh();
        if mesh.experts == 1 || lanes.len() as u32 * (mesh.replicas / mesh.experts) == 1 {
            return None;
        }
        Some(place(&mut self.expert_lanes, lanes.into_iter().collect()))
    }

    /// Groups before those of experts.
    fn first_of_experts(&self, mesh: Mesh) -> u32 {
        self.lanes.len() as u32 * mesh.tensor
    }

    /// Groups that sum gradients.
    fn sums(&self, mesh: Mesh) -> u32 {
        self.first_of_experts(mesh) + self.expert_lanes.len() as u32 * mesh.tensor * mesh.experts
    }

    /// The lanes of a group that sums gradients, the first copy of a lane in it, and how far the next is.
    fn copies(&self, mesh: Mesh, group: u32) -> (&[LaneId], u32, u32) {
        let Some(of_experts) = group.checked_sub(self.first_of_experts(mesh)) else {
            let lanes = &self.lanes[(group / mesh.tensor) as usize];
            return (lanes, group % mesh.tensor, mesh.tensor);
        };
        let each = mesh.tensor * mesh.experts;
        // As `Bucket::group_of` counts.
        let (tensor_rank, expert_rank) =
            (of_experts % each / mesh.experts, of_experts % mesh.experts);
        let first = expert_rank * mesh.tensor + tensor_rank;
        (&self.expert_lanes[(of_experts / each) as usize], first, each)
    }

    /// The ranks of a group that sums gradients, ascending.
    pub fn ranks(&self, inputs: &Inputs, group: u32) -> impl Iterator<Item = u32> {
        let mesh = inputs.mesh();
        let (lanes, first, apart) = self.copies(mesh, group);
        let copies = (first..mesh.copies()).step_by(apart as usize);
        lanes.iter().flat_map(move |lane| copies.clone().map(move |copy| mesh.rank(*lane, copy)))
    }

    /// How many ranks a group has, and which of them is the first of `lane`'s.
    pub fn members(&self, inputs: &Inputs, group: u32, lane: LaneId) -> (u32, u32) {
        let mesh = inputs.mesh();
        let (lanes, _, apart) = self.copies(mesh, group);
        let before = lanes.iter().filter(|other| **other < lane).count() as u32;
        let each = mesh.copies() / apart;
        (lanes.len() as u32 * each, before * each)
    }

    /// The tensor groups of a lane.
    pub fn tensor(&self, inputs: &Inputs, lane: LaneId) -> TensorGroup {
        let mesh = inputs.mesh();
        let group = self.sums(mesh) + lane.0 * mesh.replicas;
        TensorGroup { degree: mesh.tensor, group }
    }

    pub fn of_stage(&self, stage: StageId) -> Option<u32> {
        self.of_stage[stage.index()]
    }

    /// The first of those that sum the gradients of a stage's experts, where replicas divide them.
    pub fn experts_of_stage(&self, inputs: &Inputs, stage: StageId) -> Option<u32> {
        let mesh = inputs.mesh();
        let at = self.experts_of_stage[stage.index()]? as u32;
        Some(self.first_of_experts(mesh) + at * mesh.tensor * mesh.experts)
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
    let sums =
        (0..groups.sums(mesh)).map(|group| groups.ranks(inputs, group).map(LaneId).collect());
    let divided =
        if mesh.tensor > 1 { inputs.schedule.lanes.len() as u32 * mesh.replicas } else { 0 };
    let tensor = (0..divided)
        .map(|group| (group * mesh.tensor..(group + 1) * mesh.tensor).map(LaneId).collect());
    sums.chain(tensor).collect()
}

/// Which of the groups has these lanes; a new one where none has.
fn place(groups: &mut Vec<Vec<LaneId>>, lanes: Vec<LaneId>) -> usize {
    groups.iter().position(|other| *other == lanes).unwrap_or_else(|| {
        groups.push(lanes);
        groups.len() - 1
    })
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
