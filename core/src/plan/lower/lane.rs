//! The instructions of one lane.

use super::emit::Emit;
use super::groups::holders;
use super::place::{Sizes, place};
use super::stage::Places;
use super::versions::{Uses, uses};
use super::{Edge, Edges, Inputs};
use crate::graph::autodiff::{Port, TrainingGraph};
use crate::ids::{LaneId, NodeId, StageId};
use crate::plan::{
    Area, Instruction, ParamPlace, Pool, Program, Region, StageProgram, TensorGroup, Tie, Versions,
};
use crate::schedule::{Action, ActionKind, Updates};
use crate::units::Bytes;
use std::collections::VecDeque;

/// What a stage of the lane needs while instructions are emitted.
pub(super) struct LaneStage<'a> {
    pub id: StageId,
    pub graph: &'a TrainingGraph,
    pub places: Places,
    pub program: StageProgram,
    /// First handle of the stage's sends: slots first, then outbox entries.
    handles: u32,
    pub edges: PortEdges,
    /// What each of its actions does with the versions of the parameters.
    pub uses: Uses,
    /// Where what it sends is encoded, by handle from [`Stage::handles`] on; empty: nothing is.
    pub wires: Vec<Region>,
    /// Where what it receives lies until it is decoded.
    pub received: Bytes,
}

/// Numbers of the edges behind a stage's ports, in the order of the ports.
pub(super) struct PortEdges {
    pub receives: Vec<u32>,
    pub sends: Vec<u32>,
    pub gradient_receives: Vec<u32>,
    pub gradient_sends: Vec<u32>,
}

impl PortEdges {
    fn new(graph: &TrainingGraph, stage: StageId, edges: &Edges) -> Self {
        let number = |port: &Port, incoming: bool, gradient: bool| {
            let (from, to) = if incoming { (port.peer, stage) } else { (stage, port.peer) };
            let gradient_of_use = gradient.then_some(port.use_index);
            edges.number(Edge { from, to, node: port.node, gradient_of_use })
        };
        let all = |ports: &[Port], incoming, gradient| {
            ports.iter().map(|port| number(port, incoming, gradient)).collect()
        };
        Self {
            receives: all(&graph.receives, true, false),
            sends: all(&graph.sends, false, false),
            gradient_receives: all(&graph.gradient_receives, true, true),
            gradient_sends: all(&graph.gradient_sends, false, true),
        }
    }
}

impl LaneStage<'_> {
    /// First handle of a slot's ports.
    pub fn slot_handles(&self, slot: u32) -> u32 {
        self.handles + slot * self.slot_ports()
    }

    pub fn slot_ports(&self) -> u32 {
        (self.graph.sends.len() + self.graph.gradient_sends.len()) as u32
    }

    pub fn handle_count(&self) -> u32 {
        self.slot_ports() * self.program.slots.count
            + self.graph.gradient_sends.len() as u32 * self.program.outbox.count
    }

    /// The handle of port `port`; gradients that lie in the slot follow the activations.
    pub fn handle(&self, area: Area, port: u32, slot: u32, outbox: u32) -> u32 {
        match area {
            Area::Outbox => {
                let outboxes = self.handles + self.slot_ports() * self.program.slots.count;
                outboxes + outbox * self.graph.gradient_sends.len() as u32 + port
            }
            Area::Slot | Area::Transient => self.handles + slot * self.slot_ports() + port,
        }
    }

    /// Where what is sent under a handle is encoded.
    pub fn wire(&self, handle: u32) -> Option<Region> {
        self.wires.get((handle - self.handles) as usize).copied()
    }
}

/// A lane with everything at its place, before instructions are emitted.
struct Layout<'a> {
    lane: LaneId,
    tensor: TensorGroup,
    stages: Vec<LaneStage<'a>>,
    /// The slot of every action.
    slots: Vec<u32>,
    sizes: Sizes,
    handles: u32,
    collectives: u32,
    ties: Vec<Tie>,
}

