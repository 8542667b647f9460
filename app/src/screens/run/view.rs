//! The Run screen: what was measured under what was predicted, why they differ, times that fit, and how
//! the training went.

mod empty;
mod job;
mod metrics;
mod results;
mod steps;
mod table;
mod timelines;

use super::model::drift::Table;
use super::model::fit::Fitted;
use super::state::RunState;
use crate::base::later::{self, Missing};
use crate::base::screen::Screen;
use crate::state::State;
use crate::widgets::pair::{Pair, Seen};
use empty::Empty;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use metrics::Metrics;
use results::Results;
use table::DriftTable;
use timelines::Timelines;

#[component]
pub fn RunView(own: RunState) -> impl IntoView {
    later::view(regions(own))
}

/// What the screen shows.
#[derive(Clone, Copy)]
struct Run {
    page: State,
    own: RunState,
    /// The predicted step above the measured one.
    pair: Pair,
    /// The table of drift as far as it is; why there is none.
    table: RwSignal<Option<Result<Table, String>>>,
    /// The plan with the trace's times.
    fitted: RwSignal<Option<Result<Fitted, String>>>,
    /// Whether the table begins with what matters most.
    by_share: RwSignal<bool>,
    /// Metrics over time instead of steps.
    by_time: RwSignal<bool>,
    /// The step of the first run that is read.
    at: RwSignal<Option<usize>>,
}

impl Run {
    fn new(page: State, own: RunState) -> Self {
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
        let state = Self {
            page,
            own,
            pair: Pair::new(page, [predicted, measured]),
            table: RwSignal::new(None),
            fitted: RwSignal::new(None),
            by_share: RwSignal::new(true),
            by_time: RwSignal::new(false),
            at: RwSignal::new(None),
        };
        job::start(state);
        state
    }

    /// Whether there is a trace.
    fn has_trace(self) -> bool {
        self.page.look.measured.with(Option::is_some)
    }
}

/// The screen's regions, laid out by the style sheet.
#[wasm_split(run, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions(own: RunState) -> Result<AnyView, Missing> {
    let page = expect_context::<State>();
    let state = Run::new(page, own);
    provide_context(state);
    let trace = Memo::new(move |_| state.has_trace());
    let runs = Memo::new(move |_| own.runs.with(|runs| !runs.is_empty()));
    let shown = view! {
        <div class="runs" class:bare=move || !trace.get()>
            {move || match trace.get() {
                true => view! { <Timelines /> <Results /> }.into_any(),
                false => view! { <Empty /> }.into_any(),
            }}
            <Show when=move || trace.get() || runs.get()>
                <section class="tray" aria-label=move || crate::base::texts::t("Drift and metrics")>
                    <div class="tbody" class:alone=move || !(trace.get() && runs.get())>
                        <Show when=move || trace.get()><DriftTable /></Show>
                        <Show when=move || runs.get()><Metrics /></Show>
                    </div>
                </section>
            </Show>
        </div>
    };
    Ok(shown.into_any())
}
