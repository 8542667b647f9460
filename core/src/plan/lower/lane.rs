//! The instructions of one lane.

use super::stage::Places;
use super::{Edge, Edges, Inputs};
use crate::graph::Op;
use crate::graph::autodiff::{Port, TrainingGraph};
use crate::ids::{LaneId, MicroBatch, NodeId, StageId};
use crate::plan::layout::aligned;
use crate::plan::{
    Area, BatchNorm, Instruction, Operand, ParamPlace, Pool, Program, Region, Source, StageProgram,
};
use crate::schedule::{Action, ActionKind};
use crate::units::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;

/// What a stage of the lane needs while instructions are emitted.
struct Stage<'a> {
    id: StageId,
    graph: &'a TrainingGraph,
    places: Places,
    program: StageProgram,
    /// First handle of the stage's sends: slots first, then outbox entries.
    handles: u32,
    edges: PortEdges,
}

/// Numbers of the edges behind a stage's ports, in the order of the ports.
struct PortEdges {
    receives: Vec<u32>,
    sends: Vec<u32>,
    gradient_receives: Vec<u32>,
    gradient_sends: Vec<u32>,
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

impl Stage<'_> {
    fn slot_ports(&self) -> u32 {
        (self.graph.sends.len() + self.graph.gradient_sends.len()) as u32
    }

    fn handle_count(&self) -> u32 {
        self.slot_ports() * self.program.slots.count
            + self.graph.gradient_sends.len() as u32 * self.program.outbox.count
    }

    /// The handle of port `port`; gradients that lie in the slot follow the activations.
    fn handle(&self, area: Area, port: u32, slot: u32, outbox: u32) -> u32 {
        match area {
            Area::Outbox => {
                let outboxes = self.handles + self.slot_ports() * self.program.slots.count;
                outboxes + outbox * self.graph.gradient_sends.len() as u32 + port
            }
            Area::Slot | Area::Transient => self.handles + slot * self.slot_ports() + port,
        }
    }
}

/// A lane with everything at its place, before instructions are emitted.
struct Layout<'a> {
    stages: Vec<Stage<'a>>,
    /// The slot of every action.
    slots: Vec<u32>,
    arena: Bytes,
    persistent: Bytes,
    handles: u32,
}

impl<'a> Layout<'a> {
    fn new(inputs: &Inputs, graphs: &'a [TrainingGraph], edges: &Edges, lane: LaneId) -> Self {
        let (slots, counts) = assign_slots(inputs, &inputs.schedule.lanes[lane.index()]);
        let mut stages: Vec<Stage> = (0..inputs.schedule.stages())
            .map(StageId)
            .filter(|stage| inputs.schedule.lane_of(*stage, MicroBatch(0)) == lane)
            .map(|id| {
                let pools = (counts[id.index()], edges.outboxes[id.index()]);
                stage_program(inputs, &graphs[id.index()], edges, id, pools)
            })
            .collect();
        let (arena, persistent) = place(inputs, &mut stages);
        let handles = stages.iter_mut().fold(0, |next, stage| {
            stage.handles = next;
            next + stage.handle_count()
        });
        Self { stages, slots, arena, persistent, handles }
    }

