//! The columns of the Plan screen.

mod inputs;
mod lanes;
mod painter;
mod pointer;
mod program;
mod results;
mod speedup;
mod timeline;
mod tray;

use super::state::PlanState;
use crate::base::texts::t;
use crate::widgets::selection::Selection;
use inputs::Inputs;
use lanes::Lanes;
use leptos::prelude::*;
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
            <Selection />
            <Lanes />
        </aside>
        <Tray own />
    }
}
