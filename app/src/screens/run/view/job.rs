//! Long jobs: a simulation for each part of the table, and the fit. Done in slices, between which
//! the page lives; newer questions win.

use super::shown::Run;
use crate::base::later::breathe;
use crate::base::meter;
use crate::base::screen::Screen;
use crate::base::shared::Shared;
use crate::planner::engine::Solved;
use crate::planner::ready::Ready;
use crate::screens::run::model::drift::{Table, next};
use crate::screens::run::model::fit::Fitted;
use leptos::prelude::*;
use leptos::task::spawn_local;
use pipewright_core::predict::Drift;
use pipewright_core::timeline::{Timeline, Trace};

/// Milliseconds of a slice.
const SLICE: f64 = 10.0;

/// What was asked last, and what is known of it.
#[derive(Default)]
struct Known {
    number: u32,
    asked: Option<(Shared<Solved>, Shared<Timeline>)>,
    ready: Option<(Shared<Solved>, Shared<Ready>)>,
    fitted: Option<(Shared<Solved>, Shared<Trace>)>,
}

/// Answers whenever plan or step change while the screen is seen.
pub fn start(state: Run) {
    let known = StoredValue::new(Known::default());
    Effect::new(move |_| {
        if state.page.screen.get() != Screen::Run {
            return;
        }
        let solved = state.page.shown.with(|s| s.solved.clone());
        let Some(measured) = state.page.look.measured.get() else {
            known.set_value(Known::default());
            state.table.set(None);
            state.fitted.set(None);
            return;
        };
        let asked = Some((solved.clone(), measured.timeline.clone()));
        if known.with_value(|known| known.asked == asked) {
            return;
        }
        known.update_value(|known| {
            known.number += 1;
            known.asked = asked;
        });
        let number = known.with_value(|known| known.number);
        let current = move || known.try_with_value(|known| known.number) == Some(number);
        spawn_local(async move {
            // The picture first.
            breathe().await;
            if !current() {
                return;
            }
            let before = known.with_value(|known| known.ready.clone());
            let ready = match before.filter(|(of, _)| *of == solved) {
                Some((_, ready)) => ready,
                None => match Ready::new(&solved.inputs) {
                    Ok(ready) => Shared::new(ready),
                    Err(why) => return state.table.set(Some(Err(why))),
                },
            };
            known.update_value(|known| known.ready = Some((solved.clone(), ready.clone())));
            table(state, &ready, &measured.timeline, current).await;
            let asked = Some((solved.clone(), measured.trace.clone()));
            if current() && known.with_value(|known| known.fitted != asked) {
                let fitted = Fitted::new(&solved.inputs, &ready, &measured.trace);
                state.fitted.set(Some(fitted));
                known.update_value(|known| known.fitted = asked);
            }
        });
    });
}

/// Fills the table, part by part.
async fn table(state: Run, ready: &Ready, measured: &Timeline, current: impl Fn() -> bool) {
    let drift = match Drift::new(&ready.plan, &ready.prediction, measured) {
        Ok(drift) => drift,
        Err(why) => return state.table.set(Some(Err(why.to_string()))),
    };
    let predicted = ready.prediction.timeline.step;
    let mut table = match Table::new(&drift, predicted, measured.step) {
        Ok(table) => table,
        Err(why) => return state.table.set(Some(Err(why))),
    };
    let mut from = meter::now();
    while let Some((at, part)) = next(&table) {
        match drift.share(part) {
            Ok(share) => table.rows[at].share = Some(share),
            Err(why) => return state.table.set(Some(Err(why.to_string()))),
        }
        if meter::now() - from > SLICE {
            state.table.set(Some(Ok(table.clone())));
            breathe().await;
            if !current() {
                return;
            }
            from = meter::now();
        }
    }
    table.done = true;
    state.table.set(Some(Ok(table)));
}
