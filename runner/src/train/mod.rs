//! Training loop around a rank's steps: agree, choose, report, evaluate, save.

mod choose;
mod error;
mod evaluate;
mod replica_check;
mod step;

use crate::checkpoint::{Begun, ChoiceRecord, Saver, Steps, save};
use crate::device::{DeviceReport, Graphs};
use crate::execute::{Rank, RankTrace, RunError, Skipped, StepPhase, merge};
use crate::report::{Metrics, Outcome, Progress, ReportError, Tested};
use crate::transport::{Transport, TransportError};
use choose::{Chooser, Ended, next_round};
pub use error::TrainError;
pub use evaluate::{Evaluation, evaluate, predictions};
use pipewright_core::plan::{Instruction, Plan};
use pipewright_core::predict::Prediction;
use pipewright_core::timeline::Trace;
use replica_check::verify;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use step::{Stepped, step_once};

/// Set by a signal: finish the step, then stop.
pub type StopFlag = Arc<AtomicBool>;

/// What the ranks of a run share.
pub struct Context<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What it predicts.
    pub prediction: &'a Prediction,
    /// What each rank does to evaluate a mini-batch.
    pub evaluation: &'a [Vec<Instruction>],
    /// Predictions that a sample asks for; none where nothing is classified, or trained.
    pub predictions: Option<u64>,
    /// Test samples.
    pub test_samples: u64,
    /// Whether there are losses; device `model` has none, and they are 0.
    pub trains: bool,
    /// Steps between two evaluations besides the one at the end; 0 for none.
    pub eval_every: u64,
    /// Steps between two comparisons of replicas; 0 for none.
    pub check_replicas: u64,
    /// Whether to stop early.
    pub stop: StopFlag,
    /// Where training begins: at the start or where a checkpoint was saved.
    pub begun: Begun,
    /// Steps in all, [`Begun::steps`] of the plan.
    pub steps: u64,
    /// When and where to save checkpoints.
    pub saver: Option<&'a Saver>,
    /// Where the state of every step is kept besides, in an elastic job.
    pub memory: Option<&'a Saver>,
    /// The generation of an elastic job.
    pub generation: Option<u64>,
    /// Steps between two traces besides the one at the end; 0 for none.
    pub trace_every: u64,
    /// Takes those traces, on rank 0.
    pub take_trace: &'a (dyn Fn(&Trace) -> Result<(), ReportError> + Sync),
}

/// Steps that warm caches up and are left out of the median, when there are enough others.
const WARM_UP: usize = 3;

/// What a step took: all of it, its input on rank 0, and computing on all ranks.
#[derive(Clone, Copy)]
struct StepTime {
    step_ns: u64,
    input_ns: u64,
    busy_ns: f64,
}

/// Steps for whose times there is room from the beginning; what more of them take comes with them.
const TIMES_AT_ONCE: u64 = 1 << 16;

