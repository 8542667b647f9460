//! One rank: its arena, its program, its messages.

use super::arena::Arena;
use super::clip::Clip;
use super::compute::kernels;
use super::input::{Input, loads};
use super::rate::Rates;
use super::record::Recorder;
use super::replica::Replica;
use crate::checkpoint::CheckpointError;
use crate::data::{DataError, DataSet};
use crate::device::cpu::Rule;
use crate::init::init_param;
use crate::tensor_file::TensorFileError;
use crate::transport::{Transport, TransportError};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Graph, Op, Param};
use pipewright_core::ids::{NodeId, ParamId, StageId};
use pipewright_core::plan::{Instruction, Plan, Program, Region, StageProgram};
use pipewright_core::schedule::ActionKind;
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
        /// The learning rate of the step.
        rate: f64,
    },
    /// A checkpoint could not be saved.
    #[error("step {step}: no checkpoint was saved: {source}")]
    Checkpoint {
        /// Steps that were trained.
        step: u64,
        /// What happened.
        source: CheckpointError,
    },
    /// There is no checkpoint to go on from.
    #[error("{0}")]
    Resume(CheckpointError),
    /// Initial weights could not be read.
    #[error("{0}")]
    Weights(#[from] TensorFileError),
    /// A file could not be written.
    #[error("{path}: {source}")]
    Write {
        /// Which one.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Why an instruction failed.
pub(super) enum Fault {
    Transport(TransportError),
    Data(DataError),
}

impl From<TransportError> for Fault {
    fn from(error: TransportError) -> Self {
        Fault::Transport(error)
    }
}

impl From<DataError> for Fault {
    fn from(error: DataError) -> Self {
        Fault::Data(error)
    }
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
    /// Nanoseconds spent waiting for samples and copying them.
    pub input_ns: u64,
    /// Length of the gradient of all parameters of all ranks before clipping; 0 without clipping.
    pub gradient_norm: f64,
}

/// One rank in training.
pub struct Rank<'a, T> {
    pub(super) plan: &'a Plan,
    pub(super) graph: &'a Graph,
    pub(super) program: &'a Program,
    pub(super) input: Input,
    /// Messages to the other ranks.
    pub transport: T,
    // Behind the transport: outstanding sends are withdrawn before their memory goes.
    pub(super) arena: Arena,
    pub(super) recorder: Recorder,
    pub(super) threads: usize,
    pub(super) rule: Rule,
    pub(super) rates: Rates,
    pub(super) clip: Clip,
    /// Forward passes of each of the program's stages: in this step so far, and in a whole step.
    pub(super) turns: Vec<(u32, u32)>,
    pub(super) replica: Replica,
    /// The step under way, or the next one.
    pub(super) step: u64,
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
        for stage in &program.stages {
            for place in &stage.params {
                let trained = place.gradient.is_some();
                for version in 0..if trained { stage.versions.count } else { 1 } {
                    let weight = arena.floats(stage.versions.place(place.weight, version, 0));
                    init_param(first_values(graph, place.param), plan.seed, weight);
                }
            }
        }
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
        let replica = Replica::new(plan, transport.rank());
        let recorder = Recorder::new(program, loads(&replica, &program.train).len());
        Self {
            plan,
            graph,
            program,
            input: Input::new(plan, data),
            transport,
            arena,
            recorder,
            threads,
            rule,
            rates,
            clip,
            turns,
            replica,
            step: 0,
        }
    }

    /// The arena's size as allocated.
    pub fn arena_bytes(&self) -> u64 {
        self.arena.bytes().0
    }

    /// The next step will be `step`; tensors must be set as they are before it.
    pub fn go_on_at(&mut self, step: u64) {
        self.step = step;
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
        self.begin_step(step);
        self.read_ahead(&program.train, Batch::Train(step))?;
        let counts = self.execute(&program.train, Batch::Train(step), step)?;
        self.step = step + 1;
        Ok(counts)
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
        self.read_ahead(instructions, Batch::Test(round))?;
        self.execute(instructions, Batch::Test(round), round)
    }

    /// One training step of a lone rank, with every kernel timed; samples are not read ahead.
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
        self.begin_step(step);
        for instruction in &program.train {
            match *instruction {
                Instruction::Load { micro_batch, source, region } => {
                    self.load(batch, micro_batch, (source, region))
                        .map_err(|source| RunError::Data { step, source })?;
                }
                Instruction::Run { action, slot, outbox, version, .. } => {
                    let stage = program.stage(action.stage).expect("its lane");
                    let pass = self.pass(action, (slot, outbox, version), batch);
                    for kernel in &stage.kernels[kernels(stage, action.kind)] {
                        let start = self.transport.now_ns();
                        self.kernel(stage, kernel, &pass);
                        let time = self.transport.now_ns() - start;
                        tell(Measured::Kernel(kernel.node, kernel.kind), time);
                    }
                }
                Instruction::Optimizer { stage, .. } => self.measure_update(stage, &mut tell),
                // A lone rank has nobody to talk to.
                _ => {}
            }
        }
        Ok(())
    }

    fn measure_update(&mut self, stage: StageId, tell: &mut impl FnMut(Measured, u64)) {
        let stage = self.program.stage(stage).expect("its lane");
        for (node, owner) in (0..).map(NodeId).zip(self.graph.nodes()) {
            let start = self.transport.now_ns();
            for place in stage.params.iter().filter(|p| owner.params.contains(&p.param)) {
                self.update_param(place, place.weight, 0);
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
            self.instruction(instruction, batch, &mut counts).map_err(|fault| match fault {
                Fault::Transport(source) => {
                    RunError::Transport { step, instruction: index, source }
                }
                Fault::Data(source) => RunError::Data { step, source },
            })?;
        }
        counts.input_ns = self.input.waited();
        Ok(counts)
    }

    fn instruction(
        &mut self,
        instruction: &Instruction,
        batch: Batch,
        counts: &mut StepCounts,
    ) -> Result<(), Fault> {
        match *instruction {
            Instruction::Load { micro_batch, source, region } => {
                self.load(batch, micro_batch, (source, region))?;
            }
            Instruction::Recv { from, tag, region } => {
                let from = self.replica.peer(from);
                self.transport.recv(from, tag, self.arena.raw_mut(region))?;
                self.recorder.received(tag, self.transport.now_ns());
            }
            Instruction::Run { action, slot, outbox, version, reduces } => {
                let start = self.transport.now_ns();
                let pass = self.pass(action, (slot, outbox, version), batch);
                self.run(action, &pass, reduces, counts)?;
                let end = self.transport.now_ns();
                counts.busy_ns += end - start;
                self.recorder.worked(Work::Run(action), start, end);
            }
            Instruction::Send { to, tag, region, handle, .. } => {
                self.recorder.sent(tag, self.transport.now_ns());
                self.send(self.replica.peer(to), tag, region, handle)?;
            }
            Instruction::WaitSend { handle } => self.transport.wait_send(handle as usize)?,
            Instruction::WaitReduce { stage } => {
                let stage = self.program.stage(stage).expect("its lane");
                for bucket in &stage.buckets {
                    self.transport.wait_collective(bucket.slot as usize)?;
                }
            }
            Instruction::Tie { index } => self.tie(index)?,
            Instruction::Broadcast { stage } => self.broadcast(stage)?,
            Instruction::Scatter { .. } => self.scatter(batch, instruction)?,
            Instruction::ClipGradients => {
                let start = self.transport.now_ns();
                self.clip_gradients();
                counts.busy_ns += self.transport.now_ns() - start;
                self.clip.meet(&mut self.transport)?;
                counts.gradient_norm = self.clip.norm();
            }
            Instruction::Optimizer { stage, from, to, index } => {
                let start = self.transport.now_ns();
                self.update(stage, (from, to), index);
                let end = self.transport.now_ns();
                counts.busy_ns += end - start;
                self.recorder.worked(Work::Optimizer(stage), start, end);
            }
        }
        Ok(())
    }

    pub(super) fn send(
        &mut self,
        to: u32,
        tag: u32,
        region: Region,
        handle: u32,
    ) -> Result<(), TransportError> {
        let bytes = self.arena.raw(region);
        // SAFETY: the program waits for the handle before anything writes to the region, and the
        // transport is dropped before the arena.
        unsafe { self.transport.start_send(to, tag, bytes, handle as usize) }
    }

    /// Adds what this rank knows of the gradient's length. One rank speaks for a parameter that
    /// several hold.
    fn clip_gradients(&mut self) {
        let program = self.program;
        let mine =
            program.stages.iter().filter(|stage| stage.first_copy && self.replica.index == 0);
        for place in mine.flat_map(|stage| &stage.params) {
            if let Some(gradient) = place.gradient
                && tied_to(self.graph, place.param).is_none()
            {
                self.clip.add(place.param, self.arena.floats(gradient), self.threads);
            }
        }
    }

    fn begin_step(&mut self, step: u64) {
        self.step = step;
        self.turns.iter_mut().for_each(|(index, _)| *index = 0);
    }
}

/// The parameter of which `param` is a copy.
pub(super) fn tied_to(graph: &Graph, param: ParamId) -> Option<ParamId> {
    graph.nodes().iter().find_map(|node| match node.op {
        Op::TiedLinear { weight, .. } if node.params.contains(&param) => Some(weight),
        _ => None,
    })
}

/// The parameter that says how `param` begins: copies begin like their original.
fn first_values(graph: &Graph, param: ParamId) -> &Param {
    graph.param(tied_to(graph, param).unwrap_or(param))
}
