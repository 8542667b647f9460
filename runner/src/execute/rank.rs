//! One rank: its arena, its program, its messages.

use super::arena::{Arena, Slices};
use super::record::Recorder;
use crate::data::{DataError, DataSet, Load, Order, Reader, Sequence};
use crate::device::cpu::{Call, Operands, Phase, SgdStep, launch, sgd};
use crate::init::init_param;
use crate::transport::{Transport, TransportError};
use pipewright_core::graph::Graph;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::ids::{MicroBatch, NodeId, StageId};
use pipewright_core::plan::{
    Instruction, Kernel, Optimizer, ParamPlace, Plan, Program, Region, Source, StageProgram,
};
use pipewright_core::schedule::{Action, ActionKind};
use pipewright_core::timeline::Work;
use thiserror::Error;

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
    /// A sample could not be read.
    #[error("step {step}: data: {source}")]
    Data {
        /// The step, or the round of an evaluation.
        step: u64,
        /// What is wrong, with file and byte.
        source: DataError,
    },
    /// Training diverged.
    #[error("step {step}: the loss is {loss}; lower the learning rate ({rate})")]
    Diverged {
        /// The step.
        step: u64,
        /// Its loss.
        loss: f64,
        /// The learning rate.
        rate: f32,
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
}

/// One rank in training.
pub struct Rank<'a, T> {
    plan: &'a Plan,
    graph: &'a Graph,
    program: &'a Program,
    train: Reader,
    /// None where the data set has nothing to test on.
    test: Option<Reader>,
    /// Messages to the other ranks.
    pub transport: T,
    // Behind the transport: outstanding sends are withdrawn before their memory goes.
    arena: Arena,
    recorder: Recorder,
    threads: usize,
}

