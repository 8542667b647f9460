//! Steps of schedules without a flush: what one takes when the pipeline never runs empty, and how old the
//! weights are that its gradients were computed with.

use super::{PredictError, Prediction, predict};
use crate::ids::LaneId;
use crate::plan::{Plan, ScheduleText};
use crate::schedule::{ScheduleKind, Updates};
use crate::units::Nanos;

/// An asynchronous schedule once its pipeline is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    /// Time of a mini-batch: what a window of twice as many micro-batches takes longer.
    pub step: Nanos,
    /// Updates that were made between the forward pass of a micro-batch and its own update, at most.
    pub staleness: u32,
}

/// What `plan`, of which `prediction` is the window that a run flushes after, takes in the steady state; none
/// with synchronous updates and for an order without a name. One more simulation.
///
/// # Errors
/// As [`predict`].
pub fn steady(plan: &Plan, prediction: &Prediction) -> Result<Option<Steady>, PredictError> {
    let Ok(kind) = plan.schedule.name.parse::<ScheduleKind>() else { return Ok(None) };
    if kind.updates() == Updates::Synchronous {
        return Ok(None);
    }
    let micro_batches = 2 * plan.micro_batches;
    let schedule = ScheduleText::of(kind, plan.stages(), micro_batches)
        .map_err(|error| PredictError::Plan(error.into()))?;
    let mini_batch = 2 * plan.mini_batch;
    let twice = predict(&Plan { schedule, micro_batches, mini_batch, ..plan.clone() })?;
    let step = twice.timeline.step.saturating_sub(prediction.timeline.step);
    let order = kind.generate(plan.stages(), plan.micro_batches);
    let order = order.map_err(|error| PredictError::Plan(error.into()))?;
    let versions = (0..plan.lanes()).map(|lane| order.versions(LaneId(lane)));
    Ok(Some(Steady { step, staleness: versions.max().unwrap_or(1) - 1 }))
}
