//! The right column's head: five numbers against the last edit and A, why they are so, and what
//! would help.

use crate::base::format::{self, Delta};
use crate::base::screen::Screen;
use crate::base::texts::{t, tr};
use crate::planner::compare;
use crate::planner::engine::Figures;
use crate::screens::plan::model::reason::{reason, words};
use crate::screens::plan::model::suggest;
use crate::screens::plan::state::PlanState;
use crate::state::State;
use crate::state::history::History;
use crate::state::request::Request;
use leptos::prelude::*;
use pipewright_core::units::{Bytes, Nanos};

/// How a number changes for better.
#[derive(Clone, Copy, PartialEq)]
enum Better {
    Less,
    More,
}

#[component]
pub fn Summary() -> impl IntoView {
    let state = expect_context::<State>();
    let now = Memo::new(move |_| state.shown.with(|s| s.solved.figures));
    let step = move || format::hero(now.get().step);
    let peak = move || format::bytes(now.get().peak);
    let traffic = move || format::bytes(now.get().traffic);
    view! {
        <section class="sum">
            <table>
                <thead><tr>
                    <th colspan="3"><h2>{t("This plan")}</h2></th>
                    <th class="num">{t("last edit")}</th>
                    <th class="num">{t("vs A")}</th>
                </tr></thead>
                <tbody>
                    <Row id="step-time" name=t("Step time") big=true better=Better::Less
                        exact=Signal::derive(move || now.get().step.0.to_string())
                        value=Signal::derive(move || step().0) unit=Signal::derive(move || step().1.to_owned())
                        delta=|a, b| format::relative(a.step.secs(), b.step.secs()) />
                    <Row id="bubble" name=t("Bubble") better=Better::Less
                        exact=Signal::derive(move || now.get().bubble.to_string())
                        value=Signal::derive(move || format::percent(now.get().bubble, 1))
                        unit=Signal::derive(|| "%".to_owned())
                        delta=|a, b| format::points(a.bubble, b.bubble) />
                    <Row id="peak-memory" name=t("Peak memory") better=Better::Less
                        exact=Signal::derive(move || now.get().peak.0.to_string())
                        value=Signal::derive(move || peak().0) unit=Signal::derive(move || peak().1.to_owned())
                        delta=|a, b| format::relative(a.peak.0 as f64, b.peak.0 as f64) />
                    <Row id="throughput" name=t("Throughput") better=Better::More
                        exact=Signal::derive(move || now.get().samples_per_sec.to_string())
                        value=Signal::derive(move || format::count(now.get().samples_per_sec))
                        unit=Signal::derive(|| t("smp/s").to_owned())
                        delta=|a, b| format::relative(a.samples_per_sec, b.samples_per_sec) />
                    <Row id="traffic" name=t("Traffic") better=Better::Less
                        exact=Signal::derive(move || now.get().traffic.0.to_string())
                        value=Signal::derive(move || traffic().0) unit=Signal::derive(move || traffic().1.to_owned())
                        delta=|a, b| format::relative(a.traffic.0 as f64, b.traffic.0 as f64) />
                </tbody>
            </table>
            <Against />
            <MeasuredLine />
            <Why />
        </section>
    }
}

/// What A is, and the way to make this plan A.
#[component]
fn Against() -> impl IntoView {
    let state = expect_context::<State>();
    let title = move || state.inputs.with(compare::title);
    let pinned = move || state.inputs.with(|i| i.a.is_some());
    view! {
        <p class="against">
            <span title=title><b>"A"</b>" "{title}</span>
            <button class="ib" id="pin-plan" title=t("Compare with this plan from now on")
                on:click=move |_| state.pin(Some(state.inputs.get_untracked()))>{t("Pin as A")}</button>
            <Show when=pinned>
                <button class="ib" id="unpin-plan" title=t("Compare with the same plan, split by layer count")
                    on:click=move |_| state.pin(None)>{t("Unpin")}</button>
            </Show>
        </p>
    }
}

#[component]
fn Row(
    id: &'static str,
    name: &'static str,
    #[prop(optional)] big: bool,
    better: Better,
    /// Unrounded, for scripts: `data-value`.
    exact: Signal<String>,
    value: Signal<String>,
    unit: Signal<String>,
    delta: fn(&Figures, &Figures) -> Delta,
) -> impl IntoView {
    let state = expect_context::<State>();
    let against = move |other: Option<Figures>| {
        let now = state.shown.with(|s| s.solved.figures);
        other.map_or(Delta::Same, |other| delta(&now, &other))
    };
    view! {
        <tr class:big=big>
            <th scope="row">{name}</th>
            <td class="num v" id=id data-value=exact>{value}</td>
            <td class="u">{unit}</td>
            <Change better change=Signal::derive(move || against(state.before.get())) />
            <Change better change=Signal::derive(move || against(state.baseline.get())) />
        </tr>
    }
}

