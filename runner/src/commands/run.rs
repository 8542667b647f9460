//! `runner run`: trains by a plan, each rank a thread or an MPI process.

mod asked;
mod gpu;
mod launch;
mod output;
mod rank_errors;
mod state;
mod stop;
#[cfg(feature = "mpi")]
mod survive;
pub(super) mod trial;

use crate::args::{CudaArgs, DeviceKind, RunArgs, TransportKind};
use crate::data::{self, DataSet};
use crate::device::cuda::Gpu;
use crate::device::model::Model;
use crate::elastic::RankSession;
use crate::execute::{ProgressHook, Rank, RunError, StepPhase, available_memory};
use crate::failure::{Code, Failure};
use crate::report::{Metrics, Outcome, Progress, summary};
use crate::train::{Context, StopFlag, TrainError, predictions, train};
use crate::transport::{Transport, launched_by_mpi};
pub(super) use asked::threads;
use asked::{nothing_is_trained, plan_of};
#[cfg(feature = "mpi")]
pub(super) use launch::together;
use output::Output;
use pipewright_core::plan::{Data, Instruction, Plan, Program};
use pipewright_core::predict::{Prediction, Throughput, evaluation, predict_with};
use pipewright_core::units::{Bytes, Nanos};
use rank_errors::known_to_all;
pub(super) use rank_errors::{caused_by_peer, failure};
use state::{Parts, RunState};
use std::sync::{Arc, OnceLock};
pub(super) use stop::stop_flag;

/// A run, before its ranks start.
struct Run {
    plan: Plan,
    prediction: Prediction,
    evaluation: Vec<Vec<Instruction>>,
    data: DataSet,
    output: Output,
    state: RunState,
    eval_every: u64,
    trace_every: u64,
    check_replicas: u64,
    stop: StopFlag,
    threads: usize,
    device: DeviceKind,
    transport: TransportKind,
    /// The first rank of this process that failed, and why.
    failed: Arc<OnceLock<(u32, String)>>,
    /// For device `cuda`: one at least.
    gpus: Vec<Gpu>,
    cuda: CudaArgs,
    are_processes: bool,
    json: bool,
    /// Crews of threads.
    crews: u32,
    /// This rank's, in an elastic job.
    session: Option<RankSession>,
    /// Whether this rank goes on after the loss of others.
    survives: bool,
}

/// Runs the command.
pub fn run(args: RunArgs) -> Result<(), Failure> {
    match processes(&args)? {
        Some(_) if args.crews > 1 => Err(Failure::usage(
            "--crews is for threads; under mpirun start as many ranks for each crew",
        )),
        Some(_) => launch::processes(args),
        None => launch::threads(&Run::prepare(&args, None, None)?),
    }
}

/// How many processes the ranks are, or `None` when they are threads.
fn processes(args: &RunArgs) -> Result<Option<u32>, Failure> {
    match (args.transport, launched_by_mpi()) {
        (TransportKind::Local, Some(given)) if given > 1 => Err(Failure::usage(format!(
            "--transport local runs all ranks in one process, and mpirun started {given} of them"
        ))),
        (TransportKind::Mpi, None) => Err(Failure::usage(format!(
            "--transport mpi needs mpirun: mpirun -n RANKS runner {}",
            args.plan.display()
        ))),
        (TransportKind::Local, _) | (_, None) => Ok(None),
        (_, Some(given)) => Ok(Some(given)),
    }
}

/// Memory of a rank with this program: its arena, and copies of what lasts where trials are made.
fn memory(plan: &Plan, program: &Program) -> Bytes {
    let copies = plan
        .communication
        .choose
        .as_ref()
        .map_or(0, |_| plan.communication.gradient_reductions().len() + 1);
    program.arena + program.persistent * copies as u64
}

