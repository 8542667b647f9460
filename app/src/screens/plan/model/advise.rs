//! Looks for the suggestion, one candidate per turn of the event loop, so that the page stays live.

use super::suggest::{Advice, consider, fits, moves};
use crate::base::shared::Shared;
use crate::planner::engine::Solved;
use crate::planner::inputs::Inputs;
use crate::screens::plan::state::PlanState;
use crate::state::State;
use leptos::prelude::*;
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// Counts changes: a search for an older state stops.
    static NEWEST: Cell<u64> = const { Cell::new(0) };
}

/// Looks for a suggestion whenever the inputs have been quiet for a moment.
pub fn start(state: State, own: PlanState) {
    Effect::new(move |_| {
        // Suggestions are in the language of the page.
        crate::base::language::spoken();
        let shown = state.shown.get();
        let dragging = state.history.with(|h| h.dragging());
        let mine = NEWEST.get() + 1;
        NEWEST.set(mine);
        if dragging || shown.problem.is_some() {
            return;
        }
        let begin = move || {
            let now = shown.solved.clone();
            let layers = state.layers.get_untracked();
            let fit = now.figures.peak > now.capacity;
            let mut todo = if fit { fits(&now.inputs, layers.len()) } else { vec![] };
            todo.extend(moves(&now.inputs, &layers));
            todo.reverse();
            search(own, state, mine, now, todo, None);
        };
        set_timeout(begin, Duration::from_millis(120));
    });
}

/// Tries the last of `todo`, then the rest in later turns.
fn search(
    own: PlanState,
    state: State,
    mine: u64,
    now: Shared<Solved>,
    mut todo: Vec<(String, Inputs)>,
    mut best: Option<Advice>,
) {
    if NEWEST.get() != mine {
        return;
    }
    let Some((title, inputs)) = todo.pop() else { return own.advice.set(best) };
    let ground = state.ground.get_untracked();
    if let Some(found) = consider(title, inputs, &now, &ground)
        && best.as_ref().is_none_or(|b| found.figures.step < b.figures.step)
    {
        best = Some(found);
    }
    set_timeout(move || search(own, state, mine, now, todo, best), Duration::ZERO);
}
