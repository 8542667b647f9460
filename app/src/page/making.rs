//! Cuts and orders made by the worker, taken into the plan when they come.

use crate::base::later::Missing;
use crate::base::shared::Shared;
use crate::base::texts::tr;
use crate::planner::inputs::{Inputs, Own};
use crate::planner::wire::Wire;
use crate::state::State;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_split::wasm_split;
use pipewright_core::plan::ScheduleText;
use pipewright_core::schedule::ScheduleKind;
use pipewright_worker::protocol::{Made, Make, Reply, Request};
use std::cell::RefCell;

thread_local! {
    /// The worker of the newest question; an older one ends with it.
    static WIRE: RefCell<Option<Wire>> = const { RefCell::new(None) };
}

/// Asks for cuts or an order; what comes is for the inputs of now, and dropped if they have changed.
pub fn make(state: State, what: Make) {
    spawn_local(async move {
        if let Err(why) = ask(state, what).await {
            state.complain(tr!("No order was made: {why}.", why));
        }
    });
}

/// What asks; it comes with what writes plans.
#[wasm_split(tray, wasm_split_path = ::leptos::wasm_split, fallible)]
fn ask(state: State, what: Make) -> Result<(), Missing> {
    let asked = state.inputs.get_untracked();
    // An order is made anew, whatever the old one was for.
    let own = asked.own.clone().filter(|_| what == Make::Cuts);
    let plan = match (Inputs { own, ..asked.alone() }).question() {
        Ok(plan) => plan,
        Err(why) => {
            state.complain(tr!("No order was made: {why}.", why));
            return Ok(());
        }
    };
    let asked = StoredValue::new(asked);
    let hear = move |reply| match reply {
        Reply::Made(made) => {
            let same =
                asked.try_with_value(|asked| state.inputs.with_untracked(|now| now == asked));
            if same == Some(true) {
                take(state, made);
            }
        }
        Reply::Failed { why } => state.complain(tr!("No order was made: {why}.", why)),
        _ => {}
    };
    match Wire::start(hear) {
        Ok(wire) => {
            wire.ask(&Request::Make { plan, what });
            WIRE.replace(Some(wire));
        }
        Err(why) => state.complain(tr!("No order was made: {why}.", why)),
    }
    Ok(())
}

fn take(state: State, made: Made) {
    let before = state.shown.with_untracked(|shown| shown.solved.figures.step);
    let next = state.inputs.with_untracked(|inputs| with(inputs, made));
    match next {
        Ok(next) => {
            let same = state.inputs.with_untracked(|now| *now == next);
            state.look.best_cuts.set(next.cuts.clone());
            state.replace(next);
            let after = state.shown.with_untracked(|shown| shown.solved.figures.step);
            let change = crate::base::format::signed_percent(after.secs(), before.secs());
            state.say(match same {
                true => crate::base::texts::t("This is already the best.").into(),
                false => tr!("Step time {change}. Ctrl+Z undoes it.", change),
            });
        }
        Err(why) => state.complain(tr!("No order was made: {why}.", why)),
    }
}

/// The inputs with what was made. A schedule that has a name is that one.
fn with(inputs: &Inputs, made: Made) -> Result<Inputs, String> {
    let mut next = Inputs { cuts: made.cuts, recompute: None, ..inputs.clone() };
    let ScheduleText { name, .. } = &made.schedule;
    match name.parse::<ScheduleKind>() {
        Ok(kind) => (next.schedule, next.own) = (kind, None),
        Err(_) => {
            let schedule = made.schedule.parse().map_err(|why| why.to_string())?;
            next.own = Some(Shared::new(Own { name: name.clone(), schedule }));
        }
    }
    Ok(next)
}
