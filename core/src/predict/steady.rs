//! Steps of schedules without a flush: what one takes when the pipeline never runs empty, and how old the
//! weights are that its gradients were computed with.

use super::{PredictError, outline};
use crate::plan::{Plan, ScheduleText};
use crate::schedule::{Schedule, ScheduleKind, Updates};
use crate::timeline::{Lane, Timeline};
use crate::units::Nanos;

/// An asynchronous schedule once its pipeline is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    /// Time of a mini-batch: what one more takes once two micro-batches for each stage have passed, and at
    /// least what the busiest lane works.
    pub step: Nanos,
    /// Updates that were made between the forward pass of a micro-batch and its own update, at most.
    pub staleness: u32,
}

/// What `plan`, of which `window` is the timeline that a run flushes after, takes in the steady state; none
/// with synchronous updates and for an order without a name. One more simulation, two where a mini-batch does
/// not fill the pipeline.
///
/// # Errors
/// As [`outline`].
pub fn steady(plan: &Plan, window: &Timeline) -> Result<Option<Steady>, PredictError> {
    let Ok(kind) = plan.schedule.name.parse::<ScheduleKind>() else { return Ok(None) };
    if kind.updates() == Updates::Synchronous {
        return Ok(None);
    }
    let of = |micro_batches: u32| {
        let windows = micro_batches / plan.micro_batches;
        let schedule = ScheduleText::of(kind, plan.stages(), micro_batches)
            .map_err(|error| PredictError::Plan(error.into()))?;
        let mini_batch = u64::from(windows) * plan.mini_batch;
        let longer = outline(&Plan { schedule, micro_batches, mini_batch, ..plan.clone() })?;
        Ok::<_, PredictError>(longer.timeline.step)
    };
    let order = kind.generate(plan.stages(), plan.micro_batches);
    let order = order.map_err(|error| PredictError::Plan(error.into()))?;
    Steady::of(&order, window, of).map(Some)
}

impl Steady {
    /// That of an order, of which `window` is the timeline; `longer` gives the step of as many micro-batches as it
    /// is asked for. Called once, twice where a mini-batch does not fill the pipeline.
    ///
    /// # Errors
    /// Those of `longer`.
    pub fn of<E>(
        order: &Schedule,
        window: &Timeline,
        longer: impl Fn(u32) -> Result<Nanos, E>,
    ) -> Result<Self, E> {
        let micro_batches = order.micro_batches;
        let filling = filling(order.stages(), micro_batches);
        let before = if filling == 1 { window.step } else { longer(filling * micro_batches)? };
        let next = longer((filling + 1) * micro_batches)?;
        let step = next.saturating_sub(before).max(busiest(window));
        let versions = match order.updates {
            Updates::Synchronous => 1,
            // A full pipeline has a micro-batch on each stage, also where a mini-batch has fewer.
            Updates::Stashed => order.stages(),
            Updates::DoubleBuffered => 2,
        };
        Ok(Self { step, staleness: versions - 1 })
    }
}

/// Mini-batches after which a pipeline runs full: two micro-batches for each stage have passed.
pub(super) fn filling(stages: u32, micro_batches: u32) -> u32 {
    (2 * stages).div_ceil(micro_batches.max(1)).max(1)
}

/// What the busiest lane works in a mini-batch.
pub(super) fn busiest(timeline: &Timeline) -> Nanos {
    timeline.lanes.iter().map(Lane::busy).max().unwrap_or_default()
}
