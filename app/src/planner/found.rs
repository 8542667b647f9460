//! Plans that the worker found, as inputs.

use super::inputs::Inputs;
use pipewright_core::schedule::ScheduleKind;
use pipewright_worker::protocol::{Better, FoundPlan};

/// The inputs with what was found in place of what was open.
///
/// # Errors
/// When the worker speaks another language than the page.
pub fn apply(found: &FoundPlan, inputs: &Inputs) -> Result<Inputs, String> {
    let schedule: ScheduleKind = found.schedule.parse().map_err(|e| format!("{e}"))?;
    let cuts = found.cuts.clone();
    let micro_batches = found.micro_batches;
    let mut next = Inputs { cuts, schedule, micro_batches, recompute: None, ..inputs.clone() };
    next.rest.data_parallel = next.rest.data_parallel.with_replicas(found.replicas);
    (next.rest.tensor, next.rest.sequence_parallel) =
        (found.tensor.max(1), found.sequence_parallel);
    for (stage, text) in (0..).zip(&found.recompute).filter(|(_, text)| !text.is_empty()) {
        next.recompute(stage, text.parse().map_err(|e| format!("{e}"))?);
    }
    Ok(next)
}

/// The inputs with a better plan in place of theirs.
///
/// # Errors
/// As [`apply`].
pub fn take(better: &Better, inputs: &Inputs) -> Result<Inputs, String> {
    let mut next = apply(&better.plan, &Inputs { own: None, ..inputs.clone() })?;
    next.rest.training.precision = better.precision;
    next.rest.communication.gradients = better.gradients;
    Ok(next)
}
