//! Metrics of a training: loss, accuracy, step time and idle share of one run or several.

use super::shown::Run;
use crate::base::download::download;
use crate::base::texts::{t, tr};
use crate::screens::run::chart::metrics::{names, plots, said, sheet, step_at, table, title};
use crate::screens::run::model::metrics::Quantity;
use crate::widgets::size::watch;
use leptos::html;
use leptos::prelude::*;
use web_sys::PointerEvent;

/// Rows of the table of steps.
const ROWS: usize = 60;

#[component]
pub fn Metrics() -> impl IntoView {
    let state = expect_context::<Run>();
    let (page, runs) = (state.page, state.own.runs);
    let by_time = state.by_time;
    let save = move |_| {
        let drawn = runs
            .with_untracked(|runs| sheet(runs, by_time.get_untracked(), |q| predicted(state, q)));
        match download("metrics.svg", &drawn) {
            Ok(()) => page.say(tr!("{name} saved.", name = "metrics.svg")),
            Err(_) => {
                page.complain(tr!("The browser refused to save {name}.", name = "metrics.svg"));
            }
        }
    };
    let remove = move |_| {
        state.at.set(None);
        runs.set(vec![]);
    };
    let axis = [(false, t("Steps")), (true, t("Time"))].map(|(time, name)| {
        let on = move || (by_time.get() == time).to_string();
        view! { <button aria-pressed=on on:click=move |_| by_time.set(time)>{name}</button> }
    });
    let named = move || runs.with(|runs| names(runs));
    view! {
        <div class="metrics">
            <div class="th">
                <h2>{t("Metrics")}</h2>
                <div class="seg" role="group" aria-label=t("X axis of the metrics")>{axis.collect_view()}</div>
                <span class="names" inner_html=named></span>
                <button class="ib" id="metrics-save" on:click=save>{t("Save as SVG")}</button>
                <button class="ib" id="metrics-remove" on:click=remove>{t("Remove")}</button>
            </div>
            <div class="scroll" tabindex="0" role="region" aria-label=t("Pictures and table of metrics")>
                <Reading />
                <Plots />
                <Steps />
            </div>
        </div>
    }
}

/// What the plan says of a quantity.
fn predicted(state: Run, quantity: Quantity) -> Option<f64> {
    let figures = state.page.shown.with(|s| s.solved.figures);
    match quantity {
        Quantity::StepTime => Some(figures.step.secs()),
        Quantity::Bubble => Some(figures.bubble),
        Quantity::Loss | Quantity::Accuracy => None,
    }
}

/// The step that is read: by slider, by keys, or under the pointer.
#[component]
fn Reading() -> impl IntoView {
    let state = expect_context::<Run>();
    let runs = state.own.runs;
    let last =
        move || runs.with(|runs| runs.first().map_or(0, |run| run.steps.len().saturating_sub(1)));
    let at = move || state.at.get().unwrap_or_else(last).min(last());
    let said = move || runs.with(|runs| said(runs, state.by_time.get(), at()));
    let slid = move |event: web_sys::Event| {
        state.at.set(event_target_value(&event).parse().ok());
    };
    let part = move || at() as f64 / last().max(1) as f64 * 100.0;
    view! {
        <div class="reading">
            <label for="metrics-at">{t("Read at")}</label>
            <input type="range" id="metrics-at" min="0" max=move || last().to_string() step="1"
                style=move || format!("--p:{:.1}%", part())
                prop:value=move || at().to_string() on:input=slid
                aria-valuetext=move || said().join("; ") />
            <output id="metrics-said" for="metrics-at">
                {move || said().join("\n")}
            </output>
        </div>
    }
}

#[component]
fn Plots() -> impl IntoView {
    let state = expect_context::<Run>();
    let runs = state.own.runs;
    let frame: NodeRef<html::Div> = NodeRef::new();
    let size = watch(frame, (320.0, 180.0));
    let hovered = move |event: PointerEvent| {
        let (width, x) = (size.get_untracked().0, f64::from(event.offset_x()));
        let by_time = state.by_time.get_untracked();
        let found = runs.with_untracked(|runs| step_at(runs, by_time, width, x));
        if found.is_some() {
            state.at.set(found);
        }
    };
    let pictures = move || {
        let (by_time, at) = (state.by_time.get(), state.at.get());
        runs.with(|runs| plots(runs, by_time, at, |q| predicted(state, q), size.get()))
    };
    view! {
        <div class="plots">
            <div class="probe" node_ref=frame aria-hidden="true"></div>
            <div class="four" on:pointermove=hovered inner_html=pictures></div>
        </div>
    }
}

/// The same as numbers: steps spread over the run.
#[component]
fn Steps() -> impl IntoView {
    let state = expect_context::<Run>();
    let runs = state.own.runs;
    let rows = move || runs.with(|runs| table(runs, state.by_time.get(), ROWS));
    let heads = Quantity::ALL.map(|quantity| {
        view! { <th scope="col" class="num">{t(title(quantity))}</th> }
    });
    let open = RwSignal::new(false);
    view! {
        <details class="mtab" on:toggle=move |_| open.update(|o| *o = !*o)>
            <summary>{t("Show as a table")}</summary>
            <Show when=move || open.get()>
                <table id="metrics-table">
                    <thead><tr><th scope="col">{t("run")}</th><th scope="col" class="num">{t("step")}</th>
                        {heads.clone().collect_view()}</tr></thead>
                    <tbody inner_html=rows></tbody>
                </table>
            </Show>
        </details>
    }
}