/// Refuses a plan whose tensors do not fit into this machine's memory.
pub(super) fn fits(
    plan: &Plan,
    prediction: &Prediction,
    rank: Option<u32>,
    crews: u32,
) -> Result<(), Failure> {
    let programs = &prediction.programs;
    let all: Bytes = match rank {
        Some(rank) => memory(plan, &programs[plan.mesh().lane(rank).index()]),
        None => {
            let lanes: Bytes = programs.iter().map(|program| memory(plan, program)).sum();
            lanes * u64::from(plan.mesh().copies()) * u64::from(crews)
        }
    };
    let Some(available) = available_memory().filter(|available| all > *available) else {
        return Ok(());
    };
    let who = rank.map_or("all ranks together".into(), |rank| {
        let program = &programs[plan.mesh().lane(rank).index()];
        let stages: Vec<String> = program.stages.iter().map(|s| s.stage.0.to_string()).collect();
        format!("rank {rank} (stage {})", stages.join(", "))
    });
    Err(Failure::new(
        Code::Hardware,
        format!(
            "{who} would need {all} for tensors, and {available} are left. \
             Use more stages on more machines, a smaller mini-batch or more micro-batches"
        ),
    ))
}

/// Refuses a plan that this machine has no room for. A GPU says itself what it has none for, before anything
/// begins.
fn has_room(
    args: &RunArgs,
    plan: &Plan,
    prediction: &Prediction,
    rank: Option<u32>,
) -> Result<(), Failure> {
    match args.device {
        DeviceKind::Cpu | DeviceKind::Model => fits(plan, prediction, rank, args.crews),
        DeviceKind::Cuda => Ok(()),
    }
}

/// Says what is odd about the data; an elastic job has said it when it began.
fn remark(plan: &Plan, data: &DataSet, session: Option<&RankSession>) {
    if session.is_none_or(|session| session.fence.generation() == 1) {
        for remark in data::remarks(&plan.data, data, plan.mini_batch) {
            warn!("data {}: {remark}", plan.data);
        }
    }
}

impl Run {
    /// Everything that can go wrong before training does so here. `process` is this rank, the
    /// number of ranks and the crew where they are processes; `session` is its in an elastic job.
    fn prepare(
        args: &RunArgs,
        process: Option<(u32, u32, u32)>,
        session: Option<RankSession>,
    ) -> Result<Self, Failure> {
        let mut run =
            Self::of(args, plan_of(args, process)?, process, session, StopFlag::default())?;
        if process.is_none_or(|(rank, _, crew)| rank == 0 && crew == 0) {
            remark(&run.plan, &run.data, run.session.as_ref());
            let continued = run.state.continues(args).then(|| run.plan.ranks());
            run.output.begin(args.overwrite, continued)?;
        }
        run.stop = stop_flag()?;
        Ok(run)
    }

    /// A run of `plan`, of whose output nothing is begun.
    fn of(
        args: &RunArgs,
        mut plan: Plan,
        process: Option<(u32, u32, u32)>,
        session: Option<RankSession>,
        stop: StopFlag,
    ) -> Result<Self, Failure> {
        let threads = threads(args.threads, plan.ranks())?;
        let halves = args.device.halves(&plan);
        let prediction = predict_with(&plan, halves)?;
        let modelled = args.device == DeviceKind::Model;
        let gpus = match args.device {
            DeviceKind::Cuda => super::devices::usable_gpus()?,
            DeviceKind::Cpu | DeviceKind::Model => vec![],
        };
        if modelled {
            nothing_is_trained(args)?;
            // Samples are not looked at, and need not be here.
            plan.data = Data::default();
        } else {
            super::runnable(&prediction.graph)?;
            has_room(args, &plan, &prediction, process.map(|(rank, ..)| rank))?;
        }
        let evaluation = evaluation(&plan, halves)?;
        let sample = prediction.graph.sample().expect("plans train on samples");
        let mut data = data::open(&plan.data, &sample, plan.seed)
            .map_err(|e| Failure::usage(format!("data {}: {e}", plan.data)))?;
        let most = if args.no_eval { 0 } else { args.eval_samples.unwrap_or(u64::MAX) };
        data.test = data.test.first(most);
        // Files have whole parameters.
        let whole = plan.model.graph().map_err(|e| Failure::usage(e.to_string()))?;
        let parts = Parts {
            plan: &plan,
            graph: &whole,
            train_samples: data.train.len(),
            session: session.as_ref(),
            handle: sends(&prediction),
        };
        let state = RunState::prepare(
            args,
            parts,
            process.is_none_or(|(rank, _, crew)| rank == 0 && crew == 0),
        )?;
        let output =
            Output::new(args, &prediction, session.as_ref().map(|session| session.fence.clone()));
        Ok(Self {
            plan,
            prediction,
            evaluation,
            data,
            output,
            state,
            eval_every: args.eval_every,
            trace_every: args.trace_every,
            check_replicas: if modelled { 0 } else { args.check_replicas },
            stop,
            threads,
            device: args.device,
            transport: args.transport,
            failed: Arc::default(),
            gpus,
            cuda: args.cuda,
            are_processes: process.is_some(),
            json: args.json,
            crews: args.crews,
            session,
            survives: args.survives,
        })
    }

