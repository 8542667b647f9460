//! The Run screen: what was measured under what was predicted, why they differ, times that fit, and how
//! the training went.

mod empty;
mod job;
mod metrics;
mod results;
mod shown;
mod steps;
mod table;
mod timelines;
mod tuned;

use super::state::RunState;
use crate::base::later::{self, Missing};
use crate::state::State;
use empty::Empty;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use metrics::Metrics;
use results::Results;
use shown::Run;
use table::DriftTable;
use timelines::Timelines;
use tuned::Tuned;

#[component]
pub fn RunView(own: RunState) -> impl IntoView {
    later::view(regions(own))
}

/// The screen's regions, laid out by the style sheet.
#[wasm_split(run, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions(own: RunState) -> Result<AnyView, Missing> {
    let page = expect_context::<State>();
    let state = Run::new(page, own);
    job::start(state);
    provide_context(state);
    let trace = Memo::new(move |_| state.has_trace());
    let runs = Memo::new(move |_| own.runs.with(|runs| !runs.is_empty()));
    let tuned = Memo::new(move |_| own.tuned.with(Option::is_some));
    let parts =
        move || [trace.get(), runs.get(), tuned.get()].into_iter().filter(|part| *part).count();
    let shown = view! {
        <div class="runs" class:bare=move || !trace.get() class:folded=move || trace.get() && state.folded.get()>
            {move || match trace.get() {
                true => view! { <Timelines /> <Results /> }.into_any(),
                false => view! { <Empty offered=own.offered /> }.into_any(),
            }}
            <Show when=move || { parts() > 0 }>
                <section class="tray" aria-label=move || crate::base::texts::t("Drift and metrics")>
                    <div class="tbody" class:alone=move || parts() == 1 class:three=move || parts() == 3>
                        <Show when=move || trace.get()><DriftTable /></Show>
                        <Show when=move || runs.get()><Metrics /></Show>
                        <Show when=move || tuned.get()><Tuned /></Show>
                    </div>
                </section>
            </Show>
        </div>
    };
    Ok(shown.into_any())
}