/// Trains as the plan says, then evaluates.
///
/// # Errors
/// When a message fails, training diverges, metrics or a checkpoint cannot be written.
pub fn train<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    metrics: &mut Metrics,
    progress: &mut Progress,
) -> Result<Outcome, TrainError> {
    let plan = context.plan;
    let Begun { origin, loss, skipped, .. } = context.begun;
    let first = origin.step;
    let outcome = Outcome { steps: first, loss, trained: context.trains, ..Outcome::default() };
    // All replicas of a stage begin with one and the same file.
    let alike = first;
    let at = |step| move |source| RunError::Agreement { step, source };
    rank.transport.barrier().map_err(at(0))?;
    let begin = rank.transport.now_ns();
    let left = context.steps.saturating_sub(first);
    let times = Vec::with_capacity(left.min(TIMES_AT_ONCE) as usize);
    let chooser = Chooser::begin(rank, context);
    if rank.transport.crew().0 > 0 {
        if let Some(mut chooser) = chooser {
            chooser.serve(rank, context)?;
        }
        return Ok(outcome);
    }
    let mut training = Training {
        outcome,
        skipped,
        alike,
        times,
        chooser,
        metrics,
        progress,
        begin,
        before: begin,
    };
    while training.outcome.steps < context.steps && !training.outcome.interrupted {
        training.advance(rank, context)?;
    }
    if training.chooser.is_some() {
        next_round(rank, Some(None)).map_err(at(training.outcome.steps))?;
    }
    training.outcome.complete = training.outcome.steps == context.steps;
    let Training { mut outcome, skipped, times, before, .. } = training;
    outcome.skipped = plan.training.skips().map(|_| skipped.total);
    outcome.total_ns = before - begin;
    summary(&times, plan.ranks() as usize, &mut outcome);
    progress.finish();
    if !outcome.interrupted && context.test_samples > 0 && outcome.test.is_none() {
        outcome.test = evaluate(rank, &context.test(), context.steps)?;
        outcome.interrupted = outcome.test.is_none();
    }
    let Collected { arena, graphs, algorithms, no_fp8, trace } =
        collect(rank, context, begin).map_err(at(outcome.steps))?;
    (outcome.arena, outcome.graphs, outcome.trace) = (arena, graphs, trace);
    (outcome.algorithms, outcome.no_fp8) = (algorithms, no_fp8);
    Ok(outcome)
}

/// A training under way.
struct Training<'a, 'b> {
    outcome: Outcome,
    skipped: Skipped,
    /// Steps after which replicas were known to be alike.
    alike: u64,
    /// Of each step: its time, and the time that all ranks computed.
    times: Vec<StepTime>,
    chooser: Option<Chooser<'a>>,
    metrics: &'b mut Metrics,
    progress: &'b mut Progress,
    /// When the first step began.
    begin: u64,
    /// When the last step ended.
    before: u64,
}

