//! The Recompute view: what less memory costs in time, found while one looks.

mod inputs;
mod pictures;
mod results;

use super::model::Recompute;
use super::state::RecomputeState;
use crate::base::later::{self, Missing};
use crate::base::texts::{said, t};
use crate::state::State;
use inputs::Inputs;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use pictures::{Graph, Memory, TradeOffs};
use results::Results;

#[component]
pub fn RecomputeView(own: RecomputeState) -> impl IntoView {
    later::view(regions(own))
}

/// The view's regions, laid out by the style sheet.
#[wasm_split(recompute, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions(own: RecomputeState) -> Result<AnyView, Missing> {
    let page = expect_context::<State>();
    let state = Recompute::new(page, own);
    provide_context(state);
    let failed = move || {
        state.failed.get().map(|why| view! { <p class="rfail" role="alert">{said(&why)}</p> })
    };
    let shown = view! {
        <Inputs />
        <section class="rmem" aria-label=t("Memory over one step")>{failed}<Memory /></section>
        <section class="rpar" aria-label=t("Memory against time")><TradeOffs /></section>
        <section class="rgra" aria-label=t("Graph")><Graph /></section>
        <Results />
    };
    Ok(shown.into_any())
}
