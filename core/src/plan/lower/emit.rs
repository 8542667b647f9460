//! Instructions: what to receive before an action, what to send and to sum after it.

use super::lane::LaneStage;
use super::wires::{codec_between, wire_bytes};
use super::{Edges, Inputs};
use crate::ids::{LaneId, MicroBatch};
use crate::plan::{Area, Encoded, Instruction, Operand, Region, Source};
use crate::schedule::{Action, ActionKind, Updates};
use crate::units::Bytes;
use std::ops::Range;

/// Emits the instructions of a lane.
pub(super) struct Emit<'a> {
    inputs: &'a Inputs<'a>,
    lane: LaneId,
    stages: &'a [LaneStage<'a>],
    /// The stage whose sums of a pass may be under way where others' gradients will lie.
    summing: Option<usize>,
    /// Handles under which something was sent and not yet waited for.
    outstanding: Vec<bool>,
    /// Edges on which messages travel: their tags come first.
    edges: u32,
    out: Vec<Instruction>,
}

impl<'a> Emit<'a> {
    pub fn new(
        inputs: &'a Inputs,
        lane: LaneId,
        stages: &'a [LaneStage],
        handles: u32,
        edges: &Edges,
    ) -> Self {
        let (outstanding, edges) = (vec![false; handles as usize], edges.sorted.len() as u32);
        Self { inputs, lane, stages, summing: None, outstanding, edges, out: vec![] }
    }

    pub fn all(
        mut self,
        actions: impl Iterator<Item = (Action, u32)>,
        train: bool,
        ties: u32,
    ) -> Vec<Instruction> {
        if self.inputs.data_parallel.through_first() {
            let broadcast = |s: &LaneStage| Instruction::Broadcast { stage: s.id };
            self.out.extend(self.stages.iter().map(broadcast));
        }
        let mut done = vec![0; self.stages.len()];
        let mut gradients_done = vec![0; self.stages.len()];
        for (action, slot) in actions {
            let at = self.stages.iter().position(|s| s.id == action.stage).expect("its lane");
            let stage = &self.stages[at];
            // An evaluation takes the newest version.
            let used = if train { stage.uses.of(done[at]) } else { Default::default() };
            done[at] += 1;
            let ends = matches!(action.kind, ActionKind::Backward | ActionKind::BackwardWeight);
            let all_done = done[at] == stage.uses.len();
            let shares = ends && stage.program.divides_gradients();
            let reduces = ends && (shares || used.update.is_some() || all_done);
            if let Some(before) = shares.then(|| self.summing.replace(at)).flatten() {
                self.wait_reduce(&self.stages[before]);
            }
            let version = used.version;
            let mut run = Instruction::Run { action, slot, outbox: 0, version, reduces };
            match action.kind {
                ActionKind::Forward => self.forward(stage, &action, slot, run, train),
                ActionKind::Backward | ActionKind::BackwardInput => {
                    let entry = gradients_done[at] % stage.program.outbox.count.max(1);
                    gradients_done[at] += 1;
                    if let Instruction::Run { outbox, .. } = &mut run {
                        *outbox = entry;
                    }
                    self.backward(stage, &action, slot, entry, run);
                }
                ActionKind::BackwardWeight => self.out.push(run),
            }
            if let Some((from, to, index)) = used.update {
                self.wait_reduce(stage);
                self.summing = self.summing.filter(|summing| *summing != at);
                self.out.push(Instruction::Optimizer { stage: stage.id, from, to, index });
            }
        }
        if train && self.inputs.schedule.updates != Updates::Stashed {
            self.update(ties);
        }
        self.wait(0..self.outstanding.len() as u32);
        self.out
    }

    /// Everything between the last backward pass and the next step. Before the last messages are
    /// waited for: the update needs none of them.
    fn update(&mut self, ties: u32) {
        let stages = self.stages;
        stages.iter().for_each(|stage| self.wait_reduce(stage));
        self.out.extend((0..ties).map(|index| Instruction::Tie { index }));
        if self.inputs.training.judges_gradients() {
            self.out.push(Instruction::CheckGradients);
        }
        let to = u32::from(self.inputs.schedule.updates == Updates::DoubleBuffered);
        let update = |s: &LaneStage| Instruction::Optimizer { stage: s.id, from: 0, to, index: 0 };
        self.out.extend(stages.iter().map(update));
    }

    fn wait_reduce(&mut self, stage: &LaneStage) {
        if !stage.program.buckets.is_empty() {
            self.out.push(Instruction::WaitReduce { stage: stage.id });
        }
    }

