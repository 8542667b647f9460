//! Signals of the Run screen.

use crate::base::screen::Screen;
use crate::screens::run::model::drift::Table;
use crate::screens::run::model::fit::Fitted;
use crate::screens::run::state::RunState;
use crate::state::State;
use crate::widgets::pair::{Pair, Seen};
use leptos::prelude::*;

/// All of it.
#[derive(Clone, Copy)]
pub struct Run {
    pub page: State,
    pub own: RunState,
    /// The predicted step above the measured one.
    pub pair: Pair,
    /// The table of drift as far as it is; why there is none.
    pub table: RwSignal<Option<Result<Table, String>>>,
    /// The plan with the trace's times.
    pub fitted: RwSignal<Option<Result<Fitted, String>>>,
    /// Whether the table begins with what matters most.
    pub by_share: RwSignal<bool>,
    /// Whether the table of drift and the metrics are folded away.
    pub folded: RwSignal<bool>,
    /// Metrics over time instead of steps.
    pub by_time: RwSignal<bool>,
    /// The step of the first run that is read.
    pub at: RwSignal<Option<usize>>,
}

impl Run {
    /// Before anything was computed.
    pub fn new(page: State, own: RunState) -> Self {
        let looked_at = move || page.screen.get() == Screen::Run;
        let predicted = Memo::new(move |old: Option<&Option<Seen>>| match old {
            // Nobody looks at what is hidden.
            Some(old) if !looked_at() => old.clone(),
            _ => Some(Seen::edited(page)),
        });
        let measured = Memo::new(move |old: Option<&Option<Seen>>| match old {
            Some(old) if !looked_at() => old.clone(),
            _ => page.look.measured.with(|measured| {
                let timeline = measured.as_ref()?.timeline.clone();
                Some(Seen::measured(page.shown.with(|s| s.solved.clone()), timeline))
            }),
        });
        Self {
            page,
            own,
            pair: Pair::new(page, [predicted, measured]),
            table: RwSignal::new(None),
            fitted: RwSignal::new(None),
            by_share: RwSignal::new(true),
            folded: RwSignal::new(false),
            by_time: RwSignal::new(false),
            at: RwSignal::new(None),
        }
    }

    /// Whether there is a trace.
    pub fn has_trace(self) -> bool {
        self.page.look.measured.with(Option::is_some)
    }
}
