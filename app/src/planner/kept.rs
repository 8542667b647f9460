//! Cuts that a hand made: kept by model and stages, so that other lanes, another schedule or another model
//! and back lose none.

use super::choices::ModelChoice;
use super::inputs::Inputs;
use std::cell::RefCell;

/// Cuts that are kept at most; the oldest go first.
const MOST: usize = 64;

thread_local! {
    static KEPT: RefCell<Vec<(ModelChoice, Vec<u32>)>> = const { RefCell::new(vec![]) };
}

/// Keeps cuts where the change moved them and nothing else decides them.
pub fn keep(before: &Inputs, after: &Inputs) {
    let moved = before.cuts != after.cuts
        && before.stages() == after.stages()
        && before.model == after.model
        && before.schedule.placement() == after.schedule.placement();
    if moved {
        KEPT.with_borrow_mut(|kept| {
            kept.retain(|(model, cuts)| *model != after.model || cuts.len() != after.cuts.len());
            kept.push((after.model.clone(), after.cuts.clone()));
            if kept.len() > MOST {
                kept.remove(0);
            }
        });
    }
}

/// The cuts that are kept of a model for so many stages.
pub fn cuts(model: &ModelChoice, stages: u32) -> Option<Vec<u32>> {
    KEPT.with_borrow(|kept| {
        let mine =
            |(of, cuts): &&(ModelChoice, Vec<u32>)| of == model && cuts.len() as u32 + 1 == stages;
        kept.iter().find(mine).map(|(_, cuts)| cuts.clone())
    })
}

/// Makes a change that cuts the model anew, and gives it the kept cuts where there are some for as many stages.
pub fn recut(inputs: &mut Inputs, change: impl FnOnce(&mut Inputs)) {
    let before = (inputs.model.clone(), inputs.stages());
    change(inputs);
    if before == (inputs.model.clone(), inputs.stages()) || inputs.own.is_some() {
        return;
    }
    if let Some(cuts) = cuts(&inputs.model, inputs.stages()) {
        inputs.cuts = cuts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{reschedule, split};
    use crate::planner::presets::first;
    use pipewright_core::schedule::ScheduleKind;

    #[test]
    fn other_choices_and_back_lose_no_cut() {
        let mut inputs = first();
        let before = inputs.clone();
        inputs.cuts[0] += 1;
        keep(&before, &inputs);
        let tuned = inputs.cuts.clone();
        recut(&mut inputs, |i| split(i, 5));
        assert_eq!(inputs.stages(), 5);
        recut(&mut inputs, |i| split(i, 4));
        assert_eq!(inputs.cuts, tuned);
        recut(&mut inputs, |i| reschedule(i, ScheduleKind::ZbV));
        assert_eq!(inputs.stages(), 8);
        recut(&mut inputs, |i| reschedule(i, ScheduleKind::OneFOneB));
        assert_eq!(inputs.cuts, tuned);
    }

    #[test]
    fn what_was_balanced_stays_balanced() {
        let mut inputs = first();
        let cuts = inputs.cuts.clone();
        recut(&mut inputs, |i| split(i, 3));
        recut(&mut inputs, |i| split(i, 4));
        assert_eq!(inputs.cuts, cuts);
    }
}
