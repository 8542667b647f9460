//! One rank: its arena, its program, its messages.

use super::arena::{Arena, Slices};
use super::clip::Clip;
use super::rate::Rates;
use super::record::Recorder;
use crate::data::{DataSet, Split, sample_index};
use crate::device::cpu::{Call, Draw, Operands, Parameter, Phase, Rule, Turn, Update, launch};
use crate::init::init_param;
use crate::transport::{Transport, TransportError};
use pipewright_core::graph::Graph;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::ids::{MicroBatch, NodeId, StageId};
use pipewright_core::plan::{
    Instruction, Kernel, ParamPlace, Plan, Program, Region, Source, StageProgram,
};
use pipewright_core::schedule::{Action, ActionKind};
use pipewright_core::timeline::Work;
use thiserror::Error;

/// A class that no sample has: the kernels leave such samples out.
const PADDING: u32 = u32::MAX;

/// Why a rank cannot go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// A message failed.
    #[error("step {step}, instruction {instruction}: {source}")]
    Transport {
        /// The step.
        step: u64,
        /// Position in the rank's program.
        instruction: usize,
        /// What happened.
        source: TransportError,
    },
    /// Ranks could not agree on how to go on.
    #[error("step {step}: {source}")]
    Agreement {
        /// The step.
        step: u64,
        /// What happened.
        source: TransportError,
    },
    /// Training diverged.
    #[error("step {step}: the loss is {loss}; lower the learning rate ({rate})")]
    Diverged {
        /// The step.
        step: u64,
        /// Its loss.
        loss: f64,
        /// The learning rate of the step.
        rate: f64,
    },
    /// A file could not be written.
    #[error("{path}: {source}")]
    Write {
        /// Which one.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Which samples a pass takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// The mini-batch of a training step.
    Train(u64),
    /// The n-th mini-batch of the test samples; past their end it is padded.
    Test(u64),
}

/// One pass of a micro-batch through a stage.
#[derive(Clone, Copy, Debug)]
struct Pass {
    batch: Batch,
    micro_batch: MicroBatch,
    turn: Turn,
    slot: u32,
    outbox: u32,
}

/// What [`Rank::measure_step`] times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// One computation of a node.
    Kernel(NodeId, ComputationKind),
    /// The update of a node's parameters.
    Update(NodeId),
}

/// What a step adds up on this rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCounts {
    /// Sum of the samples' losses; zero on ranks without the loss.
    pub loss: f64,
    /// Correct predictions.
    pub correct: u64,
    /// Nanoseconds spent computing.
    pub busy_ns: u64,
    /// Length of the gradient of all parameters of all ranks before clipping; 0 without clipping.
    pub gradient_norm: f64,
}

/// One rank in training.
pub struct Rank<'a, T> {
    plan: &'a Plan,
    graph: &'a Graph,
    program: &'a Program,
    data: &'a DataSet,
    /// Messages to the other ranks.
    pub transport: T,
    // Behind the transport: outstanding sends are withdrawn before their memory goes.
    arena: Arena,
    recorder: Recorder,
    threads: usize,
    rule: Rule,
    rates: Rates,
    clip: Clip,
    /// Forward passes of each of the program's stages: in this step so far, and in a whole step.
    turns: Vec<(u32, u32)>,
}