    fn forward(
        &mut self,
        stage: &LaneStage,
        action: &Action,
        slot: u32,
        run: Instruction,
        train: bool,
    ) {
        let first = stage.slot_handles(slot);
        self.wait(first..first + stage.slot_ports());
        for value in &stage.graph.loads {
            let node = stage.graph.values[value.index()].node;
            let source = match self.inputs.graph.node(node).op.is_target() {
                true => Source::Target,
                false => Source::Input,
            };
            let region = stage.program.region(&stage.places.value(*value), slot, 0);
            let load = self.load(stage, action.micro_batch, (source, region), train);
            self.out.push(load);
        }
        self.receive(stage, action.micro_batch, slot, 0, false);
        self.out.push(run);
        self.send(stage, action.micro_batch, slot, 0, false);
    }

    fn load(
        &self,
        stage: &LaneStage,
        micro_batch: MicroBatch,
        (source, region): (Source, Region),
        train: bool,
    ) -> Instruction {
        if !train || !self.inputs.data_parallel.through_first() {
            return Instruction::Load { micro_batch, source, region };
        }
        let staging = Region { offset: stage.program.transient.offset, bytes: region.bytes };
        let m = self.inputs.schedule.micro_batches;
        let edge = self.edges + u32::from(source == Source::Target);
        let tag = edge * m + micro_batch.0;
        let handle = self.outstanding.len() as u32;
        Instruction::Scatter { micro_batch, source, region, staging, tag, handle }
    }

    fn backward(
        &mut self,
        stage: &LaneStage,
        action: &Action,
        slot: u32,
        outbox: u32,
        run: Instruction,
    ) {
        let ports = stage.graph.gradient_sends.len() as u32;
        if stage.program.outbox.count > 0 {
            let first = stage.handle(Area::Outbox, 0, slot, outbox);
            self.wait(first..first + ports);
        }
        self.receive(stage, action.micro_batch, slot, outbox, true);
        self.out.push(run);
        self.send(stage, action.micro_batch, slot, outbox, true);
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

    /// What travels between this lane and `peer` in place of `values`: the bytes at `wire` where
    /// they are encoded.
    fn travels(&self, peer: LaneId, values: Region, wire: Bytes) -> (Region, Option<Encoded>) {
        let codec = codec_between(self.inputs, self.lane, peer);
        if codec.is_lossless() {
            return (values, None);
        }
        let region = Region { offset: wire, bytes: wire_bytes(codec, values.bytes) };
        (region, Some(Encoded { codec, values }))
    }

    fn receive(
        &mut self,
        stage: &LaneStage,
        micro_batch: MicroBatch,
        slot: u32,
        outbox: u32,
        gradient: bool,
    ) {
        let (ports, edges) = match gradient {
            false => (&stage.graph.receives, &stage.edges.receives),
            true => (&stage.graph.gradient_receives, &stage.edges.gradient_receives),
        };
        for (port, edge) in ports.iter().zip(edges) {
            let operand: Operand = stage.places.value(port.value);
            let from = self.inputs.schedule.lane_of(port.peer, micro_batch);
            let values = stage.program.region(&operand, slot, outbox);
            let (region, decode) = self.travels(from, values, stage.received);
            let tag = self.tag(*edge, micro_batch);
            self.out.push(Instruction::Recv { from, tag, region, decode });
        }
    }

    fn send(
        &mut self,
        stage: &LaneStage,
        micro_batch: MicroBatch,
        slot: u32,
        outbox: u32,
        gradient: bool,
    ) {
        let (ports, edges) = match gradient {
            false => (&stage.graph.sends, &stage.edges.sends),
            true => (&stage.graph.gradient_sends, &stage.edges.gradient_sends),
        };
        for ((index, port), edge) in (0..).zip(ports).zip(edges) {
            let operand = stage.places.value(port.value);
            let in_slot = gradient && operand.area == Area::Slot;
            let number = index + if in_slot { stage.graph.sends.len() as u32 } else { 0 };
            let handle = stage.handle(operand.area, number, slot, outbox);
            self.outstanding[handle as usize] = true;
            let to = self.inputs.schedule.lane_of(port.peer, micro_batch);
            let values = stage.program.region(&operand, slot, outbox);
            let wire = stage.wire(handle).unwrap_or_default();
            let (region, encode) = self.travels(to, values, wire.offset);
            self.out.push(Instruction::Send {
                to,
                tag: self.tag(*edge, micro_batch),
                region,
                encode,
                handle,
                stage: stage.id,
                micro_batch,
                gradient,
            });
        }
    }
}
