//! What a rank computes: kernels of passes, updates of parameters.

use super::arena::Slices;
use super::rank::{Batch, Rank, StepCounts};
use crate::device::cpu::{Call, Draw, Operands, Parameter, Phase, Turn, Update, bf16, launch};
use crate::transport::{Transport, TransportError};
use pipewright_core::ids::{MicroBatch, StageId};
use pipewright_core::plan::{Kernel, Operand, ParamPlace, Region, StageProgram};
use pipewright_core::schedule::{Action, ActionKind};
use std::ops::Range;

/// One pass of a micro-batch through a stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub batch: Batch,
    pub micro_batch: MicroBatch,
    pub turn: Turn,
    pub slot: u32,
    pub outbox: u32,
    /// Version of the parameters.
    pub version: u32,
}

impl<T: Transport> Rank<'_, T> {
    pub(super) fn run(
        &mut self,
        action: Action,
        pass: &Pass,
        reduces: bool,
        counts: &mut StepCounts,
    ) -> Result<(), TransportError> {
        let program = self.program;
        let stage = program.stage(action.stage).expect("lowering put the action on this lane");
        let range = kernels(stage, action.kind);
        let mut buckets = if reduces { &stage.buckets[..] } else { &[] };
        for index in range {
            let kernel = &stage.kernels[index];
            match &mut self.model {
                Some(model) => model.owe(kernel),
                None => self.kernel(stage, kernel, pass),
            }
            if let Some(model) = self.model.as_mut().filter(|_| reduces) {
                model.catch_up(&self.transport);
            }
            while let Some((bucket, rest)) =
                buckets.split_first().filter(|(bucket, _)| bucket.ready as usize <= index)
            {
                self.reduce(stage.stage, bucket)?;
                buckets = rest;
            }
            if reduces {
                self.transport.progress()?;
                self.gradients.progress()?;
            }
        }
        buckets.iter().try_for_each(|bucket| self.reduce(stage.stage, bucket))?;
        if let (ActionKind::Forward, Some(loss), None) = (action.kind, &stage.loss, &self.model) {
            let words = self.arena.floats(stage.region(loss, pass.slot, pass.outbox));
            counts.loss += f64::from(words[0]);
            counts.correct += u64::from(words[1].to_bits());
        }
        Ok(())
    }

    /// The pass that an action makes, counted when it is a forward pass of training.
    pub(super) fn pass(
        &mut self,
        action: Action,
        (slot, outbox, version): (u32, u32, u32),
        batch: Batch,
    ) -> Pass {
        let at = self.program.stages.iter().position(|s| s.stage == action.stage);
        let (next, count) = &mut self.turns[at.expect("lowering put the action on this lane")];
        let turn = Turn { index: *next, count: *count };
        if action.kind == ActionKind::Forward && matches!(batch, Batch::Train(_)) {
            *next += 1;
        }
        Pass { batch, micro_batch: action.micro_batch, turn, slot, outbox, version }
    }

    pub(super) fn kernel(&mut self, stage: &StageProgram, kernel: &Kernel, pass: &Pass) {
        let node = self.graph.node(kernel.node);
        let inputs: Slices<_> = node.inputs.iter().map(|id| &self.graph.node(*id).output).collect();
        let call = Call {
            op: &node.op,
            kind: kernel.kind,
            inputs: &inputs,
            output: &node.output,
            samples: self.plan.samples(),
            phase: match pass.batch {
                Batch::Train(_) if kernel.again => Phase::Recompute,
                Batch::Train(_) => Phase::Train,
                Batch::Test(_) => Phase::Evaluate,
            },
            loss_scale: 1.0 / self.program.batch as f32,
            wanted: kernel.wanted,
            threads: self.threads,
            draw: Draw {
                seed: self.plan.seed,
                step: match pass.batch {
                    Batch::Train(step) | Batch::Test(step) => step,
                },
                node: kernel.node.0,
                first_sample: self.replica.first_sample(self.replica.index, pass.micro_batch),
            },
            turn: pass.turn,
            precision: self.plan.training.precision,
        };
        let region = |operand: &Operand| stage.region(operand, pass.slot, pass.outbox);
        for (packed, f32) in &kernel.unpack {
            self.arena.convert(region(packed), region(f32), |from, into| {
                bf16::unpack(call.threads, from, into);
            });
        }
        let params = &stage.params[kernel.params.start as usize..kernel.params.end as usize];
        let weights = params.iter().map(|p| match p.gradient {
            Some(_) => stage.versions.place(p.weight, pass.version, self.step),
            None => p.weight,
        });
        let gradients = params.iter().filter_map(|p| p.gradient);
        let untrained = params.iter().filter(|p| p.gradient.is_none());
        let deferred = untrained.filter_map(|p| p.state[0]);
        let scratch = kernel.workspace.iter().map(region);
        let written = kernel.writes.iter().map(region).chain(weights).chain(gradients);
        let written = written.chain(deferred);
        let (reads, mut writes) =
            self.arena.views(kernel.reads.iter().map(region), written.chain(scratch));
        let (values, rest) = writes.split_at_mut(kernel.writes.len());
        let (weights, rest) = rest.split_at_mut(params.len());
        let trained = params.iter().filter(|p| p.gradient.is_some()).count();
        let (gradients, rest) = rest.split_at_mut(trained);
        let (deferred, scratch) = rest.split_at_mut(rest.len() - kernel.workspace.iter().len());
        let workspace = scratch.first_mut().map_or(&mut [][..], |slice| &mut **slice);
        let operands = Operands {
            reads: &reads,
            writes: values,
            params: weights,
            gradients,
            deferred,
            workspace,
        };
        launch(&call, operands);
        drop((reads, writes));
        for (f32, packed) in &kernel.pack {
            self.arena.convert(region(f32), region(packed), |from, into| {
                bf16::pack(call.threads, from, into);
            });
        }
    }

    /// Update `index` of this step makes version `to` of the parameters from version `from`.
    pub(super) fn update(&mut self, stage: StageId, (from, to): (u32, u32), index: u32) {
        let program = self.program;
        let stage = program.stage(stage).expect("lowering put the stage on this lane");
        let step = self.step;
        if let Some(model) = &mut self.model {
            return model.owe_update(stage.stage);
        }
        for place in &stage.params {
            let Some(gradient) = place.gradient else { continue };
            if !self.replica.updates {
                // The first replica hands out its parameters before the next step.
                self.arena.floats(gradient).fill(0.0);
                continue;
            }
            let [old, new] = [from, to].map(|v| stage.versions.place(place.weight, v, step));
            if old != new {
                let (reads, mut writes) = self.arena.views([old].into_iter(), [new].into_iter());
                writes[0].copy_from_slice(reads[0]);
            }
            self.update_param(place, new, index);
        }
    }

    pub(super) fn update_param(&mut self, place: &ParamPlace, weight: Region, index: u32) {
        let Some(gradient) = place.gradient else { return };
        let updates = u64::from(self.program.updates);
        let update = Update {
            rate: self.rates.at(self.step),
            number: self.step * updates + u64::from(index) + 1,
            scale: self.clip.scale(),
            threads: self.threads,
        };
        let axes = self.graph.param(place.param).shape.len();
        let written = [weight, gradient].into_iter().chain(place.state.into_iter().flatten());
        let (_, mut slices) = self.arena.views(std::iter::empty(), written);
        if let [weight, gradient, state @ ..] = &mut slices[..] {
            self.rule.update(&update, Parameter { weight, gradient, state, axes });
        }
    }
}

/// The kernels of an action, as indexes.
pub(super) fn kernels(stage: &StageProgram, kind: ActionKind) -> Range<usize> {
    let (forward, input) = (stage.forward_end as usize, stage.input_gradient_end as usize);
    match kind {
        ActionKind::Forward => 0..forward,
        ActionKind::Backward => forward..stage.kernels.len(),
        ActionKind::BackwardInput => forward..input,
        ActionKind::BackwardWeight => input..stage.kernels.len(),
    }
}
