//! The bottom: what else is possible.

use super::orders::Orders;
use super::program::Program;
use super::speedup::SpeedUp;
use crate::base::focus::focus;
use crate::base::later::{self, Missing};
use crate::base::terms;
use crate::base::texts::{n, t};
use crate::screens::plan::model::{advise, curves, ordering};
use crate::screens::plan::state::{PlanState, Tab};
use crate::state::State;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;

const TABS: [(Tab, &str, &str); 3] = [
    (Tab::Schedules, "tab-schedules", n("Schedules")),
    (Tab::SpeedUp, "tab-speedup", n("Speed-up")),
    (Tab::Program, "tab-program", n("Instructions")),
];

#[component]
pub fn Tray(own: PlanState) -> impl IntoView {
    view! { <section class="tray" aria-label=t("Schedules, speed-up and program")>{later::view(content(own))}</section> }
}

/// Head and panel; fetched after the first picture, which does not wait for them.
#[wasm_split(tray, wasm_split_path = ::leptos::wasm_split, fallible)]
fn content(own: PlanState) -> Result<AnyView, Missing> {
    // What is computed for the tray comes with it; so does what writes plans, as which advice is asked.
    let state = expect_context::<State>();
    advise::start(state, own);
    curves::start(state, own);
    ordering::start(state, own);
    terms::explain();
    let key = move |event: KeyboardEvent| {
        let by = match event.key().as_str() {
            "ArrowRight" => 1,
            "ArrowLeft" => TABS.len() - 1,
            _ => return,
        };
        let now = TABS.iter().position(|(tab, ..)| *tab == own.tab.get_untracked());
        let (tab, id, _) = TABS[(now.unwrap_or(0) + by) % TABS.len()];
        own.tab.set(tab);
        focus(id);
    };
    let tabs = TABS.map(|(tab, id, name)| {
        let on = move || own.tab.get() == tab;
        view! {
            <button role="tab" id=id aria-selected=move || on().to_string() aria-controls="tray-panel"
                tabindex=move || if on() { "0" } else { "-1" }
                on:click=move |_| own.tab.set(tab)>{t(name)}</button>
        }
    });
    let current = Memo::new(move |_| own.tab.get());
    let shown = view! {
        <div class="th" on:keydown=key>
            <div role="tablist">
            {tabs.collect_view()}</div>
            <Show when=move || own.tab.get() == Tab::SpeedUp><Axis own /></Show>
        </div>
        <div class="tbody" id="tray-panel" role="tabpanel">
            {move || match current.get() {
                Tab::Schedules => view! { <Orders own /> }.into_any(),
                Tab::SpeedUp => view! { <SpeedUp own /> }.into_any(),
                Tab::Program => view! { <Program /> }.into_any(),
            }}
        </div>
    };
    Ok(shown.into_any())
}

/// The scale of m.
#[component]
fn Axis(own: PlanState) -> impl IntoView {
    let scale = [(true, t("log m")), (false, t("linear"))].map(|(log, name)| {
        let on = move || (own.log_axis.get() == log).to_string();
        view! { <button aria-pressed=on on:click=move |_| own.log_axis.set(log)>{name}</button> }
    });
    view! { <div class="seg axis" role="group" aria-label=t("Scale of m")>{scale.collect_view()}</div> }
}
