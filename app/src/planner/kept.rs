//! Choices of a hand, kept so that other lanes, another schedule or another model and back lose none of them: cuts
//! by model and stages, lanes and batches over models that could not have them.

use super::choices::ModelChoice;
use super::inputs::Inputs;
use std::cell::{Cell, RefCell};

/// Cuts that are kept at most; the oldest go first.
const MOST: usize = 64;

thread_local! {
    static KEPT: RefCell<Vec<(ModelChoice, Vec<u32>)>> = const { RefCell::new(vec![]) };
    /// What the last model made of a size, and the size that was chosen.
    static CHOSEN: Cell<Option<(Size, Size)>> = const { Cell::new(None) };
}

/// How large a plan is.
#[derive(Clone, Copy, PartialEq)]
struct Size {
    lanes: u32,
    micro_batches: u32,
    mini_batch: u64,
}

impl Size {
    fn of(inputs: &Inputs) -> Self {
        let (lanes, micro_batches) = (inputs.lanes(), inputs.micro_batches);
        Self { lanes, micro_batches, mini_batch: inputs.mini_batch }
    }
}

/// Takes another model by `change`, which is given the lanes to cut it for. Where the model before had other
/// lanes and batches than were chosen, as it has few layers or does not fit, this one starts from what was chosen.
pub fn another_model(inputs: &mut Inputs, change: impl FnOnce(&mut Inputs, u32)) {
    let now = Size::of(inputs);
    let chosen = match CHOSEN.get() {
        Some((made, chosen)) if made == now => chosen,
        _ => now,
    };
    (inputs.micro_batches, inputs.mini_batch) = (chosen.micro_batches, chosen.mini_batch);
    change(inputs, chosen.lanes);
    CHOSEN.set(Some((Size::of(inputs), chosen)));
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
pub fn recut(inputs: &mut Inputs, change: &dyn Fn(&mut Inputs)) {
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
    use crate::planner::sane;
    use pipewright_core::graph::presets::Preset;
    use pipewright_core::schedule::ScheduleKind;

    #[test]
    fn other_choices_and_back_lose_no_cut() {
        let mut inputs = first();
        let before = inputs.clone();
        inputs.cuts[0] += 1;
        keep(&before, &inputs);
        let tuned = inputs.cuts.clone();
        recut(&mut inputs, &|i| split(i, 5));
        assert_eq!(inputs.stages(), 5);
        recut(&mut inputs, &|i| split(i, 4));
        assert_eq!(inputs.cuts, tuned);
        recut(&mut inputs, &|i| reschedule(i, ScheduleKind::ZbV));
        assert_eq!(inputs.stages(), 8);
        recut(&mut inputs, &|i| reschedule(i, ScheduleKind::OneFOneB));
        assert_eq!(inputs.cuts, tuned);
    }

    #[test]
    fn a_model_of_few_layers_or_a_large_one_changes_no_choice() {
        let take = |inputs: &mut Inputs, preset| {
            another_model(inputs, |inputs, lanes| {
                inputs.model = ModelChoice::Preset(preset);
                split(inputs, lanes);
                sane::settle(inputs);
            });
        };
        let mut inputs = first();
        // Half of it, so that six lanes fit as well.
        inputs.mini_batch /= 2;
        let chosen = Size::of(&inputs);
        split(&mut inputs, 6);
        take(&mut inputs, Preset::Mlp4);
        assert_eq!(inputs.lanes(), 4, "it has four layers");
        take(&mut inputs, Preset::Gpt3);
        assert!(inputs.lanes() > 6 && inputs.micro_batches != chosen.micro_batches);
        take(&mut inputs, Preset::Vgg16);
        assert!(Size::of(&inputs) == Size { lanes: 6, ..chosen });
        // What is chosen after all is a choice.
        take(&mut inputs, Preset::Mlp4);
        split(&mut inputs, 2);
        take(&mut inputs, Preset::Vgg16);
        assert_eq!(inputs.lanes(), 2);
    }

    #[test]
    fn what_was_balanced_stays_balanced() {
        let mut inputs = first();
        let cuts = inputs.cuts.clone();
        recut(&mut inputs, &|i| split(i, 3));
        recut(&mut inputs, &|i| split(i, 4));
        assert_eq!(inputs.cuts, cuts);
    }
}
