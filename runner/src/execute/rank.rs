//! One rank: its arena, its program, its messages.

use super::activation_compression::{ActivationCompression, ActivationError};
use super::arena::Arena;
use super::data_parallel::Replica;
use super::divided::Division;
use super::error::{RunError, StepFault};
use super::fusion::Fusion;
use super::gradient_guard::GradientGuard;
use super::gradients::Gradients;
use super::image_layouts::ImageLayouts;
use super::input::{Input, loads};
use super::outputs::Output;
use super::progress_hook::{ProgressHook, StepPhase};
use super::rate::Rates;
use super::tensor_parallel::{TensorRank, init_shard};
use super::trace_recorder::TraceRecorder;
use crate::data::DataSet;
use crate::device::model::Model;
use crate::device::{Accelerator, DeviceError, DeviceReport, Graphs};
use crate::init::init_param;
use crate::transport::{Transport, TransportError};
use pipewright_core::elastic::Origin;
use pipewright_core::graph::{Graph, Op, Param};
use pipewright_core::ids::{NodeId, ParamId};
use pipewright_core::plan::{GradientReduction, Instruction, Plan, Program, StageProgram};
use pipewright_core::schedule::ActionKind;
use pipewright_core::timeline::{Wait, Work};
use pipewright_kernels::Rule;
use pipewright_kernels::cpu::thread_pool;

/// Which samples a pass takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// The mini-batch of a training step.
    Train(u64),
    /// The n-th mini-batch of the test samples; past their end it is padded.
    Test(u64),
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
    /// What messages to other stages lost, of the step's first micro-batch.
    pub edge_error: ActivationError,
    /// Length of the gradient of all parameters of all ranks before clipping; 0 where nobody asks.
    pub gradient_norm: f64,
    /// The parameter for whose gradient the step was skipped.
    pub skipped: Option<ParamId>,
    /// The factor of the loss, where it has one.
    pub loss_scale: Option<f32>,
}

impl StepCounts {
    /// Adds what the loss gave of a micro-batch.
    pub(super) fn add(&mut self, words: &[u32]) {
        self.loss += f64::from(f32::from_bits(words[0]));
        self.correct += u64::from(words[1]);
    }
}

/// One rank in training.
pub struct Rank<'a, T> {
    pub(super) plan: &'a Plan,
    pub(super) graph: &'a Graph,
    /// The layer whose products are never in eight bits.
    pub(super) head: Option<NodeId>,
    pub(super) program: &'a Program,
    pub(super) input: Input,
    // Before the transport that it uses and the memory that it sums.
    pub(super) gradients: Gradients,
    /// Messages to the other ranks.
    pub transport: T,
    // Behind the transport: outstanding sends are withdrawn before their memory goes.
    pub(super) arena: Arena,
    pub(super) recorder: TraceRecorder,
    pub(super) threads: usize,
    /// What its device does together.
    pub(super) fusion: Fusion,
    /// How images lie there.
    pub(super) images: ImageLayouts,
    pub(super) rule: Rule,
    pub(super) rates: Rates,
    pub(super) gradient_guard: GradientGuard,
    /// Forward passes of each of the program's stages: in this step so far, and in a whole step.
    pub(super) turns: Vec<(u32, u32)>,
    pub(super) replica: Replica,
    pub(super) tensor: TensorRank,
    /// What it has of what ranks divide.
    pub(super) division: Division,
    pub(super) activation_compression: ActivationCompression,
    /// The step under way, or the next one.
    pub(super) step: u64,
    /// Micro-batches of which the device keeps what the loss gave.
    pub(super) kept: u32,
    /// Spends the modelled time in place of computing.
    pub(super) model: Option<Model<'a>>,
    /// How many times as long as it needs it computes: 1, but in tests.
    pub(super) slow: u32,
    /// How long ago a device worked, in nanoseconds.
    pub(super) ages: Vec<u64>,
    /// What the network gave, where somebody wants it.
    pub(super) outputs: Option<Vec<Output>>,
    /// Hears where this rank is.
    pub progress_hook: Option<&'a dyn ProgressHook>,
}

