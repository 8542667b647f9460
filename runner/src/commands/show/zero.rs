//! Optimizer state that replicas divide, and what that saves.

use pipewright_core::plan::{Plan, Program};
use pipewright_core::predict::Prediction;
use pipewright_core::units::Bytes;

/// A line where they do.
pub(super) fn zero(plan: &Plan, prediction: &Prediction) -> Option<String> {
    if !plan.data_parallel.divides_updates() {
        return None;
    }
    let of = |program: &Program| {
        let buckets = program.stages.iter().flat_map(|stage| &stage.buckets);
        let divided = buckets.filter_map(|bucket| bucket.divided);
        divided.fold((Bytes::ZERO, Bytes::ZERO), |(whole, kept), divided| {
            let states = || divided.state.iter().flatten();
            let all = divided.weights.bytes * states().count() as u64;
            (whole + all, kept + states().map(|state| state.bytes).sum())
        })
    };
    let (whole, kept) = prediction.programs.iter().map(of).max()?;
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