impl<'a> Layout<'a> {
    fn new(inputs: &Inputs, graphs: &'a [TrainingGraph], edges: &Edges, lane: LaneId) -> Self {
        let (slots, counts) = assign_slots(inputs, edges, lane);
        let stages = inputs.schedule.stages_of(lane).into_iter();
        let mut stages: Vec<LaneStage> = stages
            .map(|id| {
                let (slots, outbox) = (counts[id.index()], edges.outboxes.of(lane, id));
                stage_program(inputs, &graphs[id.index()], edges, lane, id, slots, outbox)
            })
            .collect();
        let sizes = place(inputs, &edges.groups, lane, &mut stages);
        let handles = stages.iter_mut().fold(0, |next, stage| {
            stage.handles = next;
            next + stage.handle_count()
        });
        let mut collectives = 0;
        for bucket in stages.iter_mut().flat_map(|stage| &mut stage.program.buckets) {
            bucket.slot = collectives;
            collectives += 1;
        }
        let ties = ties(edges, &stages);
        let tensor = edges.groups.tensor(inputs, lane);
        Self { lane, tensor, stages, slots, sizes, handles, collectives, ties }
    }

    fn emit(
        &self,
        inputs: &Inputs,
        edges: &Edges,
        actions: impl Iterator<Item = (Action, u32)>,
        train: bool,
    ) -> Vec<Instruction> {
        let emit = Emit::new(inputs, self.lane, &self.stages, self.handles, edges);
        emit.all(actions, train, self.ties.len() as u32)
    }

    /// The program, still without instructions.
    fn program(self, inputs: &Inputs) -> Program {
        let Sizes { arena, persistent, exchange } = self.sizes;
        let m = inputs.schedule.micro_batches;
        let updates = if inputs.schedule.updates == Updates::Stashed { m } else { 1 };
        let all = inputs.samples * u64::from(m) * u64::from(inputs.data_parallel.replicas);
        Program {
            lane: self.lane,
            tensor: self.tensor,
            stages: self.stages.into_iter().map(|s| s.program).collect(),
            train: vec![],
            arena,
            persistent,
            exchange,
            // One more for scattered samples, one more for ties and broadcasts.
            handles: self.handles + 1,
            collectives: self.collectives + 1,
            ties: self.ties,
            batch: all / u64::from(updates),
            updates,
        }
    }
}

/// Lowers one lane.
pub(super) fn lower_lane(
    inputs: &Inputs,
    graphs: &[TrainingGraph],
    edges: &Edges,
    lane: LaneId,
) -> Program {
    let layout = Layout::new(inputs, graphs, edges, lane);
    let actions = inputs.schedule.lanes[lane.index()].iter().copied();
    let actions = actions.zip(layout.slots.iter().copied());
    let train = layout.emit(inputs, edges, actions, true);
    Program { train, ..layout.program(inputs) }
}

/// The same without instructions.
pub(super) fn lay_out_lane(
    inputs: &Inputs,
    graphs: &[TrainingGraph],
    edges: &Edges,
    lane: LaneId,
) -> Program {
    Layout::new(inputs, graphs, edges, lane).program(inputs)
}

/// The instructions of an evaluation on one lane: the first micro-batches through every stage, slots
/// in turn.
pub(super) fn evaluate_lane(
    inputs: &Inputs,
    graphs: &[TrainingGraph],
    edges: &Edges,
    lane: LaneId,
    micro_batches: u32,
) -> Vec<Instruction> {
    let layout = Layout::new(inputs, graphs, edges, lane);
    let pass = |i: u32| {
        layout.stages.iter().filter_map(move |stage| {
            let action = Action::new(stage.id.0, ActionKind::Forward, i);
            let here = inputs.schedule.lane_of(stage.id, action.micro_batch) == lane;
            here.then(|| (action, i % stage.program.slots.count))
        })
    };
    let actions = (0..micro_batches.min(inputs.schedule.micro_batches)).flat_map(pass);
    layout.emit(inputs, edges, actions, false)
}

