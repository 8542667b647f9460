//! The page's side of advice: asks a worker whenever the plan has been left alone for a moment.

use crate::base::shared::Shared;
use crate::planner::engine::Solved;
use crate::planner::wire::Wire;
use crate::screens::plan::state::PlanState;
use crate::state::State;
use leptos::prelude::*;
use pipewright_worker::protocol::{Reply, Request};
use std::cell::Cell;
use std::time::Duration;

/// How long a plan has to be left alone.
const CALM: Duration = Duration::from_millis(400);

thread_local! {
    /// Counts changes: what an older state began is dropped.
    static NEWEST: Cell<u64> = const { Cell::new(0) };
}

/// Looks for advice whenever the inputs have been quiet for a moment.
pub fn start(state: State, own: PlanState) {
    let wire: StoredValue<Option<Wire>, LocalStorage> = StoredValue::new_local(None);
    Effect::new(move |_| {
        let shown = state.shown.get();
        let dragging = state.history.with(|h| h.dragging());
        let mine = NEWEST.get() + 1;
        NEWEST.set(mine);
        own.advice.set(None);
        if dragging || shown.problem.is_some() {
            return;
        }
        set_timeout(move || ask(own, wire, mine, &shown.solved), CALM);
    });
}

/// Asks for the plan, unless it has changed since.
fn ask(
    own: PlanState,
    wire: StoredValue<Option<Wire>, LocalStorage>,
    mine: u64,
    solved: &Shared<Solved>,
) {
    if NEWEST.get() != mine {
        return;
    }
    let Ok(plan) = solved.inputs.alone().question() else { return };
    // Answers to older questions may still be on their way: each is for a step of its own.
    let step = solved.timeline.step.0;
    own.asked.set(step);
    let hear = move |reply| match reply {
        Reply::Advice(advised) if own.asked.get_untracked() == advised.drawn => {
            own.advice.set(Some(advised));
        }
        // The plan stands, without advice: no reason for a complaint.
        _ => {}
    };
    if wire.with_value(Option::is_none) {
        wire.set_value(Wire::start(hear).ok());
    }
    wire.with_value(|wire| {
        if let Some(wire) = wire {
            wire.ask(&Request::Advise { plan });
        }
    });
}