impl Training<'_, '_> {
    /// A step, or a choice and the steps of the chosen trial; then what is due after it.
    fn advance<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
    ) -> Result<(), TrainError> {
        let step = self.outcome.steps;
        match self.chooser.as_mut().filter(|chooser| chooser.is_due(step, context.steps)) {
            None => {
                let stepped = step_once(rank, context, step, self.before)?;
                self.count(rank, context, &[stepped])?;
            }
            Some(chooser) => match chooser.lead(rank, context, step)? {
                Ended::Chosen(choice, stepped) => {
                    self.metrics.choice(&choice)?;
                    self.progress.chose(&choice);
                    self.count(rank, context, &stepped)?;
                }
                Ended::Interrupted => self.outcome.interrupted = true,
            },
        }
        self.verify(rank, context, step)?;
        let known = self.kept(rank);
        if keep(rank, context, self.metrics, &self.outcome, known, step)? {
            self.before = rank.transport.now_ns();
            rank.at(StepPhase::Committed);
        }
        self.trace(rank, context, step)
    }

    /// Compares replicas after the steps since `start` where that is due: every so many steps, and
    /// before anything goes to the disk, so that what is there is right.
    fn verify<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
        start: u64,
    ) -> Result<(), TrainError> {
        let (every, end) = (context.check_replicas, self.outcome.steps);
        let ends = self.outcome.interrupted || end == context.steps;
        let saves = context.saver.is_some_and(|saver| saver.is_due(start, end));
        if every == 0 || !(end / every > start / every || ends || saves) {
            return Ok(());
        }
        verify(rank, context, self.alike..end)?;
        self.alike = end;
        // What is looked at between steps is none of the next one's time.
        self.before = rank.transport.now_ns();
        Ok(())
    }

    /// What a checkpoint says of the steps besides their number.
    fn kept<T: Transport>(&self, rank: &Rank<T>) -> Kept {
        let choice = self.chooser.as_ref().map(|chooser| chooser.record(rank));
        Kept { skipped: self.skipped, alike: self.alike, choice }
    }

    /// A trace on the way, where one is due after the steps since `start`. The one at the end is not
    /// written here.
    fn trace<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
        start: u64,
    ) -> Result<(), TrainError> {
        let (every, end) = (context.trace_every, self.outcome.steps);
        let last = self.outcome.interrupted || end == context.steps;
        if every == 0 || end / every == start / every || last {
            return Ok(());
        }
        let at = |source| RunError::Agreement { step: end, source };
        if let Some(trace) = collect(rank, context, self.begin).map_err(at)?.trace {
            (context.take_trace)(&trace)?;
        }
        // What is written for the one who looks on is none of the next step's time.
        self.before = rank.transport.now_ns();
        Ok(())
    }

    /// Steps that were made: agree on them, test after the last where it is due, tell.
    fn count<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
        stepped: &[Stepped],
    ) -> Result<(), TrainError> {
        let first = self.outcome.steps;
        let Some((last, others)) = stepped.split_last() else { return Ok(()) };
        for stepped in others {
            self.judge(stepped, context)?;
            self.tell(stepped, None)?;
        }
        self.judge(last, context)?;
        let Stepped { record, loss, stop, .. } = *last;
        let outcome = &mut self.outcome;
        (outcome.steps, outcome.interrupted) = (record.step + 1, stop);
        if loss.is_finite() {
            outcome.loss = loss;
        }
        outcome.test = None;
        self.before = rank.transport.now_ns();
        if context.tests_between(first, outcome.steps) && !outcome.interrupted {
            outcome.test = evaluate(rank, &context.test(), record.step)?;
            outcome.interrupted = outcome.test.is_none();
            self.before = rank.transport.now_ns();
        }
        self.tell(last, self.outcome.test)
    }

    /// Whether a step is one to go on from; the same on all ranks.
    fn judge(&mut self, stepped: &Stepped, context: &Context) -> Result<(), TrainError> {
        let Stepped { record, loss, skipped, .. } = *stepped;
        let rate = record.learning_rate.unwrap_or_default();
        self.skipped.count(skipped.is_some());
        let Some(param) = skipped else {
            return match loss.is_finite() {
                true => Ok(()),
                false => Err(TrainError::Diverged { step: record.step, loss, rate }),
            };
        };
        let param = &context.prediction.graph.param(param).name;
        let steps = self.skipped.in_row;
        if context.plan.training.skips().is_some_and(|most| steps >= most) {
            let (step, param) = (record.step, param.clone());
            return Err(TrainError::NotFinite { step, steps, param, rate });
        }
        self.progress.skipped(record.step, param);
        Ok(())
    }

    fn tell(&mut self, stepped: &Stepped, test: Option<Tested>) -> Result<(), TrainError> {
        let Stepped { mut record, busy_ns, .. } = *stepped;
        if let (Some(chooser), Some(accuracy)) = (&mut self.chooser, record.accuracy) {
            chooser.learn(record.step, accuracy);
        }
        self.times.push(StepTime { step_ns: record.step_ns, input_ns: record.input_ns, busy_ns });
        self.progress.step(record.step, record.loss, record.step_ns, busy_ns);
        record.test_loss = test.map(|test| test.loss);
        record.test_accuracy = test.and_then(|test| test.accuracy());
        Ok(self.metrics.step(record)?)
    }
}

impl Context<'_> {
    /// The test samples.
    fn test(&self) -> Evaluation<'_> {
        Evaluation {
            plan: self.plan,
            instructions: self.evaluation,
            samples: self.test_samples,
            predictions: self.predictions,
            stop: &self.stop,
        }
    }

    /// Whether the test samples are evaluated after `end` steps of training, the last of which came
    /// in one go since `start`.
    fn tests_between(&self, start: u64, end: u64) -> bool {
        let every = self.eval_every;
        every > 0 && self.test_samples > 0 && end / every > start / every
    }
}

/// What is kept besides tensors.
struct Kept {
    skipped: Skipped,
    alike: u64,
    choice: Option<ChoiceRecord>,
}