/// The gradients of one parameter on this lane, and who else has some.
fn ties(edges: &Edges, stages: &[LaneStage]) -> Vec<Tie> {
    let places = || stages.iter().flat_map(|stage| &stage.program.params);
    let tie = |tied: &super::groups::Tied| {
        let here = tied.params.iter().filter_map(|id| places().find(|p| p.param == *id));
        let gradients: Vec<Region> = here.filter_map(|place| place.gradient).collect();
        (!gradients.is_empty()).then_some(Tie { gradients, group: tied.group })
    };
    edges.groups.ties.iter().filter_map(tie).collect()
}

/// The slot of every action, and how many each stage needs: at its forward the one that has been
/// free for longest, if there are more than the stage's spare ones; free again after its last
/// backward part.
fn assign_slots(inputs: &Inputs, edges: &Edges, lane: LaneId) -> (Vec<u32>, Vec<u32>) {
    let stages = inputs.schedule.stages() as usize;
    let mut free: Vec<VecDeque<u32>> = vec![VecDeque::new(); stages];
    let mut counts = vec![0; stages];
    // Slot of a micro-batch, by stage; only this lane's stages get a table.
    let mut held: Vec<Vec<u32>> = vec![vec![]; stages];
    let actions = &inputs.schedule.lanes[lane.index()];
    let mut slots = Vec::with_capacity(actions.len());
    for action in actions {
        let stage = action.stage.index();
        if held[stage].is_empty() {
            held[stage].resize(inputs.schedule.micro_batches as usize, 0);
        }
        let held = &mut held[stage][action.micro_batch.index()];
        if action.kind == ActionKind::Forward {
            let spare = edges.outboxes.spare_slots(lane, action.stage) as usize;
            let reused = (free[stage].len() > spare).then(|| free[stage].pop_front()).flatten();
            *held = reused.unwrap_or_else(|| {
                counts[stage] += 1;
                counts[stage] - 1
            });
        }
        if matches!(action.kind, ActionKind::Backward | ActionKind::BackwardWeight) {
            free[stage].push_back(*held);
        }
        slots.push(*held);
    }
    (slots, counts)
}

fn stage_program<'a>(
    inputs: &Inputs,
    graph: &'a TrainingGraph,
    edges: &Edges,
    lane: LaneId,
    id: StageId,
    slots: u32,
    outbox: u32,
) -> LaneStage<'a> {
    let places = Places::new(inputs, graph);
    let nodes = inputs.stage_nodes(id).map(|n| inputs.graph.node(NodeId(n)));
    let params: Vec<_> = nodes.flat_map(|n| n.params.iter().copied()).collect();
    let first_param = params.first().map_or(0, |p| p.0);
    let place =
        |param| ParamPlace { param, weight: Region::default(), gradient: None, state: [None; 2] };
    let outbox = if places.outbox == Bytes::ZERO { 0 } else { outbox };
    let actions = &inputs.schedule.lanes[lane.index()];
    let updates = inputs.schedule.updates;
    let (uses, count) = uses(actions, id, updates);
    let rotate = updates == Updates::DoubleBuffered;
    let program = StageProgram {
        stage: id,
        params: params.into_iter().map(place).collect(),
        kernels: places.kernels(inputs, graph, first_param),
        forward_end: graph.forward_end,
        input_gradient_end: graph.input_gradient_end,
        slots: Pool { offset: Bytes::ZERO, bytes: places.slot, count: slots },
        outbox: Pool { offset: Bytes::ZERO, bytes: places.outbox, count: outbox },
        transient: Region { offset: Bytes::ZERO, bytes: places.transient },
        transient_forward: places.transient_forward,
        transient_backward: places.transient_backward,
        loss: graph.loss.map(|value| places.value(value)),
        versions: Versions { count, stride: Bytes::ZERO, rotate },
        windows: Region::default(),
        buckets: vec![],
        first_copy: holders(inputs, id).first() == Some(&lane),
    };
    let edges = PortEdges::new(graph, id, edges);
    LaneStage {
        id,
        graph,
        places,
        program,
        handles: 0,
        edges,
        uses,
        wires: vec![],
        received: Bytes::ZERO,
    }
}
