//! Computations of a rank: kernels of passes, updates of parameters.

use super::arena::{Arena, Slices};
use super::divided::{divides, is_divided, others};
use super::error::StepFault;
use super::rank::{Batch, Rank, StepCounts};
use crate::device::{Accelerator, FusedOp, ParameterPlaces, Place, Places};
use crate::transport::{Transport, TransportError};
use pipewright_core::graph::TensorSpec;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::ids::{MicroBatch, StageId};
use pipewright_core::plan::{Kernel, Operand, ParamPlace, Region, StageProgram};
use pipewright_core::schedule::{Action, ActionKind};
use pipewright_core::units::Bytes;
use pipewright_kernels::cpu::{launch, packed};
use pipewright_kernels::{Call, Draw, Operands, Parameter, Phase, Turn, Update};
use smallvec::SmallVec;

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

/// Bytes that the loss gives of a micro-batch: its value, and correct predictions.
const KEPT: u64 = 8;

/// Where the tensors of a computation lie; see [`Places`].
struct KernelPlaces {
    reads: Slices<Place>,
    writes: Slices<Place>,
    params: Slices<Region>,
    gradients: Slices<Region>,
    deferred: Slices<Region>,
    workspace: Option<Region>,
}

impl KernelPlaces {
    /// All that may be written.
    fn written(&self) -> impl Iterator<Item = Region> {
        let others = self.params.iter().chain(&self.gradients).chain(&self.deferred);
        let values = self.writes.iter().map(|place| place.region);
        values.chain(others.chain(&self.workspace).copied())
    }

    /// On this processor.
    fn launch_here(&self, call: &Call, arena: &mut Arena) {
        // What is written over is found where it is written.
        let is_written = |region| self.writes.iter().any(|place| place.region == region);
        let reads = self.reads.iter().map(|&Place { region, .. }| match is_written(region) {
            true => Region { bytes: Bytes::ZERO, ..region },
            false => region,
        });
        let (reads, mut writes) = arena.views(reads, self.written());
        let (values, rest) = writes.split_at_mut(self.writes.len());
        let (params, rest) = rest.split_at_mut(self.params.len());
        let (gradients, rest) = rest.split_at_mut(self.gradients.len());
        let (deferred, scratch) = rest.split_at_mut(self.deferred.len());
        let workspace = scratch.first_mut().map_or(&mut [][..], |slice| &mut **slice);
        let operands =
            Operands { reads: &reads, writes: values, params, gradients, deferred, workspace };
        launch(call, operands);
    }

    /// On the device that has a copy of the arena.
    fn launch_there(&self, call: &Call, arena: &mut Arena) {
        let reads: Slices<Region> = self.reads.iter().map(|place| place.region).collect();
        let written: Slices<Region> = self.written().collect();
        arena.compute(&reads, &written, |device| device.launch(call, &self.places()));
    }

    /// As a device is told of them.
    fn places(&self) -> Places<'_> {
        Places {
            reads: &self.reads,
            writes: &self.writes,
            params: &self.params,
            gradients: &self.gradients,
            deferred: &self.deferred,
            workspace: self.workspace,
        }
    }
}