/// Saves a checkpoint after the steps since `start`, where one is due or the run ends; whether it did.
fn keep<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    metrics: &mut Metrics,
    outcome: &Outcome,
    known: Kept,
    start: u64,
) -> Result<bool, TrainError> {
    let ends = outcome.interrupted || outcome.steps == context.steps;
    // In memory the last state stays that is known to be right.
    let spare = Some(known.alike).filter(|_| context.check_replicas > 0);
    let savers = [(context.memory, spare), (context.saver, None)];
    let in_memory = context.memory.map(|saver| &saver.folder);
    let mut kept = false;
    for (saver, spare) in savers.into_iter().filter_map(|(saver, spare)| Some((saver?, spare))) {
        let known_right = spare == Some(outcome.steps);
        let is_spare = in_memory.is_some_and(|memory| *memory != saver.folder);
        if !(ends || known_right || saver.is_due(start, outcome.steps)) {
            continue;
        }
        // What a continuation finds of the metrics is at least what its checkpoint has.
        metrics.flush()?;
        let trained = context.begun.origin.after(context.plan.mini_batch, outcome.steps);
        let steps = Steps { trained, loss: outcome.loss, skipped: known.skipped, spare };
        let step = outcome.steps;
        let saved = save(rank, saver, steps, known.choice.clone());
        match saved.map_err(|source| RunError::Agreement { step, source })? {
            Ok(()) => kept = true,
            // The last state is in memory, and the disk has the one before: all go on, and try again.
            Err(source) if is_spare && !ends => {
                if rank.transport.rank() == 0 {
                    let error = TrainError::Checkpoint { step, source };
                    warn!("{error}; the checkpoint before it stays");
                }
            }
            Err(source) => return Err(TrainError::Checkpoint { step, source }),
        }
    }
    Ok(kept)
}

/// What steps took in the middle, and their idle share in the middle.
fn summary(times: &[StepTime], ranks: usize, outcome: &mut Outcome) {
    let skip = if times.len() > 2 * WARM_UP { WARM_UP } else { 0 };
    let times = &times[skip..];
    if times.is_empty() {
        return;
    }
    let median = |of: &dyn Fn(&StepTime) -> f64| {
        let mut all: Vec<f64> = times.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        let (low, high) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
        low + (high - low) / 2.0
    };
    outcome.step_ns = median(&|time| time.step_ns as f64) as u64;
    outcome.input_ns = median(&|time| time.input_ns as f64) as u64;
    outcome.bubble = median(&|time| 1.0 - time.busy_ns / (time.step_ns as f64 * ranks as f64));
}

/// What rank 0 hears of all ranks; nothing on the others.
#[derive(Default)]
struct Collected {
    arena: Vec<u64>,
    graphs: Vec<Graphs>,
    algorithms: Vec<String>,
    no_fp8: Option<String>,
    trace: Option<Trace>,
}

/// Gathers arena sizes, what devices replayed and the ranks' records on rank 0.
fn collect<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    begin: u64,
) -> Result<Collected, TransportError> {
    let device = rank.report();
    let record = ((rank.arena_bytes(), device), rank.recorder().trace());
    let bytes = serde_json::to_vec(&record).expect("plain data");
    let Some(all) = rank.transport.gather(&bytes)? else { return Ok(Collected::default()) };
    let parse = |bytes: &Vec<u8>| -> ((u64, DeviceReport), RankTrace) {
        serde_json::from_slice(bytes).expect("written by the same program")
    };
    let (sizes, ranks): (Vec<_>, Vec<RankTrace>) = all.iter().map(parse).unzip();
    let (arena, devices): (Vec<u64>, Vec<DeviceReport>) = sizes.into_iter().unzip();
    let prediction = context.prediction;
    let trace = merge(prediction.graph.name(), &prediction.programs, &ranks, begin);
    let no_fp8 = devices.iter().find_map(|device| device.no_fp8.clone());
    let graphs = devices.iter().filter_map(|device| device.graphs.clone()).collect();
    let algorithms: BTreeSet<String> =
        devices.into_iter().flat_map(|device| device.algorithms).collect();
    let algorithms = algorithms.into_iter().collect();
    Ok(Collected { arena, graphs, algorithms, no_fp8, trace: Some(trace) })
}