    /// Most sends that a rank has under way; one more is for states in other hosts' memory.
    fn handles(&self) -> usize {
        sends(&self.prediction) + usize::from(self.session.is_some())
    }

    /// One rank, from its first weight to its last metric. `end` is told how it went while the
    /// rank is still connected; where it says so, the transport is for another generation.
    fn rank<T: Transport>(
        &self,
        transport: T,
        end: impl FnOnce(&Result<Outcome, TrainError>, &mut T) -> bool,
    ) -> (Result<Outcome, TrainError>, Option<T>) {
        let index = transport.rank();
        let trains = transport.crew().0 == 0;
        let speaks = index == 0 && trains && !self.json;
        let (plan, prediction) = (&self.plan, &self.prediction);
        let mut progress = if speaks {
            let timeline = &prediction.timeline;
            let peak = timeline.peak().map_or(Bytes::ZERO, |(_, bytes)| bytes);
            Progress::new(plan.ranks(), timeline.bubble(), peak)
        } else {
            Progress::silent()
        };
        let program = &prediction.programs[plan.mesh().lane(index).index()];
        let parts = (plan, &prediction.graph, program);
        let _panics = gpu::Panics { run: self, rank: index };
        let mut rank = match self.device {
            DeviceKind::Cpu => Rank::new(parts, &self.data, transport, self.threads),
            DeviceKind::Cuda => match gpu::rank(self, parts, transport, &progress) {
                Ok(rank) => rank,
                Err((error, transport)) => return self.no_device(error.into(), transport, end),
            },
            DeviceKind::Model => {
                let model = Model::new(&prediction.costs, &prediction.stages);
                Rank::modelled(parts, &self.data, transport, model)
            }
        };
        rank.progress_hook = self.session.as_ref().map(|session| session as &dyn ProgressHook);
        rank.at(StepPhase::Start);
        let result = self.train(&mut rank, trains, &mut progress);
        if let Err(error) = &result {
            // For ranks of this process that wait for this one's device.
            let _ = self.failed.set((index, error.to_string()));
        }
        let is_over = !result.as_ref().is_err_and(|error| self.goes_on_after(error));
        if is_over {
            rank.at(StepPhase::Exit);
        }
        if let Err(error) = &result
            && is_over
            && (index == 0 || !known_to_all(error))
        {
            self.output.fail(error);
        }
        if end(&result, &mut rank.transport) {
            return (result, Some(rank.into_transport()));
        }
        if let Err(error) = &result
            && !caused_by_peer(error)
            && !known_to_all(error)
        {
            rank.transport.abort(i32::from(Code::Failed as u8), &error.to_string());
        }
        (result, None)
    }

    /// A rank has no device, or devices cannot talk as they are asked to: says so, and ends the others;
    /// unless others were lost meanwhile, which `end` is told.
    fn no_device<T: Transport>(
        &self,
        error: TrainError,
        mut transport: T,
        end: impl FnOnce(&Result<Outcome, TrainError>, &mut T) -> bool,
    ) -> (Result<Outcome, TrainError>, Option<T>) {
        if self.goes_on_after(&error) {
            let result = Err(error);
            let goes_on = end(&result, &mut transport);
            return (result, goes_on.then_some(transport));
        }
        let rank = transport.rank();
        let all_know = known_to_all(&error);
        if rank == 0 || !all_know {
            self.output.fail(&error);
            if self.are_processes {
                // Nothing is said any more after the end of MPI.
                error!("{}", failure(rank, &error).message);
            }
        }
        if !all_know || transport.barrier().is_ok() {
            let code = failure(rank, &error).code;
            transport.abort(i32::from(code as u8), &error.to_string());
        }
        (Err(error), None)
    }