    fn emit(
        &self,
        inputs: &Inputs,
        actions: impl Iterator<Item = (Action, u32)>,
        train: bool,
    ) -> Vec<Instruction> {
        let outstanding = vec![false; self.handles as usize];
        let out = Vec::with_capacity(4 * self.slots.len());
        Emit { inputs, stages: &self.stages, outstanding, out }.all(actions, train)
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
    let train = layout.emit(inputs, actions, true);
    let Layout { stages, arena, persistent, handles, .. } = layout;
    let stages = stages.into_iter().map(|s| s.program).collect();
    Program { lane, stages, train, arena, persistent, handles }
}

/// The instructions of an evaluation on one lane: every micro-batch through every stage, slots in
/// turn.
pub(super) fn evaluate_lane(
    inputs: &Inputs,
    graphs: &[TrainingGraph],
    edges: &Edges,
    lane: LaneId,
) -> Vec<Instruction> {
    let layout = Layout::new(inputs, graphs, edges, lane);
    let pass = |i: u32| {
        layout.stages.iter().map(move |stage| {
            let action = Action::new(stage.id.0, ActionKind::Forward, i);
            (action, i % stage.program.slots.count)
        })
    };
    layout.emit(inputs, (0..inputs.schedule.micro_batches).flat_map(pass), false)
}

/// The slot of every action, and how many each stage needs: the lowest free one at its forward,
/// free again after its last backward part.
fn assign_slots(inputs: &Inputs, actions: &[Action]) -> (Vec<u32>, Vec<u32>) {
    let stages = inputs.schedule.stages() as usize;
    let mut free: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); stages];
    let mut counts = vec![0; stages];
    // Slot of a micro-batch, by stage; only this lane's stages get a table.
    let mut held: Vec<Vec<u32>> = vec![vec![]; stages];
    let mut slots = Vec::with_capacity(actions.len());
    for action in actions {
        let stage = action.stage.index();
        if held[stage].is_empty() {
            held[stage].resize(inputs.schedule.micro_batches as usize, 0);
        }
        let held = &mut held[stage][action.micro_batch.index()];
        let slot = match action.kind {
            ActionKind::Forward => {
                let slot = free[stage].pop_first().unwrap_or_else(|| {
                    counts[stage] += 1;
                    counts[stage] - 1
                });
                *held = slot;
                slot
            }
            ActionKind::Backward | ActionKind::BackwardInput | ActionKind::BackwardWeight => *held,
        };
        if matches!(action.kind, ActionKind::Backward | ActionKind::BackwardWeight) {
            free[stage].insert(slot);
        }
        slots.push(slot);
    }
    (slots, counts)
}

fn stage_program<'a>(
    inputs: &Inputs,
    graph: &'a TrainingGraph,
    edges: &Edges,
    id: StageId,
    (slots, outbox): (u32, u32),
) -> Stage<'a> {
    let places = Places::new(graph, inputs.samples);
    let nodes = inputs.stage_nodes(id).map(|n| inputs.graph.node(NodeId(n)));
    let params: Vec<_> = nodes.flat_map(|n| n.params.iter().copied()).collect();
    let first_param = params.first().map_or(0, |p| p.0);
    let place =
        |param| ParamPlace { param, weight: Region::default(), gradient: None, state: [None; 2] };
    let outbox = if places.outbox == Bytes::ZERO { 0 } else { outbox };
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
    };
    Stage { id, graph, places, program, handles: 0, edges: PortEdges::new(graph, id, edges) }
}

/// Gives everything its offset; returns the size of the arena and of its lasting part.
fn place(inputs: &Inputs, stages: &mut [Stage]) -> (Bytes, Bytes) {
    let mut end = Bytes::ZERO;
    let mut take = |bytes: Bytes| {
        let offset = end;
        end += aligned(bytes);
        Region { offset, bytes }
    };
    for stage in stages.iter_mut() {
        for place in &mut stage.program.params {
            let param = inputs.graph.param(place.param);
            let bytes = Bytes(4) * param.elements();
            place.weight = take(bytes);
            place.gradient = param.trainable.then(|| take(bytes));
            let deferred = inputs.training.batch_norm == BatchNorm::Deferred;
            let kept = match param.trainable {
                true => inputs.optimizer.state_tensors(),
                false => usize::from(deferred),
            };
            place.state.iter_mut().take(kept).for_each(|state| *state = Some(take(bytes)));
        }
    }
    let persistent = take(Bytes::ZERO).offset;
    for stage in stages.iter_mut() {
        stage.program.slots.offset = take(stage.program.slots.total()).offset;
        stage.program.outbox.offset = take(stage.program.outbox.total()).offset;
    }
    let transient = stages.iter().map(|s| s.program.transient.bytes).max().unwrap_or_default();
    let shared = take(transient).offset;
    for stage in stages.iter_mut() {
        stage.program.transient.offset = shared;
    }
    (end, persistent)
}

/// Emits the instructions of a lane.
struct Emit<'a> {
    inputs: &'a Inputs<'a>,
    stages: &'a [Stage<'a>],
    /// Handles under which something was sent and not yet waited for.
    outstanding: Vec<bool>,
    out: Vec<Instruction>,
}