impl<'a, T: Transport> Rank<'a, T> {
    /// Allocates the arena and draws the initial weights.
    pub fn new(
        parts: (&'a Plan, &'a Graph, &'a Program),
        data: &DataSet,
        transport: T,
        threads: usize,
    ) -> Self {
        let arena = Arena::new(parts.2.tensors());
        let mut rank = Self::empty((parts, arena), data, transport, threads);
        rank.draw_parameters();
        rank
    }

    /// The same on a device with memory of its own, which has [`Program::tensors`] zeroed bytes.
    pub fn on(
        accelerator: Box<dyn Accelerator>,
        parts: (&'a Plan, &'a Graph, &'a Program),
        data: &DataSet,
        transport: T,
        threads: usize,
    ) -> Self {
        let arena = Arena::with_copy(parts.2.tensors(), accelerator);
        let mut rank = Self::empty((parts, arena), data, transport, threads);
        rank.input.read_by(threads);
        rank.rehearse();
        rank.draw_parameters();
        rank
    }

    fn draw_parameters(&mut self) {
        for stage in &self.program.stages {
            for place in &stage.params {
                let trained = place.gradient.is_some();
                for version in 0..if trained { stage.versions.count } else { 1 } {
                    let weight = stage.versions.place(place.weight, version, 0);
                    let (seed, index) = (self.plan.seed, self.shard_index(place.param));
                    let weight = self.arena.floats(weight);
                    let param = first_values(self.graph, place.param);
                    match self.graph.shards(place.param) {
                        None => init_param(param, seed, weight),
                        Some(shards) => init_shard(shards, param, seed, index, weight),
                    }
                }
            }
        }
    }

    /// A rank that computes nothing: device `model`. It touches no memory but that of messages.
    pub fn modelled(
        parts: (&'a Plan, &'a Graph, &'a Program),
        data: &DataSet,
        transport: T,
        model: Model<'a>,
    ) -> Self {
        let arena = Arena::new(parts.2.tensors());
        Self { model: Some(model), ..Self::empty((parts, arena), data, transport, 1) }
    }

    fn empty(
        ((plan, graph, program), arena): ((&'a Plan, &'a Graph, &'a Program), Arena),
        data: &DataSet,
        transport: T,
        threads: usize,
    ) -> Self {
        // A system without more threads still has this one.
        let threads = if thread_pool::join(threads).is_ok() { threads } else { 1 };
        let forwards = |stage: &StageProgram| {
            let is_forward = |instruction: &&Instruction| {
                matches!(instruction, Instruction::Run { action, .. }
                    if action.kind == ActionKind::Forward && action.stage == stage.stage)
            };
            (0, program.train.iter().filter(is_forward).count() as u32)
        };
        let turns = program.stages.iter().map(forwards).collect();
        let (rule, rates) = (Rule::new(plan.optimizer), Rates::new(plan));
        let gradient_guard = GradientGuard::new(&plan.training, graph, &program.stages);
        let replica = Replica::new(plan, transport.rank());
        let tensor = TensorRank::new(graph, program, &replica);
        let division = Division::new(program, replica.index);
        let recorder = TraceRecorder::new(program, loads(&replica, &program.train).len());
        let fusion = if arena.fuses() { Fusion::of(graph, program) } else { Fusion::default() };
        let images = match arena.channels_last(plan.training.precision) {
            true => ImageLayouts::of(graph, program),
            false => ImageLayouts::default(),
        };
        Self {
            plan,
            graph,
            head: graph.head(),
            program,
            input: Input::new(plan, data),
            gradients: Gradients::new(plan, program),
            transport,
            arena,
            recorder,
            threads,
            fusion,
            images,
            rule,
            rates,
            gradient_guard,
            turns,
            replica,
            tensor,
            division,
            activation_compression: ActivationCompression::new(program),
            step: 0,
            kept: 0,
            model: None,
            slow: 1,
            ages: vec![],
            outputs: None,
            progress_hook: None,
        }
    }

    /// The arena's size as allocated, encoded sums included. Their planned size holds for the rank of
    /// the lane that needs most.
    pub fn arena_bytes(&self) -> u64 {
        let sums = self.program.arena - self.program.exchange.offset;
        self.arena.bytes().0 + sums.0.max(self.gradients.bytes())
    }

    /// The messages, without the rank: when none of its memory is under way any more.
    pub fn into_transport(self) -> T {
        self.transport
    }

    /// The next step is the one after these; tensors must be set as they are before it.
    pub fn go_on_at(&mut self, origin: Origin) {
        self.step = origin.step;
        self.rates.go_on_at(origin);
        self.input.go_on_at(origin);
    }

    /// How much of the device's work is replayed; none where there is no such device.
    pub fn graphs(&self) -> Option<Graphs> {
        self.arena.graphs()
    }

    /// What its device tells of its work.
    pub fn report(&mut self) -> DeviceReport {
        self.arena.report()
    }

    /// The ways that its gradients can take.
    pub fn gradient_reductions(&self) -> &[GradientReduction] {
        self.gradients.gradient_reductions()
    }

    /// The index of the way that they take.
    pub fn way(&self) -> usize {
        self.gradients.way()
    }

    /// Has them take another way from the next step on.
    pub fn take_way(&mut self, way: usize) {
        self.gradients.take(way);
    }

    /// Bytes of encoded gradients that it has sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.gradients.sent_bytes()
    }

    /// The learning rate of a step.
    pub fn rate(&self, step: u64) -> f64 {
        self.rates.at(step)
    }

    /// What the last steps recorded.
    pub fn recorder(&self) -> &TraceRecorder {
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
        self.remember();
        match &mut self.model {
            Some(model) => model.begin(),
            None => self.read_ahead(&program.train, Batch::Train(step))?,
        }
        let mut counts = self.execute(&program.train, Batch::Train(step), step)?;
        self.tell_when(&mut counts).map_err(|source| RunError::Device {
            step,
            instruction: program.train.len(),
            source,
        })?;
        self.rescale();
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

    fn execute(
        &mut self,
        instructions: &[Instruction],
        batch: Batch,
        step: u64,
    ) -> Result<StepCounts, RunError> {
        let mut counts = StepCounts::default();
        self.input.begin(batch);
        for (index, instruction) in instructions.iter().enumerate() {
            if let Some(place) = StepPhase::before(instruction) {
                self.at(place);
            }
            let done = self.instruction(instruction, batch, &mut counts);
            // What a message may have failed for.
            let done = self.arena.check().map_err(StepFault::from).and(done);
            done.map_err(|fault| fault.at(step, index))?;
        }
        let done = self.end_batch(batch, &mut counts);
        done.map_err(|fault| fault.at(step, instructions.len()))?;
        counts.input_ns = self.input.waited();
        counts.edge_error = self.activation_compression.take_error();
        Ok(counts)
    }

    fn instruction(
        &mut self,
        instruction: &Instruction,
        batch: Batch,
        counts: &mut StepCounts,
    ) -> Result<(), StepFault> {
        match *instruction {
            Instruction::Load { micro_batch, source, region } if self.model.is_none() => {
                self.load(batch, micro_batch, (source, region))?;
            }
            Instruction::Load { .. } => {}
            Instruction::Recv { from, tag, region, decode } => {
                self.receive(from, tag, region, decode, counts)?;
            }
            Instruction::Run { action, slot, outbox, version, reduces } => {
                let pass = self.pass(action, slot, outbox, version, batch);
                self.working(Work::Run(action), counts, |rank, counts| {
                    rank.run(action, &pass, reduces, counts)
                })?;
            }
            Instruction::Send { .. } => self.send_message(instruction, counts)?,
            Instruction::WaitSend { handle } => self.wait_send(handle)?,
            Instruction::WaitReduce { stage } => self.wait_reduce(stage)?,
            Instruction::Tie { index } => {
                self.waiting(Wait::Ranks, |rank| rank.tie(index))?;
            }
            Instruction::Broadcast { stage } => {
                self.waiting(Wait::Ranks, |rank| rank.broadcast(stage))?;
            }
            Instruction::Scatter { .. } => self.scatter(batch, instruction)?,
            Instruction::CheckGradients => {
                let start = self.transport.now_ns();
                if self.model.is_none() {
                    self.look_at_gradients()?;
                }
                // A device says itself how long it worked; the rest is waiting for it.
                if !self.arena.is_distant() {
                    counts.busy_ns += self.transport.now_ns() - start;
                }
                self.waiting(Wait::Ranks, |rank| rank.gradient_guard.meet(&mut rank.transport))?;
                self.gradients_checked();
                counts.gradient_norm = self.gradient_guard.norm();
                counts.skipped = self.gradient_guard.bad();
                counts.loss_scale = self.loss_scale().map(|scale| scale.factor);
            }
            Instruction::Optimizer { stage, from, to, index } => {
                self.working(Work::Optimizer(stage), counts, |rank, _| {
                    rank.update(stage, from, to, index)
                })?;
            }
        }
        Ok(())
    }

    /// What a device was asked for it did later: puts its work to where it was.
    fn tell_when(&mut self, counts: &mut StepCounts) -> Result<(), DeviceError> {
        if !self.arena.is_distant() {
            return Ok(());
        }
        self.arena.ages(&mut self.ages);
        self.arena.check()?;
        let now = self.transport.now_ns();
        let moments = self.ages.iter().map(|age| now.saturating_sub(*age));
        counts.busy_ns += self.recorder.worked_at(moments);
        Ok(())
    }

    /// Tells whoever watches that this rank is at a place of the step under way.
    pub fn at(&mut self, place: StepPhase) {
        if let Some(injury) =
            self.progress_hook.and_then(|progress_hook| progress_hook.at(place, self.step))
        {
            self.inject_fault(injury);
        }
    }

    /// Does work that counts as such.
    fn working(
        &mut self,
        work: Work,
        counts: &mut StepCounts,
        body: impl FnOnce(&mut Self, &mut StepCounts) -> Result<(), TransportError>,
    ) -> Result<(), TransportError> {
        let is_distant = self.arena.is_distant() && self.recorder.is_recording();
        if is_distant {
            self.arena.moment();
        }
        let start = self.transport.now_ns();
        if let Some(model) = &mut self.model {
            model.start(start);
        }
        thread_pool::awake(self.threads, || body(self, counts))?;
        self.arena.mark();
        self.dawdle(start);
        if let Some(model) = &mut self.model {
            model.finish(&self.transport);
        }
        let end = self.transport.now_ns();
        if is_distant {
            self.arena.moment();
        } else {
            counts.busy_ns += end - start;
        }
        self.recorder.worked(work, start, end);
        Ok(())
    }

    /// Does what may have to wait for another rank; returns when it was done.
    pub(super) fn waiting(
        &mut self,
        wait: Wait,
        body: impl FnOnce(&mut Self) -> Result<(), TransportError>,
    ) -> Result<u64, TransportError> {
        self.arena.flush();
        let start = self.transport.now_ns();
        body(self)?;
        let end = self.transport.now_ns();
        self.recorder.waited(wait, start, end);
        if let Some(model) = &mut self.model {
            model.waited(end - start);
        }
        Ok(end)
    }

    pub(super) fn begin_step(&mut self, step: u64) {
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