impl<'a, T: Transport> Rank<'a, T> {
    /// Allocates the arena and draws the initial weights.
    pub fn new(
        (plan, graph, program): (&'a Plan, &'a Graph, &'a Program),
        data: &DataSet,
        transport: T,
        threads: usize,
    ) -> Self {
        let mut arena = Arena::new(program.arena);
        for place in program.stages.iter().flat_map(|s| &s.params) {
            init_param(graph.param(place.param), plan.seed, arena.floats(place.weight));
        }
        let recorder = Recorder::new(program);
        let sequence = match plan.shuffle {
            true => Sequence::Shuffled { seed: plan.seed },
            false => Sequence::Repeated,
        };
        let order = |sequence, samples| Order { sequence, samples, mini_batch: plan.mini_batch };
        let train = Reader::new(data.train.clone(), order(sequence, data.train.len()));
        let test = (!data.test.is_empty())
            .then(|| Reader::new(data.test.clone(), order(Sequence::Once, data.test.len())));
        Self { plan, graph, program, train, test, transport, arena, recorder, threads }
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
    ///
    /// # Errors
    /// When a sample cannot be read.
    pub fn measure_step(
        &mut self,
        step: u64,
        mut tell: impl FnMut(Measured, u64),
    ) -> Result<(), RunError> {
        let batch = Batch::Train(step);
        let program = self.program;
        for instruction in &program.train {
            match *instruction {
                Instruction::Load { micro_batch, source, region } => {
                    self.load(batch, micro_batch, source, region)?;
                }
                Instruction::Run { action, slot, outbox } => {
                    let stage = program.stage(action.stage).expect("its lane");
                    for kernel in kernels(stage, action.kind) {
                        let start = self.transport.now_ns();
                        self.kernel(stage, kernel, slot, outbox, batch);
                        let time = self.transport.now_ns() - start;
                        tell(Measured::Kernel(kernel.node, kernel.kind), time);
                    }
                }
                Instruction::Optimizer { stage } => self.measure_update(stage, &mut tell),
                Instruction::Recv { .. }
                | Instruction::Send { .. }
                | Instruction::WaitSend { .. } => {}
            }
        }
        Ok(())
    }

    fn measure_update(&mut self, stage: StageId, tell: &mut impl FnMut(Measured, u64)) {
        let stage = self.program.stage(stage).expect("its lane");
        for (node, owner) in (0..).map(NodeId).zip(self.graph.nodes()) {
            let start = self.transport.now_ns();
            for place in stage.params.iter().filter(|p| owner.params.contains(&p.param)) {
                self.update_param(place);
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
            if let Instruction::Load { micro_batch, source, region } = *instruction {
                self.load(batch, micro_batch, source, region)?;
                continue;
            }
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
            Instruction::Load { .. } => unreachable!("loads have errors of their own"),
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
            Instruction::Optimizer { stage } => {
                let start = self.transport.now_ns();
                self.update(stage);
                let end = self.transport.now_ns();
                counts.busy_ns += end - start;
                self.recorder.worked(Work::Optimizer(stage), start, end);
            }
        }
        Ok(())
    }

    /// Copies the samples of a micro-batch, or what they should give, into the arena.
    fn load(
        &mut self,
        batch: Batch,
        micro_batch: MicroBatch,
        source: Source,
        region: Region,
    ) -> Result<(), RunError> {
        let words: &mut [u32] = bytemuck::cast_slice_mut(self.arena.floats(region));
        let first = u64::from(micro_batch.0) * self.plan.samples();
        let load = Load { source, first, words: words.len() };
        let (reader, step) = match batch {
            Batch::Train(step) => (&self.train, step),
            Batch::Test(round) => (self.test.as_ref().expect("there is something to test"), round),
        };
        reader.read(step, load, words).map_err(|source| RunError::Data { step, source })
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
        for kernel in kernels(stage, action.kind) {
            self.kernel(stage, kernel, slot, outbox, batch);
        }
        if let (ActionKind::Forward, Some(loss)) = (action.kind, &stage.loss) {
            let words = self.arena.floats(stage.region(loss, slot, outbox));
            counts.loss += f64::from(words[0]);
            counts.correct += u64::from(words[1].to_bits());
        }
    }

    fn kernel(
        &mut self,
        stage: &StageProgram,
        kernel: &Kernel,
        slot: u32,
        outbox: u32,
        batch: Batch,
    ) {
        let node = self.graph.node(kernel.node);
        let inputs: Slices<_> = node.inputs.iter().map(|id| &self.graph.node(*id).output).collect();
        let call = Call {
            op: &node.op,
            kind: kernel.kind,
            inputs: &inputs,
            output: &node.output,
            samples: self.plan.samples(),
            phase: match batch {
                Batch::Train(_) => Phase::Train,
                Batch::Test(_) => Phase::Evaluate,
            },
            loss_scale: 1.0 / self.plan.mini_batch as f32,
            threads: self.threads,
        };
        let region = |operand| stage.region(operand, slot, outbox);
        let params = &stage.params[kernel.params.start as usize..kernel.params.end as usize];
        let weights = params.iter().map(|p| p.weight);
        let gradients = params.iter().filter_map(|p| p.gradient);
        let scratch = kernel.workspace.iter().map(region);
        let written = kernel.writes.iter().map(region).chain(weights).chain(gradients);
        let (reads, mut writes) =
            self.arena.views(kernel.reads.iter().map(region), written.chain(scratch));
        let (values, rest) = writes.split_at_mut(kernel.writes.len());
        let (weights, rest) = rest.split_at_mut(params.len());
        let trained = params.iter().filter(|p| p.gradient.is_some()).count();
        let (gradients, scratch) = rest.split_at_mut(trained);
        let workspace = scratch.first_mut().map_or(&mut [][..], |slice| &mut **slice);
        let operands =
            Operands { reads: &reads, writes: values, params: weights, gradients, workspace };
        launch(&call, operands);
    }

    fn update(&mut self, stage: StageId) {
        let program = self.program;
        let stage = program.stage(stage).expect("lowering put the stage on this lane");
        for place in &stage.params {
            self.update_param(place);
        }
    }

    fn update_param(&mut self, place: &ParamPlace) {
        let Some(gradient) = place.gradient else { return };
        let Optimizer::Sgd { learning_rate, momentum, weight_decay } = self.plan.optimizer;
        let step = SgdStep { learning_rate, momentum, weight_decay };
        let written = [Some(place.weight), Some(gradient), place.momentum];
        let (_, mut slices) = self.arena.views(std::iter::empty(), written.into_iter().flatten());
        let mut slices = slices.iter_mut();
        if let (Some(weight), Some(gradient)) = (slices.next(), slices.next()) {
            sgd(weight, gradient, slices.next().map(|s| &mut **s), step);
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
