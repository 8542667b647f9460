//! One step of training with what all ranks agree on after it.

use super::Context;
use crate::execute::{ActivationError, Rank, RunError, StepPhase};
use crate::report::StepRecord;
use crate::transport::{ReduceOp, Transport};
use pipewright_core::ids::ParamId;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::atomic::Ordering;

/// A step that was made.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Stepped {
    /// What the metrics say of it.
    pub record: StepRecord,
    /// Mean loss of the mini-batch; 0 where nothing is trained. JSON has no other numbers.
    #[serde(deserialize_with = "or_nan")]
    pub loss: f64,
    /// Time that all ranks together computed.
    pub busy_ns: f64,
    /// The parameter for whose gradient it was skipped.
    pub skipped: Option<ParamId>,
    /// Whether a rank was asked to stop.
    pub stop: bool,
}

/// A number; what is none is written as nothing.
fn or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Makes step `step`; the one before ended at `before` on this rank's clock. All ranks together; the
/// loss may be no number.
///
/// # Errors
/// When a message fails or a sample cannot be read.
pub(super) fn step_once<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    step: u64,
    before: u64,
) -> Result<Stepped, RunError> {
    let plan = context.plan;
    let sent_before = rank.sent_bytes();
    let counts = rank.step(step)?;
    if let Some(progress_hook) = rank.progress_hook {
        progress_hook.computed(counts.busy_ns);
    }
    let stop = f64::from(u8::from(context.stop.load(Ordering::Relaxed)));
    let ActivationError { lost, sent } = counts.edge_error;
    let (correct, busy) = (counts.correct as f64, counts.busy_ns as f64);
    let mut sums = [counts.loss, correct, busy, stop, lost, sent];
    let at = |source| RunError::Agreement { step, source };
    rank.at(StepPhase::AllReduce);
    rank.transport.all_reduce(&mut sums, ReduceOp::Sum).map_err(at)?;
    let now = rank.transport.now_ns();
    let [loss, correct, busy_ns, stop, lost, sent] = sums;
    let loss = loss / plan.mini_batch as f64;
    let several = rank.gradient_reductions().len() > 1;
    let record = StepRecord {
        step,
        generation: context.generation,
        loss: context.trains.then_some(loss),
        accuracy: context.predictions.map(|each| correct / (plan.mini_batch * each) as f64),
        learning_rate: Some(rank.rate(step)),
        gradient_norm: Some(counts.gradient_norm).filter(|_| plan.training.judges_gradients()),
        skipped: counts.skipped.is_some(),
        loss_scale: counts.loss_scale,
        edge_error: (sent > 0.0).then(|| ActivationError { lost, sent }.relative()),
        way: several.then(|| rank.way() as u32),
        encoded_bytes: Some(rank.sent_bytes() - sent_before).filter(|bytes| *bytes > 0),
        test_loss: None,
        test_accuracy: None,
        step_ns: now - before,
        busy_ns: counts.busy_ns,
        input_ns: counts.input_ns,
        unix_ms: None,
    };
    Ok(Stepped { record, loss, busy_ns, skipped: counts.skipped, stop: stop > 0.0 })
}
