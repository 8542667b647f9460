//! The loop around a rank's steps: agree, report, evaluate.

use super::choose::{Chooser, Ended, next_round};
use super::error::RunError;
use super::evaluate::{Tested, evaluate};
use super::rank::Rank;
use super::record::{RankTrace, merge};
use super::step::{Stepped, step_once};
use crate::checkpoint::{Begun, ChoiceRecord, Saver, save};
use crate::report::{Metrics, Progress};
use crate::transport::{Transport, TransportError};
use pipewright_core::plan::{Instruction, Plan};
use pipewright_core::predict::Prediction;
use pipewright_core::timeline::Trace;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    /// Whether to stop early.
    pub stop: StopFlag,
    /// Where training begins: at the start or where a checkpoint was saved.
    pub begun: Begun,
    /// When and where to save checkpoints.
    pub saver: Option<&'a Saver>,
    /// Steps between two traces besides the one at the end; 0 for none.
    pub trace_every: u64,
    /// Takes those traces, on rank 0.
    pub take_trace: &'a (dyn Fn(&Trace) -> Result<(), RunError> + Sync),
}

/// How a run went, the same on every rank except for the trace.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Steps that were trained, those before a checkpoint included.
    pub steps: u64,
    /// Loss of the last step, a mean over its mini-batch; 0 where nothing was trained.
    pub loss: f64,
    /// Whether something was trained.
    pub trained: bool,
    /// What the test samples gave at the end.
    pub test: Option<Tested>,
    /// Median time of a step on rank 0, without the first ones.
    pub step_ns: u64,
    /// Idle share of the ranks' time, over the same steps.
    pub bubble: f64,
    /// Time of all steps.
    pub total_ns: u64,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// Bytes that each rank allocated for tensors.
    pub arena: Vec<u64>,
    /// The last steps, on rank 0.
    pub trace: Option<Trace>,
}

/// Steps that warm caches up and are left out of the median, when there are enough others.
const WARM_UP: usize = 3;

/// Trains as the plan says, then evaluates.
///
/// # Errors
/// When a message fails, training diverges, metrics or a checkpoint cannot be written.
pub fn train<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    metrics: &mut Metrics,
    progress: &mut Progress,
) -> Result<Outcome, RunError> {
    let plan = context.plan;
    let Begun { step: first, loss, .. } = context.begun;
    let outcome = Outcome { steps: first, loss, trained: context.trains, ..Outcome::default() };
    let at = |step| move |source| RunError::Agreement { step, source };
    rank.transport.barrier().map_err(at(0))?;
    let begin = rank.transport.now_ns();
    let times = Vec::with_capacity(plan.steps.saturating_sub(first) as usize);
    let chooser = Chooser::begin(rank, context);
    if rank.transport.crew().0 > 0 {
        if let Some(mut chooser) = chooser {
            chooser.serve(rank, context)?;
        }
        return Ok(outcome);
    }
    let mut training =
        Training { outcome, times, chooser, metrics, progress, begin, before: begin };
    while training.outcome.steps < plan.steps && !training.outcome.interrupted {
        training.advance(rank, context)?;
    }
    if training.chooser.is_some() {
        next_round(rank, Some(None)).map_err(at(training.outcome.steps))?;
    }
    let Training { mut outcome, mut times, before, .. } = training;
    outcome.total_ns = before - begin;
    (outcome.step_ns, outcome.bubble) = summary(&mut times, plan.ranks() as usize);
    progress.finish();
    if !outcome.interrupted && context.test_samples > 0 && outcome.test.is_none() {
        outcome.test = evaluate(rank, context, plan.steps)?;
        outcome.interrupted = outcome.test.is_none();
    }
    (outcome.arena, outcome.trace) = collect(rank, context, begin).map_err(at(outcome.steps))?;
    Ok(outcome)
}

