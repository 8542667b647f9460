//! The loop around a rank's steps: agree, report, evaluate.

use super::edges::EdgeError;
use super::error::RunError;
use super::evaluate::{Tested, evaluate, predictions};
use super::rank::Rank;
use super::rate::Rates;
use super::record::{RankTrace, merge};
use crate::checkpoint::{Begun, Saver, save};
use crate::report::{Metrics, Progress, StepRecord};
use crate::transport::{ReduceOp, Transport, TransportError};
use pipewright_core::plan::{Instruction, Plan};
use pipewright_core::predict::Prediction;
use pipewright_core::timeline::Trace;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    let Begun { step: first, loss } = context.begun;
    let mut times = Vec::with_capacity(plan.steps.saturating_sub(first) as usize);
    let trained = context.trains;
    let mut outcome = Outcome { steps: first, loss, trained, ..Outcome::default() };
    let at = |step| move |source| RunError::Agreement { step, source };
    rank.connect(&context.prediction.groups).map_err(at(0))?;
    rank.transport.barrier().map_err(at(0))?;
    let begin = rank.transport.now_ns();
    let mut before = begin;
    let rates = Rates::new(plan);
    let predictions = predictions(&context.prediction.graph).filter(|_| trained);
    for step in first..plan.steps {
        let rate = rates.at(step);
        let counts = rank.step(step)?;
        let stop = f64::from(u8::from(context.stop.load(Ordering::Relaxed)));
        let EdgeError { lost, sent } = counts.edge_error;
        let (correct, busy) = (counts.correct as f64, counts.busy_ns as f64);
        let mut sums = [counts.loss, correct, busy, stop, lost, sent];
        rank.transport.all_reduce(&mut sums, ReduceOp::Sum).map_err(at(step))?;
        let now = rank.transport.now_ns();
        let [loss, correct, busy_ns, stop, lost, sent] = sums;
        let edge_error = EdgeError { lost, sent }.relative();
        outcome.loss = loss / plan.mini_batch as f64;
        if !outcome.loss.is_finite() {
            return Err(RunError::Diverged { step, loss: outcome.loss, rate });
        }
        times.push((now - before, busy_ns));
        progress.step(step, trained.then_some(outcome.loss), now - before, busy_ns);
        outcome.steps = step + 1;
        outcome.interrupted = stop > 0.0;
        outcome.test = None;
        if context.tests_after(outcome.steps) && !outcome.interrupted {
            outcome.test = evaluate(rank, context, step)?;
            outcome.interrupted = outcome.test.is_none();
        }
        metrics.step(StepRecord {
            step,
            loss: trained.then_some(outcome.loss),
            accuracy: predictions.map(|each| correct / (plan.mini_batch * each) as f64),
            learning_rate: Some(rate),
            gradient_norm: plan.training.clip_norm.map(|_| counts.gradient_norm),
            edge_error: (sent > 0.0).then_some(edge_error),
            test_loss: outcome.test.map(|test| test.loss),
            test_accuracy: outcome.test.and_then(|test| test.accuracy()),
            step_ns: now - before,
            busy_ns: counts.busy_ns,
            input_ns: counts.input_ns,
            unix_ms: None,
        })?;
        before = if outcome.test.is_some() { rank.transport.now_ns() } else { now };
        if keep(rank, context, metrics, &outcome)? {
            before = rank.transport.now_ns();
        }
        if outcome.interrupted {
            break;
        }
    }
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

impl Context<'_> {
    /// Whether the test samples are evaluated after so many steps of training.
    fn tests_after(&self, steps: u64) -> bool {
        self.eval_every > 0 && self.test_samples > 0 && steps.is_multiple_of(self.eval_every)
    }
}

/// Saves a checkpoint after a step, where one is due or the run ends; whether it did.
fn keep<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    metrics: &mut Metrics,
    outcome: &Outcome,
) -> Result<bool, RunError> {
    let ends = outcome.interrupted || outcome.steps == context.plan.steps;
    let due = |saver: &&Saver| ends || saver.is_due(outcome.steps);
    let Some(saver) = context.saver.filter(due) else { return Ok(false) };
    // What a continuation finds of the metrics is at least what its checkpoint has.
    metrics.flush()?;
    save(rank, saver, outcome.steps, outcome.loss)?;
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
