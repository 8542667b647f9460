//! The left column: what A is and where it comes from, and the choices of B that one tries first.

use super::shown::Compare;
use crate::base::stops::divisors;
use crate::base::texts::{t, tr};
use crate::base::upload;
use crate::planner::link::{MICRO_BATCHES_MAX, STAGES_MAX};
use crate::planner::{compare, engine, kept};
use crate::state::request::{Request, Side};
use crate::widgets::icons::{Icon, icon};
use crate::widgets::schedule::ScheduleSelect;
use crate::widgets::slider::Slider;
use leptos::prelude::*;

/// Stages that the slider reaches; its box takes more.
const SLIDER_MAX: u64 = 64;

#[component]
pub fn Sides() -> impl IntoView {
    let page = expect_context::<Compare>().page;
    let pinned = Memo::new(move |_| page.inputs.with(|i| i.a.is_some()));
    let stands = move || if pinned.get() { t("fixed") } else { t("mirrors B") };
    view! {
        <aside class="inp" class:open=move || page.sheet.get() aria-label=t("A and B")>
            <details class="grp" open>
                <summary>{icon(Icon::Chevron)} <h2>"A"</h2> <span id="a-stands">{stands}</span></summary>
                <Fixed />
            </details>
            <details class="grp" open>
                <summary>{icon(Icon::Chevron)} <h2>"B"</h2> <span>{t("edited")}</span></summary>
                <Edited />
            </details>
        </aside>
    }
}

#[component]
fn Fixed() -> impl IntoView {
    let page = expect_context::<Compare>().page;
    let pinned = Memo::new(move |_| page.inputs.with(|i| i.a.is_some()));
    let what = move || match page.inputs.with(|i| i.a.as_deref().map(compare::describe)) {
        Some(a) => a,
        None => t("A mirrors B with layers split evenly. Pin B to keep it as A.").into(),
    };
    let chosen = move |event| page.request(Request::Open(upload::chosen(&event), Side::A));
    view! {
        <p class="what" id="what-a">{what}</p>
        <div class="two">
            <button class="btn" id="pin" title=t("A becomes what B is now")
                on:click=move |_| page.pin(Some(page.inputs.get_untracked()))>{t("Pin B as A")}</button>
            <button class="btn" id="swap" title=t("A becomes B, and B becomes A")
                on:click=move |_| page.swap()>{t("Swap A and B")}</button>
            <label class="btn open" title=t("A plan.json; or drop one on A's timeline")>
                {icon(Icon::Open)} <span>{t("Open as A")}</span>
                <input id="import-a" type="file" accept=".json,application/json"
                    aria-label=t("Open a plan as A") on:change=chosen />
            </label>
            <button class="btn" id="unpin" title=t("A is B, split by layer count")
                prop:disabled=move || !pinned.get() on:click=move |_| page.pin(None)>{t("Unpin A")}</button>
        </div>
    }
}

#[component]
fn Edited() -> impl IntoView {
    let page = expect_context::<Compare>().page;
    let schedule = Memo::new(move |_| page.inputs.with(|i| i.schedule));
    let most =
        Memo::new(move |_| page.graph.with(|g| u64::from(engine::most_lanes(g, schedule.get()))));
    let batch = Memo::new(move |_| page.inputs.with(|i| i.mini_batch));
    let done = move |dragging: bool| {
        if !dragging {
            page.release();
        }
    };
    let set_lanes = Callback::new(move |(n, dragging): (u64, bool)| {
        let most = most.get_untracked().min(STAGES_MAX.into());
        if n > most {
            return page.complain(tr!(
                "{n} lanes: this model has layers for at most {most}.",
                n,
                most
            ));
        }
        page.drag(|i| {
            if u64::from(i.lanes()) != n {
                kept::recut(i, &|i| engine::split(i, n as u32));
            }
        });
        done(dragging);
    });
    let set_m = Callback::new(move |(n, dragging): (u64, bool)| {
        page.drag(|i| i.micro_batches = n as u32);
        done(dragging);
    });
    view! {
        <Slider id="b-stages" label=t("Lanes") set=set_lanes usual=4 most=STAGES_MAX.into()
            unit=Signal::derive(move || tr!("of {most}", most = most.get().min(SLIDER_MAX)))
            values=Signal::derive(move || (1..=most.get().min(SLIDER_MAX)).collect())
            value=Signal::derive(move || page.inputs.with(|i| u64::from(i.lanes()))) />
        <Slider id="b-micro-batches" label=t("Micro-batches") set=set_m usual=8 most=MICRO_BATCHES_MAX.into()
            unit=Signal::derive(String::new)
            values=Signal::derive(move || divisors(batch.get(), 1024))
            value=Signal::derive(move || page.inputs.with(|i| u64::from(i.micro_batches))) />
        <ScheduleSelect id="b-schedule" />
        <p class="note wide">{t("Edit the rest of B on Plan.")}</p>
    }
}