impl<'a, T: Transport> Rank<'a, T> {
    pub(super) fn run(
        &mut self,
        action: Action,
        pass: &Pass,
        reduces: bool,
        counts: &mut StepCounts,
    ) -> Result<(), TransportError> {
        let program = self.program;
        let stage = program.stage(action.stage).expect("lowering put the action on this lane");
        let range = stage.range(action.kind);
        let mut buckets = if reduces { &stage.buckets[..] } else { &[] };
        let mut next = range.start;
        while next < range.end {
            let kernel = &stage.kernels[next];
            if reduces && stage.divides_gradients() {
                self.make_room(stage, range.start, next)?;
            }
            let done = if kernel.kind.is_exchange() {
                match kernel.kind.is_all_to_all() {
                    true => self.exchange_rows(stage, kernel, pass)?,
                    false => self.exchange(stage, kernel, pass)?,
                }
                1
            } else if let Some(model) = &mut self.model {
                model.owe(kernel);
                1
            } else {
                self.computation(stage, next, pass)
            };
            next += done;
            let index = next - 1;
            self.add_up(stage, &stage.kernels[index], pass)?;
            if reduces {
                let mut kernels = stage.kernels[next - done..next].iter();
                kernels.try_for_each(|kernel| self.sum_slices(stage, kernel))?;
            }
            self.keep_output(stage, &stage.kernels[index], pass);
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
        // All ranks of a tensor group have it.
        let tells = self.model.is_none() && self.tensor.index == 0;
        if let (ActionKind::Forward, Some(loss), true) = (action.kind, &stage.loss, tells) {
            let region = stage.region(loss, pass.slot, pass.outbox);
            match self.arena.is_distant() {
                // Nobody waits for it before the end of the mini-batch.
                true => {
                    self.arena.keep(region, KEPT * u64::from(self.kept));
                    self.kept += 1;
                }
                false => counts.add(bytemuck::cast_slice(self.arena.floats(region))),
            }
        }
        Ok(())
    }

    /// Has the device do what it was asked for, reads ahead meanwhile, and adds up what the loss gave of
    /// each micro-batch, in their order.
    pub(super) fn end_batch(
        &mut self,
        batch: Batch,
        counts: &mut StepCounts,
    ) -> Result<(), StepFault> {
        if !self.arena.is_distant() {
            return Ok(());
        }
        self.arena.end_batch();
        self.stage_ahead(batch);
        let mut kept = vec![[0_u32; 2]; std::mem::take(&mut self.kept) as usize];
        if !kept.is_empty() {
            self.arena.kept(bytemuck::cast_slice_mut(&mut kept));
        }
        kept.iter().for_each(|words| counts.add(words));
        self.arena.check()?;
        Ok(())
    }

    /// The pass that an action makes, counted when it is a forward pass of training.
    pub(super) fn pass(
        &mut self,
        action: Action,
        slot: u32,
        outbox: u32,
        version: u32,
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

    /// The computations from kernel `first` on that are done together, without what the tensor group adds up behind
    /// them; returns how many.
    pub(super) fn computation(&mut self, stage: &StageProgram, first: usize, pass: &Pass) -> usize {
        let stored: SmallVec<[bool; 4]> = self.fusion.at(stage.stage, first).into();
        match stored.len() {
            1 => self.kernel(stage, first, pass),
            _ => self.chain(stage, first, &stored, pass),
        }
        stored.len()
    }

    /// Several computations on the device; of their values those are written that are to be stored.
    fn chain(&mut self, stage: &StageProgram, first: usize, stored: &[bool], pass: &Pass) {
        let kernels = &stage.kernels[first..first + stored.len()];
        let inputs: SmallVec<[Slices<&TensorSpec>; 4]> =
            kernels.iter().map(|kernel| self.inputs(kernel)).collect();
        let places: SmallVec<[KernelPlaces; 4]> =
            (first..first + stored.len()).map(|at| self.places(stage, at, pass)).collect();
        let mut ops: SmallVec<[FusedOp; 4]> = SmallVec::new();
        let (mut reads, mut written): (Slices<Region>, Slices<Region>) = Default::default();
        for (at, own) in places.iter().enumerate() {
            let call = self.described(&kernels[at], &inputs[at], pass);
            ops.push(FusedOp { call, places: own.places(), stored: stored[at] });
            // What a link before hands on is nowhere to be fetched from.
            let before = |read: &&Place| {
                places[..at].iter().all(|p| p.writes.first().is_none_or(|w| w != *read))
            };
            reads.extend(own.reads.iter().filter(before).map(|read| read.region));
            written.extend(own.written().skip(usize::from(!stored[at])));
        }
        self.arena.compute(&reads, &written, |device| device.launch_fused(&ops));
    }

    fn inputs(&self, kernel: &Kernel) -> Slices<&'a TensorSpec> {
        let inputs = self.graph.node(kernel.node).inputs.iter();
        inputs.map(|id| self.graph.operand(kernel.node, *id)).collect()
    }

    /// What a kernel does, with the specs of its node's inputs.
    fn described<'c>(&self, kernel: &Kernel, inputs: &'c [&'c TensorSpec], pass: &Pass) -> Call<'c>
    where
        'a: 'c,
    {
        let node = self.graph.node(kernel.node);
        Call {
            op: &node.op,
            kind: kernel.kind,
            inputs,
            output: match kernel.kind {
                ComputationKind::SumGradients => self.summed(kernel),
                _ => self.graph.result(kernel.node),
            },
            samples: self.plan.samples(),
            phase: match pass.batch {
                Batch::Train(_) if kernel.again => Phase::Recompute,
                Batch::Train(_) => Phase::Train,
                Batch::Test(_) => Phase::Evaluate,
            },
            loss_scale: self.gradient_guard.factor() * (1.0 / self.program.batch as f32),
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
            shard: self.tensor.shard(kernel.node),
            precision: self.plan.training.precision.of(
                kernel.node,
                &node.op,
                kernel.kind,
                self.head,
            ),
        }
    }

    /// What a sum of gradients gives: of a node of which the rank has a slice that, or all of a partial sum.
    fn summed(&self, kernel: &Kernel) -> &'a TensorSpec {
        let whole = self.graph.whole(kernel.node);
        match kernel.writes[0].elements() == whole.elements() * self.plan.samples() {
            true => whole,
            false => &self.graph.node(kernel.node).output,
        }
    }

    fn kernel(&mut self, stage: &StageProgram, at: usize, pass: &Pass) {
        let kernel = &stage.kernels[at];
        let inputs = self.inputs(kernel);
        let unbiased = self.tensor.unbiased(kernel).cloned();
        let call = self.described(kernel, &inputs, pass);
        let call = Call { op: unbiased.as_ref().unwrap_or(call.op), ..call };
        let places = self.places(stage, at, pass);
        if self.arena.is_distant() {
            return places.launch_there(&call, &mut self.arena);
        }
        let region = |operand: &Operand| stage.region(operand, pass.slot, pass.outbox);
        let (threads, precision) = (self.threads, self.plan.training.precision);
        let is_single = |operand: &Operand| operand.halves.is_none();
        let mut operands = kernel.reads.iter().chain(&kernel.writes);
        debug_assert!(operands.all(is_single), "a program for processors unpacks halves");
        for (lies, f32) in &kernel.unpack {
            let work =
                |from: &[f32], into: &mut [f32]| packed::unpack(precision, threads, from, into);
            self.arena.convert(region(lies), region(f32), work);
        }
        places.launch_here(&call, &mut self.arena);
        for (f32, lies) in &kernel.pack {
            let work =
                |from: &[f32], into: &mut [f32]| packed::pack(precision, threads, from, into);
            self.arena.convert(region(f32), region(lies), work);
        }
    }

    /// Where the tensors of a computation lie. A device takes packed values as they are; the kernels of this
    /// processor know f32 alone, and find them unpacked.
    fn places(&self, stage: &StageProgram, at: usize, pass: &Pass) -> KernelPlaces {
        let kernel = &stage.kernels[at];
        let region = |operand: &Operand| stage.region(operand, pass.slot, pass.outbox);
        let params = &stage.params[kernel.params.start as usize..kernel.params.end as usize];
        let used = params.len() - usize::from(self.tensor.unbiased(kernel).is_some());
        let weights = params[..used].iter().map(|p| match p.gradient {
            Some(_) => stage.versions.place(p.weight, pass.version, self.step),
            None => p.weight,
        });
        let takes_packed = self.arena.is_distant();
        let value = |(place, operand): (usize, &Operand)| {
            let packed = kernel.packed(operand).filter(|_| takes_packed);
            let region = region(&packed.unwrap_or(*operand));
            let image = self.images.at(stage.stage, at, place);
            Place { region, elements: operand.elements(), packed: packed.is_some(), image }
        };
        let untrained = params.iter().filter(|p| p.gradient.is_none());
        // Where gradients will lie another bucket may be summed until the first kernel adds to them.
        let summed = if kernel.kind == ComputationKind::WeightGradient { params } else { &[] };
        KernelPlaces {
            reads: (0..).zip(&kernel.reads).map(value).collect(),
            writes: (kernel.reads.len()..).zip(&kernel.writes).map(value).collect(),
            params: weights.collect(),
            gradients: summed.iter().filter_map(|p| p.gradient).collect(),
            deferred: untrained.filter_map(|p| p.state[0]).collect(),
            workspace: kernel.workspace.as_ref().map(region),
        }
    }

    fn copy(&mut self, from: Region, into: Region) {
        match self.arena.is_distant() {
            true => self.arena.compute(&[from], &[into], |device| device.copy(from, into)),
            false => self.arena.convert(from, into, |from, into| into.copy_from_slice(from)),
        }
    }

    pub(super) fn zero(&mut self, region: Region) {
        match self.arena.is_distant() {
            true => self.arena.compute(&[], &[region], |device| device.zero(region)),
            false => self.arena.floats(region).fill(0.0),
        }
    }

    /// Update `index` of this step makes version `to` of the parameters from version `from`.
    ///
    /// # Errors
    /// When ranks that divide it cannot talk.
    pub(super) fn update(
        &mut self,
        stage: StageId,
        from: u32,
        to: u32,
        index: u32,
    ) -> Result<(), TransportError> {
        let program = self.program;
        let at = program.stages.iter().position(|s| s.stage == stage);
        let at = at.expect("lowering put the stage on this lane");
        let stage = &program.stages[at];
        let step = self.step;
        if let Some(model) = &mut self.model {
            model.owe_update(stage);
            return if divides(stage) { self.modelled_gather(stage, to) } else { Ok(()) };
        }
        // The first replica hands out its parameters before the next step.
        let updates = self.replica.updates && self.gradient_guard.bad().is_none();
        for place in &stage.params {
            let Some(gradient) = place.gradient else { continue };
            let [old, new] = [from, to].map(|v| stage.versions.place(place.weight, v, step));
            if self.replica.updates && old != new {
                self.copy(old, new);
            }
            if !updates {
                self.zero(gradient);
            }
        }
        if !updates {
            self.drop_divided_gradients(stage);
            return Ok(());
        }
        let place = |p: &ParamPlace| stage.versions.place(p.weight, to, step);
        let whole = stage.params.iter().filter(|p| !is_divided(stage, p));
        self.update_all(whole.map(|p| (p, place(p))), index);
        let pieces = std::mem::take(&mut self.division.pieces[at]);
        self.update_all(pieces.iter().map(|p| (p, place(p))), index);
        self.division.pieces[at] = pieces;
        others(stage, self.replica.index).for_each(|region| self.zero(region));
        self.gather_updates(stage, to)
    }

    /// Updates parameters whose values are at these places; a device takes all of them at once.
    pub(super) fn update_all<'p>(
        &mut self,
        parameters: impl Iterator<Item = (&'p ParamPlace, Region)>,
        index: u32,
    ) {
        if !self.arena.is_distant() {
            parameters.for_each(|(place, weight)| self.update_param(place, weight, index));
            return;
        }
        let trained = |(place, weight): (&ParamPlace, Region)| {
            let (state, axes) = (place.state, self.axes(place));
            Some(ParameterPlaces { weight, gradient: place.gradient?, state, axes })
        };
        let parameters: Vec<ParameterPlaces> = parameters.filter_map(trained).collect();
        if !parameters.is_empty() {
            self.update_there(&parameters, index);
        }
    }

    fn axes(&self, place: &ParamPlace) -> usize {
        self.graph.param(place.param).shape.len()
    }

    fn update_number(&self, index: u32) -> Update {
        let updates = u64::from(self.program.updates);
        Update {
            rate: self.rates.at(self.step),
            number: self.gradient_guard.applied(self.step) * updates + u64::from(index) + 1,
            scale: self.gradient_guard.scale(),
            threads: self.threads,
        }
    }

    fn update_there(&mut self, parameters: &[ParameterPlaces], index: u32) {
        let (update, rule) = (self.update_number(index), &self.rule);
        let precision = self.plan.training.precision;
        let regions =
            |p: &ParameterPlaces| [Some(p.weight), Some(p.gradient), p.state[0], p.state[1]];
        let written: Vec<Region> = parameters.iter().flat_map(regions).flatten().collect();
        let work =
            |device: &mut dyn Accelerator| device.update(rule, &update, precision, parameters);
        self.arena.compute(&[], &written, work);
    }

    fn update_param(&mut self, place: &ParamPlace, weight: Region, index: u32) {
        let Some(gradient) = place.gradient else { return };
        let (update, axes) = (self.update_number(index), self.axes(place));
        let written = [weight, gradient].into_iter().chain(place.state.into_iter().flatten());
        let (_, mut slices) = self.arena.views(std::iter::empty(), written);
        if let [weight, gradient, state @ ..] = &mut slices[..] {
            self.rule.update(&update, Parameter { weight, gradient, state, axes });
        }
    }
}