/// Never colour alone: an arrow says the direction.
#[component]
fn Change(better: Better, change: Signal<Delta>) -> impl IntoView {
    let class = move || match (change.get(), better) {
        (Delta::Same, _) => "num dim",
        (Delta::By { down: true, .. }, Better::Less)
        | (Delta::By { down: false, .. }, Better::More) => "num good",
        _ => "num bad",
    };
    let text = move || match change.get() {
        Delta::Same => "0".to_owned(),
        Delta::By { down, text } => format!("{} {text}", if down { "▼" } else { "▲" }),
    };
    view! { <td class=class>{text}</td> }
}

/// What was measured, when a trace is loaded.
#[component]
fn MeasuredLine() -> impl IntoView {
    let state = expect_context::<State>();
    view! {
        {move || state.look.measured.get().map(|m| {
            let (value, unit) = format::hero(m.timeline.step);
            let predicted = state.shown.with(|s| s.solved.timeline.step.secs());
            let change = format::signed_percent(m.timeline.step.secs(), predicted);
            let steps = tr!("step {number} of {name}", number = m.number(), name = m.name);
            view! {
                <p class="measured" title=steps>
                    <span>{t("Measured")}" "</span>
                    <b id="measured-step" data-value=m.timeline.step.0.to_string()>{format!("{value} {unit}")}</b>
                    <span>{tr!("{change} of predicted", change)}</span>
                    <button class="ib why-run" title=t("Why it differs, on the Run screen")
                        on:click=move |_| state.go(Screen::Run)>{t("Why?")}</button>
                    <button class="ib" aria-label=t("Remove the trace") title=t("Remove the trace")
                        on:click=move |_| {
                            state.look.measured.set(None);
                            state.look.show_measured.set(false);
                        }>"×"</button>
                </p>
            }
        })}
    }
}

#[component]
fn Why() -> impl IntoView {
    let state = expect_context::<State>();
    view! {
        <p class="why" id="why">
            {move || {
                let shown = state.shown.get();
                let reason = reason(&shown.solved);
                view! {
                    {shown.problem.map(|why| view! { <b class="bad">{tr!("From before: {why}. ", why)}</b> })}
                    {reason.bad.map(|bad| view! { <b class="bad">{bad}</b> })}
                    <b>{reason.finding}</b> {reason.because}
                }
            }}
        </p>
    }
}

/// The one suggestion.
#[component]
pub fn Suggestion(own: PlanState) -> impl IntoView {
    let state = expect_context::<State>();
    let busy = move || state.history.with(History::dragging);
    // The lane that is fullest, where it has more than fits.
    let full = Memo::new(move |_| {
        state.shown.with(|s| {
            let figures = s.solved.figures;
            (figures.peak > s.solved.capacity).then_some(figures.worst)
        })
    });
    view! {
        <section class="card sug" aria-label=t("Suggestion")>
            {move || match own.advice.get().filter(|_| !busy()) {
                Some(advice) => {
                    let now = state.shown.with(|s| s.solved.figures);
                    let (first, second) = suggest::price(&advice, &now);
                    let inputs = advice.inputs.clone();
                    view! {
                        <p>{advice.title}</p>
                        <p><span class="good">{first}</span>" · "{second}</p>
                        <button class="btn acc" id="apply"
                            on:click=move |_| state.replace(inputs.clone())>{t("Apply")}</button>
                    }.into_any()
                }
                None => {
                    let over = state.shown.with(|s| s.solved.figures.peak > s.solved.capacity);
                    let kind = state.shown.with(|s| s.solved.inputs.schedule);
                    let (title, text) = words(over, kind);
                    view! { <p>{title}</p><p>{text}</p> }.into_any()
                }
            }}
            {move || full.get().map(|lane| view! {
                <button class="btn acc also" id="recompute-lane" on:click=move |_| state.request(Request::Recompute(lane))>{tr!("Or recompute on lane {lane}", lane)}</button>
            })}
        </section>
    }
}

/// A lane's share of the step, for tables.
pub fn share(part: Nanos, whole: Nanos) -> f64 {
    part.0 as f64 / whole.0.max(1) as f64
}

/// A lane's memory as a table writes it.
pub fn memory(peak: Bytes, capacity: Bytes) -> (String, &'static str) {
    let fill = crate::draw::fill::Fill::of(peak, capacity);
    (format!("{}{}", fill.sign(), format::bytes_text(peak)), fill.class())
}