/// A training under way.
struct Training<'a, 'b> {
    outcome: Outcome,
    /// Of each step: its time, and the time that all ranks computed.
    times: Vec<(u64, f64)>,
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
    ) -> Result<(), RunError> {
        let step = self.outcome.steps;
        let plan = context.plan;
        match self.chooser.as_mut().filter(|chooser| chooser.is_due(step, plan.steps)) {
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
        let history = self.chooser.as_ref().map(|chooser| chooser.record(rank));
        if keep(rank, context, self.metrics, (&self.outcome, step, history))? {
            self.before = rank.transport.now_ns();
        }
        self.trace(rank, context, step)
    }

    /// A trace on the way, where one is due after the steps since `start`. The one at the end is not
    /// written here.
    fn trace<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
        start: u64,
    ) -> Result<(), RunError> {
        let (every, end) = (context.trace_every, self.outcome.steps);
        let last = self.outcome.interrupted || end == context.plan.steps;
        if every == 0 || end / every == start / every || last {
            return Ok(());
        }
        let at = |source| RunError::Agreement { step: end, source };
        if let (_, Some(trace)) = collect(rank, context, self.begin).map_err(at)? {
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
    ) -> Result<(), RunError> {
        let first = self.outcome.steps;
        let Some((last, others)) = stepped.split_last() else { return Ok(()) };
        for stepped in others {
            self.tell(stepped, None)?;
        }
        let Stepped { record, loss, stop, .. } = *last;
        if !loss.is_finite() {
            let rate = record.learning_rate.unwrap_or_default();
            return Err(RunError::Diverged { step: record.step, loss, rate });
        }
        let outcome = &mut self.outcome;
        (outcome.steps, outcome.loss, outcome.interrupted) = (record.step + 1, loss, stop);
        outcome.test = None;
        self.before = rank.transport.now_ns();
        if context.tests_between(first, outcome.steps) && !outcome.interrupted {
            outcome.test = evaluate(rank, context, record.step)?;
            outcome.interrupted = outcome.test.is_none();
            self.before = rank.transport.now_ns();
        }
        self.tell(last, self.outcome.test)
    }

    fn tell(&mut self, stepped: &Stepped, test: Option<Tested>) -> Result<(), RunError> {
        let Stepped { mut record, busy_ns, .. } = *stepped;
        if let (Some(chooser), Some(accuracy)) = (&mut self.chooser, record.accuracy) {
            chooser.learn(record.step, accuracy);
        }
        self.times.push((record.step_ns, busy_ns));
        self.progress.step(record.step, record.loss, record.step_ns, busy_ns);
        record.test_loss = test.map(|test| test.loss);
        record.test_accuracy = test.and_then(|test| test.accuracy());
        self.metrics.step(record)
    }
}

impl Context<'_> {
    /// Whether the test samples are evaluated after `end` steps of training, the last of which came
    /// in one go since `start`.
    fn tests_between(&self, start: u64, end: u64) -> bool {
        let every = self.eval_every;
        every > 0 && self.test_samples > 0 && end / every > start / every
    }
}

/// Saves a checkpoint after the steps since `start`, where one is due or the run ends; whether it did.
fn keep<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    metrics: &mut Metrics,
    (outcome, start, choice): (&Outcome, u64, Option<ChoiceRecord>),
) -> Result<bool, RunError> {
    let ends = outcome.interrupted || outcome.steps == context.plan.steps;
    let due = |saver: &&Saver| ends || saver.is_due(start, outcome.steps);
    let Some(saver) = context.saver.filter(due) else { return Ok(false) };
    // What a continuation finds of the metrics is at least what its checkpoint has.
    metrics.flush()?;
    save(rank, saver, (outcome.steps, outcome.loss), choice)?;
    Ok(true)
}

/// Median step time, and the idle share over the same steps.
fn summary(times: &mut [(u64, f64)], ranks: usize) -> (u64, f64) {
    let skip = if times.len() > 2 * WARM_UP { WARM_UP } else { 0 };
    let times = &mut times[skip..];
    if times.is_empty() {
        return (0, 0.0);
    }
    let total: u64 = times.iter().map(|(time, _)| time).sum();
    let busy: f64 = times.iter().map(|(_, busy)| busy).sum();
    let bubble = 1.0 - busy / (total as f64 * ranks as f64);
    times.sort_by_key(|(time, _)| *time);
    (times[times.len() / 2].0, bubble)
}

/// Gathers arena sizes and the ranks' records on rank 0.
fn collect<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    begin: u64,
) -> Result<(Vec<u64>, Option<Trace>), TransportError> {
    let record = (rank.arena_bytes(), rank.recorder().trace());
    let bytes = serde_json::to_vec(&record).expect("plain data");
    let Some(all) = rank.transport.gather(&bytes)? else { return Ok((vec![], None)) };
    let parse = |bytes: &Vec<u8>| -> (u64, RankTrace) {
        serde_json::from_slice(bytes).expect("written by the same program")
    };
    let (arena, ranks): (Vec<u64>, Vec<RankTrace>) = all.iter().map(parse).unzip();
    let prediction = context.prediction;
    let trace = merge(prediction.graph.name(), &prediction.programs, &ranks, begin);
    Ok((arena, Some(trace)))
}
