//! How the training went: loss, accuracy, step time and idle share of one run or several.

use super::Run;
use crate::charts::metrics::{Plot, draw, read, sheet, step_at, title, value};
use crate::files;
use crate::run::metrics::Quantity;
use crate::texts::{t, tr};
use crate::views::size::watch;
use leptos::html;
use leptos::prelude::*;
use web_sys::PointerEvent;

/// Rows of the table of steps.
const ROWS: usize = 60;

#[component]
pub fn Metrics() -> impl IntoView {
    let state = expect_context::<Run>();
    let page = state.page;
    let by_time = state.by_time;
    let save = move |_| {
        let drawn = page
            .runs
            .with_untracked(|runs| sheet(runs, by_time.get_untracked(), |q| predicted(state, q)));
        match files::download("metrics.svg", &drawn) {
            Ok(()) => page.say(tr!("{name} saved.", name = "metrics.svg")),
            Err(_) => {
                page.complain(tr!("The browser refused to save {name}.", name = "metrics.svg"));
            }
        }
    };
    let remove = move |_| {
        state.at.set(None);
        page.runs.set(vec![]);
    };
    let axis = [(false, t("Steps")), (true, t("Time"))].map(|(time, name)| {
        let on = move || (by_time.get() == time).to_string();
        view! { <button aria-pressed=on on:click=move |_| by_time.set(time)>{name}</button> }
    });
    let names = move || {
        page.runs.with(|runs| {
            let name = |(at, run): (usize, &crate::run::metrics::Run)| {
                let class = format!("ml m{}", at % 4);
                let (title, steps, ranks) = (run.title(at), run.steps.len(), run.ranks);
                let text = tr!("{title}: {steps} steps of {ranks} ranks", title, steps, ranks);
                view! {
                    <span class="key"><svg width="22" height="8" aria-hidden="true"><path d="M0 4H22" class=class></path></svg>{text}</span>
                }
            };
            runs.iter().enumerate().map(name).collect_view()
        })
    };
    view! {
        <div class="metrics">
            <div class="th">
                <h2>{t("Metrics")}</h2>
                <div class="seg" role="group" aria-label=t("Axis of the metrics")>{axis.collect_view()}</div>
                <span class="names">{names}</span>
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
    let page = state.page;
    let last = move || {
        page.runs.with(|runs| runs.first().map_or(0, |run| run.steps.len().saturating_sub(1)))
    };
    let at = move || state.at.get().unwrap_or_else(last).min(last());
    let said = move || {
        page.runs.with(|runs| {
            let Some(step) = runs.first().and_then(|run| run.steps.get(at())) else {
                return vec![];
            };
            let line = |(number, near): (usize, &crate::run::metrics::StepMetrics)| {
                let of = |quantity: Quantity| value(quantity, quantity.of(near));
                tr!(
                    "{run}, step {step}: loss {loss}, accuracy {accuracy}, {time}, bubble {bubble}",
                    run = runs[number].title(number),
                    step = near.step,
                    loss = of(Quantity::Loss),
                    accuracy = of(Quantity::Accuracy),
                    time = of(Quantity::StepTime),
                    bubble = of(Quantity::Bubble)
                )
            };
            read(runs, state.by_time.get(), step).into_iter().map(line).collect::<Vec<String>>()
        })
    };
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
                {move || said().into_iter().map(|line| view! { <span>{line}</span> }).collect_view()}
            </output>
        </div>
    }
}

#[component]
fn Plots() -> impl IntoView {
    let state = expect_context::<Run>();
    let page = state.page;
    let frame: NodeRef<html::Div> = NodeRef::new();
    let size = watch(frame, (320.0, 180.0));
    let hovered = move |event: PointerEvent| {
        let (width, x) = (size.get_untracked().0, f64::from(event.offset_x()));
        let by_time = state.by_time.get_untracked();
        let found = page.runs.with_untracked(|runs| step_at(runs, by_time, width, x));
        if found.is_some() {
            state.at.set(found);
        }
    };
    let plots = Quantity::ALL.map(|quantity| {
        let picture = move || {
            page.runs.with(|runs| {
                let plot = Plot {
                    quantity,
                    runs,
                    by_time: state.by_time.get(),
                    predicted: predicted(state, quantity),
                    at: state.at.get(),
                };
                draw(&plot, size.get())
            })
        };
        view! { <div class="plot" data-plot=title(quantity) on:pointermove=hovered inner_html=picture></div> }
    });
    view! { <div class="plots"><div class="probe" node_ref=frame aria-hidden="true"></div>{plots.collect_view()}</div> }
}

/// The same as numbers: steps spread over the run.
#[component]
fn Steps() -> impl IntoView {
    let state = expect_context::<Run>();
    let page = state.page;
    let rows = move || {
        page.runs.with(|runs| {
            let Some(first) = runs.first() else { return vec![] };
            let every = first.steps.len().div_ceil(ROWS).max(1);
            let shown = first.steps.iter().step_by(every);
            shown
                .flat_map(|step| read(runs, state.by_time.get(), step))
                .map(|(number, step)| {
                    let cell = move |quantity: Quantity| {
                        view! { <td class="num">{value(quantity, quantity.of(step))}</td> }
                    };
                    view! {
                        <tr><th scope="row">{runs[number].title(number)}</th><td class="num">{step.step}</td>
                            {Quantity::ALL.map(cell).collect_view()}</tr>
                    }
                })
                .collect::<Vec<_>>()
        })
    };
    let heads = Quantity::ALL.map(|quantity| {
        view! { <th scope="col" class="num">{t(title(quantity))}</th> }
    });
    let open = RwSignal::new(false);
    view! {
        <details class="mtab" on:toggle=move |_| open.update(|o| *o = !*o)>
            <summary>{t("The same as a table")}</summary>
            <Show when=move || open.get()>
                <table id="metrics-table">
                    <thead><tr><th scope="col">{t("run")}</th><th scope="col" class="num">{t("step")}</th>
                        {heads.clone().collect_view()}</tr></thead>
                    <tbody>{rows}</tbody>
                </table>
            </Show>
        </details>
    }
}
