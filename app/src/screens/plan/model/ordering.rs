//! The page's side of the strip of schedules: asks a worker whenever the plan has been left alone for a moment.

use super::orders::{place, tiles};
use crate::planner::inputs::Inputs;
use crate::planner::wire::Wire;
use crate::screens::plan::state::{PlanState, Tab};
use crate::state::State;
use leptos::prelude::*;
use pipewright_worker::protocol::{Reply, Request};
use std::cell::Cell;
use std::time::Duration;

/// How long a plan has to be left alone.
const CALM: Duration = Duration::from_millis(300);

thread_local! {
    /// Counts questions: what an older plan began is dropped.
    static NEWEST: Cell<u64> = const { Cell::new(0) };
}

/// Simulates all schedules whenever the strip is open and the inputs have been quiet for a moment.
pub fn start(state: State, own: PlanState) {
    let wire: StoredValue<Option<Wire>, LocalStorage> = StoredValue::new_local(None);
    let inputs = Memo::new(move |old: Option<&Option<Inputs>>| {
        let open = !state.history.with(|h| h.dragging()) && own.tab.get() == Tab::Schedules;
        // Of what is shown: in place of an impossible plan that is a possible one.
        match open {
            true => Some(state.shown.with(|shown| shown.solved.inputs.alone())),
            false => old.cloned().flatten(),
        }
    });
    Effect::new(move |_| {
        let Some(inputs) = inputs.get() else { return };
        let mine = NEWEST.get() + 1;
        NEWEST.set(mine);
        set_timeout(move || ask(state, own, wire, mine, &inputs), CALM);
    });
}

/// Asks for all schedules, unless the plan has changed since.
fn ask(
    state: State,
    own: PlanState,
    wire: StoredValue<Option<Wire>, LocalStorage>,
    mine: u64,
    inputs: &Inputs,
) {
    if NEWEST.get() != mine {
        return;
    }
    let Ok(plan) = inputs.question() else { return };
    let tiles = state.ground.with_untracked(|ground| tiles(inputs, ground));
    let open = tiles.iter().filter(|tile| tile.drawn.is_none());
    let orders = open.map(|tile| tile.order.clone()).collect();
    own.orders.set(tiles);
    let hear = move |reply| {
        if let Reply::Orders(orders) = reply {
            own.orders.update(|tiles| place(tiles, orders.drawn));
        }
    };
    // A worker that is at an older question would answer this one only after that.
    wire.set_value(Wire::start(hear).ok());
    wire.with_value(|wire| {
        if let Some(wire) = wire {
            wire.ask(&Request::Orders { plan, orders });
        }
    });
}