impl Emit<'_> {
    fn all(
        mut self,
        actions: impl Iterator<Item = (Action, u32)>,
        train: bool,
    ) -> Vec<Instruction> {
        let mut gradients_done = vec![0; self.stages.len()];
        for (action, slot) in actions {
            let at = self.stages.iter().position(|s| s.id == action.stage).expect("its lane");
            let stage = &self.stages[at];
            match action.kind {
                ActionKind::Forward => self.forward(stage, &action, slot),
                ActionKind::Backward | ActionKind::BackwardInput => {
                    let outbox = gradients_done[at] % stage.program.outbox.count.max(1);
                    gradients_done[at] += 1;
                    self.backward(stage, &action, slot, outbox);
                }
                ActionKind::BackwardWeight => {
                    self.out.push(Instruction::Run { action, slot, outbox: 0 });
                }
            }
        }
        if train {
            if self.inputs.training.clip_norm.is_some() {
                self.out.push(Instruction::ClipGradients);
            }
            // Before the last messages are waited for: the update needs none of them.
            let update = |s: &Stage| Instruction::Optimizer { stage: s.id };
            self.out.extend(self.stages.iter().map(update));
        }
        self.wait(0..self.outstanding.len() as u32);
        self.out
    }

    fn forward(&mut self, stage: &Stage, action: &Action, slot: u32) {
        let ports = stage.slot_ports();
        let first = stage.handles + slot * ports;
        self.wait(first..first + ports);
        for value in &stage.graph.loads {
            let node = stage.graph.values[value.index()].node;
            let source = match self.inputs.graph.node(node).op {
                Op::Target { .. } => Source::Target,
                _ => Source::Input,
            };
            let region = stage.program.region(&stage.places.value(*value), slot, 0);
            let micro_batch = action.micro_batch;
            self.out.push(Instruction::Load { micro_batch, source, region });
        }
        self.receive(stage, action.micro_batch, (slot, 0), false);
        self.out.push(Instruction::Run { action: *action, slot, outbox: 0 });
        self.send(stage, action.micro_batch, (slot, 0), false);
    }

    fn backward(&mut self, stage: &Stage, action: &Action, slot: u32, outbox: u32) {
        let ports = stage.graph.gradient_sends.len() as u32;
        if stage.program.outbox.count > 0 {
            let first = stage.handle(Area::Outbox, 0, slot, outbox);
            self.wait(first..first + ports);
        }
        let at = (slot, outbox);
        self.receive(stage, action.micro_batch, at, true);
        self.out.push(Instruction::Run { action: *action, slot, outbox });
        self.send(stage, action.micro_batch, at, true);
    }

    fn wait(&mut self, handles: Range<u32>) {
        for handle in handles {
            if std::mem::take(&mut self.outstanding[handle as usize]) {
                self.out.push(Instruction::WaitSend { handle });
            }
        }
    }

    /// The tag of `micro_batch` on an edge.
    fn tag(&self, edge: u32, micro_batch: MicroBatch) -> u32 {
        edge * self.inputs.schedule.micro_batches + micro_batch.0
    }

    fn receive(&mut self, stage: &Stage, micro_batch: MicroBatch, at: (u32, u32), gradient: bool) {
        let (ports, edges) = match gradient {
            false => (&stage.graph.receives, &stage.edges.receives),
            true => (&stage.graph.gradient_receives, &stage.edges.gradient_receives),
        };
        for (port, edge) in ports.iter().zip(edges) {
            let operand: Operand = stage.places.value(port.value);
            self.out.push(Instruction::Recv {
                from: self.inputs.schedule.lane_of(port.peer, micro_batch),
                tag: self.tag(*edge, micro_batch),
                region: stage.program.region(&operand, at.0, at.1),
            });
        }
    }

    fn send(&mut self, stage: &Stage, micro_batch: MicroBatch, at: (u32, u32), gradient: bool) {
        let (ports, edges) = match gradient {
            false => (&stage.graph.sends, &stage.edges.sends),
            true => (&stage.graph.gradient_sends, &stage.edges.gradient_sends),
        };
        for ((index, port), edge) in (0..).zip(ports).zip(edges) {
            let operand = stage.places.value(port.value);
            let in_slot = gradient && operand.area == Area::Slot;
            let number = index + if in_slot { stage.graph.sends.len() as u32 } else { 0 };
            let handle = stage.handle(operand.area, number, at.0, at.1);
            self.outstanding[handle as usize] = true;
            self.out.push(Instruction::Send {
                to: self.inputs.schedule.lane_of(port.peer, micro_batch),
                tag: self.tag(*edge, micro_batch),
                region: stage.program.region(&operand, at.0, at.1),
                handle,
                stage: stage.id,
                micro_batch,
                gradient,
            });
        }
    }
}