impl<'a, T: Transport> Rank<'a, T> {
    /// Allocates the arena and draws the initial weights.
    pub fn new(
        (plan, graph, program): (&'a Plan, &'a Graph, &'a Program),
        data: &'a DataSet,
        transport: T,
        threads: usize,
    ) -> Self {
        let mut arena = Arena::new(program.arena);
        for place in program.stages.iter().flat_map(|s| &s.params) {
            init_param(graph.param(place.param), plan.seed, arena.floats(place.weight));
        }
        let recorder = Recorder::new(program);
        let forwards = |stage: &StageProgram| {
            let is_forward = |instruction: &&Instruction| {
                matches!(instruction, Instruction::Run { action, .. }
                    if action.kind == ActionKind::Forward && action.stage == stage.stage)
            };
            (0, program.train.iter().filter(is_forward).count() as u32)
        };
        let turns = program.stages.iter().map(forwards).collect();
        let (rule, rates) = (Rule::new(plan.optimizer), Rates::new(plan));
        let clip = Clip::new(plan.training.clip_norm, graph);
        Self {
            plan,
            graph,
            program,
            data,
            transport,
            arena,
            recorder,
            threads,
            rule,
            rates,
            clip,
            turns,
        }
    }

    /// The arena's size as allocated.
    pub fn arena_bytes(&self) -> u64 {
        self.arena.bytes().0
    }

    /// What the last steps recorded.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// One training step. Allocates nothing.
    ///
    /// # Errors
    /// When a message fails.
    pub fn step(&mut self, step: u64) -> Result<StepCounts, RunError> {
        self.recorder.begin(step, self.transport.now_ns());
        let program = self.program;
        self.begin_step();
        self.execute(&program.train, Batch::Train(step), step)
    }

    /// Forward passes of one mini-batch of test samples; `instructions` are this rank's part of
    /// [`pipewright_core::predict::evaluation`].
    ///
    /// # Errors
    /// When a message fails.
    pub fn evaluate(
        &mut self,
        instructions: &[Instruction],
        round: u64,
    ) -> Result<StepCounts, RunError> {
        self.recorder.pause();
        self.execute(instructions, Batch::Test(round), round)
    }

    /// One training step of a lone rank, with every kernel timed.
    pub fn measure_step(&mut self, step: u64, mut tell: impl FnMut(Measured, u64)) {
        let batch = Batch::Train(step);
        let program = self.program;
        self.begin_step();
        for instruction in &program.train {
            match *instruction {
                Instruction::Load { micro_batch, source, region } => {
                    self.load(batch, micro_batch, source, region);
                }
                Instruction::Run { action, slot, outbox } => {
                    let stage = program.stage(action.stage).expect("its lane");
                    let pass = self.pass(action, slot, outbox, batch);
                    for kernel in kernels(stage, action.kind) {
                        let start = self.transport.now_ns();
                        self.kernel(stage, kernel, &pass);
                        let time = self.transport.now_ns() - start;
                        tell(Measured::Kernel(kernel.node, kernel.kind), time);
                    }
                }
                Instruction::Optimizer { stage } => self.measure_update(stage, step, &mut tell),
                Instruction::Recv { .. }
                | Instruction::Send { .. }
                | Instruction::ClipGradients
                | Instruction::WaitSend { .. } => {}
            }
        }
    }

    fn measure_update(&mut self, stage: StageId, step: u64, tell: &mut impl FnMut(Measured, u64)) {
        let stage = self.program.stage(stage).expect("its lane");
        for (node, owner) in (0..).map(NodeId).zip(self.graph.nodes()) {
            let start = self.transport.now_ns();
            for place in stage.params.iter().filter(|p| owner.params.contains(&p.param)) {
                self.update_param(place, step);
            }
            if !owner.params.is_empty() {
                tell(Measured::Update(node), self.transport.now_ns() - start);
            }
        }
    }

    fn execute(
        &mut self,
        instructions: &[Instruction],
        batch: Batch,
        step: u64,
    ) -> Result<StepCounts, RunError> {
        let mut counts = StepCounts::default();
        for (index, instruction) in instructions.iter().enumerate() {
            self.instruction(instruction, batch, &mut counts)
                .map_err(|source| RunError::Transport { step, instruction: index, source })?;
        }
        Ok(counts)
    }

    fn instruction(
        &mut self,
        instruction: &Instruction,
        batch: Batch,
        counts: &mut StepCounts,
    ) -> Result<(), TransportError> {
        match *instruction {
            Instruction::Load { micro_batch, source, region } => {
                self.load(batch, micro_batch, source, region);
            }
            Instruction::Recv { from, tag, region } => {
                self.transport.recv(from.0, tag, self.arena.raw_mut(region))?;
                self.recorder.received(tag, self.transport.now_ns());
            }
            Instruction::Run { action, slot, outbox } => {
                let start = self.transport.now_ns();
                self.run(action, slot, outbox, batch, counts);
                let end = self.transport.now_ns();
                counts.busy_ns += end - start;
                self.recorder.worked(Work::Run(action), start, end);
            }
            Instruction::Send { to, tag, region, handle, .. } => {
                self.recorder.sent(tag, self.transport.now_ns());
                let bytes = self.arena.raw(region);
                // SAFETY: the program waits for the handle before anything writes to the region,
                // and the transport is dropped before the arena.
                unsafe { self.transport.start_send(to.0, tag, bytes, handle as usize)? };
            }
            Instruction::WaitSend { handle } => self.transport.wait_send(handle as usize)?,
            Instruction::ClipGradients => {
                let start = self.transport.now_ns();
                let program = self.program;
                for place in program.stages.iter().flat_map(|stage| &stage.params) {
                    if let Some(gradient) = place.gradient {
                        self.clip.add(place.param, self.arena.floats(gradient), self.threads);
                    }
                }
                counts.busy_ns += self.transport.now_ns() - start;
                self.clip.meet(&mut self.transport)?;
                counts.gradient_norm = self.clip.norm();
            }
            Instruction::Optimizer { stage } => {
                let start = self.transport.now_ns();
                self.update(stage, batch);
                let end = self.transport.now_ns();
                counts.busy_ns += end - start;
                self.recorder.worked(Work::Optimizer(stage), start, end);
            }
        }
        Ok(())
    }

    /// Copies the samples of a micro-batch, or their classes, into the arena.
    fn load(&mut self, batch: Batch, micro_batch: MicroBatch, source: Source, region: Region) {
        let samples = self.plan.samples();
        let first = u64::from(micro_batch.0) * samples;
        let (seed, mini_batch) = (self.plan.seed, self.plan.mini_batch);
        let (split, index): (&Split, &dyn Fn(u64) -> Option<u64>) = match batch {
            Batch::Train(step) => {
                let split = &self.data.train;
                let position = step * mini_batch + first;
                (split, &move |i| Some(sample_index(seed, split.len(), position + i)))
            }
            Batch::Test(round) => {
                let split = &self.data.test;
                let position = round * mini_batch + first;
                (split, &move |i| Some(position + i).filter(|index| *index < split.len()))
            }
        };
        let words = self.arena.floats(region);
        match source {
            Source::Input => {
                let sample = words.len() / samples as usize;
                for (i, out) in (0..).zip(words.chunks_exact_mut(sample)) {
                    match index(i) {
                        Some(index) => split.write_sample(index, out),
                        None => out.fill(0.0),
                    }
                }
            }
            Source::Target => {
                let labels: &mut [u32] = bytemuck::cast_slice_mut(words);
                for (i, label) in (0..).zip(labels) {
                    *label = index(i).map_or(PADDING, |index| split.label(index));
                }
            }
        }
    }

    fn run(
        &mut self,
        action: Action,
        slot: u32,
        outbox: u32,
        batch: Batch,
        counts: &mut StepCounts,
    ) {
        let program = self.program;
        let stage = program.stage(action.stage).expect("lowering put the action on this lane");
        let pass = self.pass(action, slot, outbox, batch);
        for kernel in kernels(stage, action.kind) {
            self.kernel(stage, kernel, &pass);
        }
        if let (ActionKind::Forward, Some(loss)) = (action.kind, &stage.loss) {
            let words = self.arena.floats(stage.region(loss, slot, outbox));
            counts.loss += f64::from(words[0]);
            counts.correct += u64::from(words[1].to_bits());
        }
    }

    fn begin_step(&mut self) {
        self.turns.iter_mut().for_each(|(index, _)| *index = 0);
    }

    /// The pass that an action makes, counted when it is a forward pass of training.
    fn pass(&mut self, action: Action, slot: u32, outbox: u32, batch: Batch) -> Pass {
        let at = self.program.stages.iter().position(|s| s.stage == action.stage);
        let (next, count) = &mut self.turns[at.expect("lowering put the action on this lane")];
        let turn = Turn { index: *next, count: *count };
        if action.kind == ActionKind::Forward && matches!(batch, Batch::Train(_)) {
            *next += 1;
        }
        Pass { batch, micro_batch: action.micro_batch, turn, slot, outbox }
    }

    fn kernel(&mut self, stage: &StageProgram, kernel: &Kernel, pass: &Pass) {
        let node = self.graph.node(kernel.node);
        let inputs: Slices<_> = node.inputs.iter().map(|id| &self.graph.node(*id).output).collect();
        let call = Call {
            op: &node.op,
            kind: kernel.kind,
            inputs: &inputs,
            output: &node.output,
            samples: self.plan.samples(),
            phase: match pass.batch {
                Batch::Train(_) => Phase::Train,
                Batch::Test(_) => Phase::Evaluate,
            },
            loss_scale: 1.0 / self.plan.mini_batch as f32,
            wanted: kernel.wanted,
            threads: self.threads,
            draw: Draw {
                seed: self.plan.seed,
                step: match pass.batch {
                    Batch::Train(step) | Batch::Test(step) => step,
                },
                node: kernel.node.0,
                first_sample: u64::from(pass.micro_batch.0) * self.plan.samples(),
            },
            turn: pass.turn,
        };
        let region = |operand| stage.region(operand, pass.slot, pass.outbox);
        let params = &stage.params[kernel.params.start as usize..kernel.params.end as usize];
        let weights = params.iter().map(|p| p.weight);
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
    }

    fn update(&mut self, stage: StageId, batch: Batch) {
        let Batch::Train(step) = batch else { return };
        let program = self.program;
        let stage = program.stage(stage).expect("lowering put the stage on this lane");
        for place in &stage.params {
            self.update_param(place, step);
        }
    }

    fn update_param(&mut self, place: &ParamPlace, step: u64) {
        let Some(gradient) = place.gradient else { return };
        let update = Update {
            rate: self.rates.at(step),
            number: step + 1,
            scale: self.clip.scale(),
            threads: self.threads,
        };
        let axes = self.graph.param(place.param).shape.len();
        let written = [place.weight, gradient].into_iter().chain(place.state.into_iter().flatten());
        let (_, mut slices) = self.arena.views(std::iter::empty(), written);
        if let [weight, gradient, state @ ..] = &mut slices[..] {
            self.rule.update(&update, Parameter { weight, gradient, state, axes });
        }
    }
}

/// The kernels of an action.
fn kernels(stage: &StageProgram, kind: ActionKind) -> &[Kernel] {
    let (forward, input) = (stage.forward_end as usize, stage.input_gradient_end as usize);
    match kind {
        ActionKind::Forward => &stage.kernels[..forward],
        ActionKind::Backward => &stage.kernels[forward..],
        ActionKind::BackwardInput => &stage.kernels[forward..input],
        ActionKind::BackwardWeight => &stage.kernels[input..],
    }
}
