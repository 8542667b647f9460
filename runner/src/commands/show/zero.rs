//! Optimizer state and gradients that replicas divide, and what that saves.

use pipewright_core::plan::{Plan, Program};
use pipewright_core::predict::Prediction;
use pipewright_core::units::Bytes;

/// A line where they do.
pub(super) fn zero(plan: &Plan, prediction: &Prediction) -> Option<String> {
    let data_parallel = plan.data_parallel;
    if !data_parallel.divides_updates() {
        return None;
    }
    let (whole, kept) = prediction.programs.iter().map(state).max()?;
    if data_parallel.divides_gradients() {
        return Some(gradients(prediction, whole, kept));
    }
    Some(match whole {
        Bytes::ZERO => {
            "zero 1: nothing is divided: no two ranks hold the same parameters, or nothing is kept"
                .into()
        }
        _ => format!(
            "zero 1: a rank keeps {kept} of {whole} of the optimizer's state, and updates as much"
        ),
    })
}

/// The optimizer's state of a lane's parameters, and what a rank keeps of it: parts of what ranks divide, all of
/// the rest, as of each copy of a tied table. Nothing where nothing is divided.
fn state(program: &Program) -> (Bytes, Bytes) {
    let buckets = program.stages.iter().flat_map(|stage| &stage.buckets);
    let divided = buckets.filter_map(|bucket| bucket.divided);
    let (whole, kept) = divided.fold((Bytes::ZERO, Bytes::ZERO), |(whole, kept), divided| {
        let states = || divided.state.iter().flatten();
        let all = divided.weights.bytes * states().count() as u64;
        (whole + all, kept + states().map(|state| state.bytes).sum())
    });
    if whole == Bytes::ZERO {
        return (whole, kept);
    }
    let params = program.stages.iter().flat_map(|stage| &stage.params);
    let trained = params.filter(|place| place.gradient.is_some());
    let own: Bytes =
        trained.flat_map(|place| place.state.iter().flatten()).map(|region| region.bytes).sum();
    (whole + own, kept + own)
}

/// The line where gradients are divided, too: of the rank that has most of them.
fn gradients(prediction: &Prediction, whole: Bytes, kept: Bytes) -> String {
    let of = |program: &Program| {
        let stages = program.stages.iter().filter(|stage| stage.divides_gradients());
        let params = stages.flat_map(|stage| &stage.params);
        let all: Bytes = params.filter_map(|place| place.gradient).map(|r| r.bytes).sum();
        (all, program.gradient_bytes())
    };
    match prediction.programs.iter().map(of).max() {
        Some((all, gradients)) if all > Bytes::ZERO => {
            let state = match whole {
                Bytes::ZERO => String::new(),
                _ => format!(", {kept} of {whole} of the optimizer's state"),
            };
            format!(
                "zero 2: a rank keeps {gradients} of {all} of gradients, buckets under way included{state}"
            )
        }
        _ if whole > Bytes::ZERO => format!(
            "zero 2: gradients stay whole, parts and buckets under way would be no less; a rank keeps {kept} of {whole} of the optimizer's state"
        ),
        _ => "zero 2: no gradients are divided: no two ranks hold the same parameters, or parts and buckets under way would be no less".into(),
    }
}
