//! The columns of the Plan screen.

mod inputs;
mod lanes;
mod orders;
mod painter;
mod pointer;
mod program;
mod results;
mod speedup;
mod timeline;
mod training;
mod tray;

use super::state::PlanState;
use crate::base::later::{self, Missing};
use crate::base::texts::t;
use crate::widgets::selection::Selection;
use inputs::Inputs;
use lanes::Lanes;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use results::{Suggestion, Summary};
use timeline::TimelinePane;
use tray::Tray;

/// All of them, laid out by the style sheet.
#[component]
pub fn PlanView(own: PlanState) -> impl IntoView {
    view! {
        <Inputs />
        <TimelinePane own />
        <aside class="out" aria-label=t("Results")>
            <Summary />
            <Suggestion own />
            {later::view(facts())}
        </aside>
        <Tray own />
    }
}

/// The selected action and the lanes in numbers; fetched with the tray, after the first picture.
#[wasm_split(tray, wasm_split_path = ::leptos::wasm_split, fallible)]
fn facts() -> Result<AnyView, Missing> {
    Ok(view! { <Selection /><Lanes /> }.into_any())
}