    /// Whether this rank goes on after an error: others were lost, which it noticed itself or hears
    /// from the supervisor, who has given this generation up.
    fn goes_on_after(&self, error: &TrainError) -> bool {
        self.survives && (error.is_loss() || self.is_given_up())
    }

    /// Whether the supervisor has given this rank's generation up.
    fn is_given_up(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.fence.check().is_err())
    }

    /// A rank's training, from its first message to its last metric. Metrics are dropped, and so
    /// written, when it returns: `abort` may end the process after that. That they cannot be made is
    /// an error like those of training: the other ranks must hear of it.
    fn train<T: Transport>(
        &self,
        rank: &mut Rank<T>,
        trains: bool,
        progress: &mut Progress,
    ) -> Result<Outcome, TrainError> {
        let (plan, prediction) = (&self.plan, &self.prediction);
        let connected = rank.connect(&prediction.groups);
        connected.map_err(|source| RunError::Agreement { step: 0, source })?;
        let memory = self.state.memory(rank)?;
        let begun = self.state.begin(rank, memory.as_ref())?;
        if let Some(progress_hook) = rank.progress_hook {
            progress_hook.begun(begun.origin);
        }
        rank.at(StepPhase::Begun);
        let steps = begun.steps(plan);
        progress.begin(steps);
        let mut metrics = match trains {
            true => self.output.metrics(rank.transport.rank(), begun.origin.step)?,
            false => Metrics::none(),
        };
        let context = Context {
            plan,
            prediction,
            evaluation: &self.evaluation,
            test_samples: match self.device {
                DeviceKind::Cpu | DeviceKind::Cuda => self.data.test.len(),
                DeviceKind::Model => 0,
            },
            trains: self.device != DeviceKind::Model,
            predictions: match self.device {
                DeviceKind::Cpu | DeviceKind::Cuda => predictions(&prediction.graph),
                DeviceKind::Model => None,
            },
            eval_every: self.eval_every,
            check_replicas: self.check_replicas,
            stop: self.stop.clone(),
            begun,
            steps,
            saver: self.state.saver.as_ref(),
            memory: memory.as_ref(),
            generation: self.session.as_ref().map(|session| session.fence.generation()),
            trace_every: self.trace_every,
            take_trace: &|trace| self.output.trace(trace),
        };
        train(rank, &context, &mut metrics, progress)
    }

    /// What the measured steps got done. The peak of this machine's processors is not known.
    fn throughput(&self, outcome: &Outcome) -> Option<Throughput> {
        let step = Some(Nanos(outcome.step_ns)).filter(|step| step.0 > 0)?;
        let throughput = self.plan.throughput(&self.prediction.graph, step);
        let is_cpu = self.device == DeviceKind::Cpu;
        Some(Throughput { mfu: throughput.mfu.filter(|_| !is_cpu), ..throughput })
    }

    /// What rank 0 does with the outcome.
    fn finish(&self, outcome: &Outcome) -> Result<(), Failure> {
        let throughput = self.throughput(outcome);
        let record = self.output.finish(outcome, throughput)?;
        if self.json {
            say!("{}", serde_json::to_string_pretty(&record).expect("plain data"));
        } else if outcome.interrupted && self.session.is_some() {
            // Others go on from here: the figures are those of the last generation.
            note!("stopped after step {}, whose state is kept", outcome.steps);
        } else {
            tell!(
                "{}",
                summary(&self.plan, &self.prediction, outcome, throughput.as_ref()).trim_end()
            );
        }
        // A supervisor asked for it and reads the record; mpirun would only shout about codes.
        if outcome.interrupted && self.session.is_none() {
            let during = if outcome.complete { ", while testing" } else { "" };
            let message = format!("interrupted after step {}{during}", outcome.steps);
            return Err(Failure::new(Code::Interrupted, message));
        }
        Ok(())
    }
}

/// Most sends that the program of a rank has under way.
pub(super) fn sends(prediction: &Prediction) -> usize {
    prediction.programs.iter().map(|p| p.handles).max().unwrap_or(0) as usize
}
