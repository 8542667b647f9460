//! The right column's head: five numbers against the last edit and A, why they are so, and what
//! would help.

use crate::base::format::{self, Delta};
use crate::base::later::{self, Missing};
use crate::base::screen::Screen;
use crate::base::texts::{t, tr};
use crate::planner::compare;
use crate::planner::engine::{Figures, Shown};
use crate::planner::found;
use crate::planner::inputs::Inputs;
use crate::screens::plan::model::reason::reason;
use crate::screens::plan::model::suggest;
use crate::screens::plan::state::PlanState;
use crate::state::State;
use crate::state::request::Request;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use pipewright_core::units::{Bytes, Nanos};
use pipewright_worker::protocol::Better;

/// How a number changes for better.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
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
                    <Row id="step-time" name=t("Step time") big=true better=Wanted::Less
                        exact=Signal::derive(move || now.get().step.0.to_string())
                        value=Signal::derive(move || step().0) unit=Signal::derive(move || step().1.to_owned())
                        delta=|a, b| format::relative(a.step.secs(), b.step.secs()) />
                    <Row id="bubble" name=t("Bubble") better=Wanted::Less
                        exact=Signal::derive(move || now.get().bubble.to_string())
                        value=Signal::derive(move || format::percent(now.get().bubble, 1))
                        unit=Signal::derive(|| "%".to_owned())
                        delta=|a, b| format::points(a.bubble, b.bubble) />
                    <Row id="peak-memory" name=t("Peak memory") better=Wanted::Less
                        exact=Signal::derive(move || now.get().peak.0.to_string())
                        value=Signal::derive(move || peak().0) unit=Signal::derive(move || peak().1.to_owned())
                        delta=|a, b| format::relative(a.peak.0 as f64, b.peak.0 as f64) />
                    <Row id="throughput" name=t("Throughput") better=Wanted::More
                        exact=Signal::derive(move || now.get().samples_per_sec.to_string())
                        value=Signal::derive(move || format::count(now.get().samples_per_sec))
                        unit=Signal::derive(|| t("smp/s").to_owned())
                        delta=|a, b| format::relative(a.samples_per_sec, b.samples_per_sec) />
                    <Row id="traffic" name=t("Traffic") better=Wanted::Less
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
    better: Wanted,
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
fn Change(better: Wanted, change: Signal<Delta>) -> impl IntoView {
    let class = move || match (change.get(), better) {
        (Delta::Same, _) => "num dim",
        (Delta::By { down: true, .. }, Wanted::Less)
        | (Delta::By { down: false, .. }, Wanted::More) => "num good",
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
    let is_there = Memo::new(move |_| state.look.measured.with(Option::is_some));
    move || is_there.get().then(|| later::view(measured_line(state)))
}

/// The line; what makes it came with the trace.
#[wasm_split(files, wasm_split_path = ::leptos::wasm_split, fallible)]
fn measured_line(state: State) -> Result<AnyView, Missing> {
    let line = move || {
        let m = state.look.measured.get()?;
        let (value, unit) = format::hero(m.timeline.step);
        let predicted = state.shown.with(|s| s.solved.timeline.step.secs());
        let change = format::signed_percent(m.timeline.step.secs(), predicted);
        let steps = tr!("step {number} of {name}", number = m.number(), name = m.name);
        Some(view! {
            <p class="measured" title=steps>
                <span>{t("Measured")}" "</span>
                <b id="measured-step" data-value=m.timeline.step.0.to_string()>{format!("{value} {unit}")}</b>
                <span>{tr!("{change} of the prediction", change)}</span>
                <button class="ib why-run" title=t("See why on the Run screen")
                    on:click=move |_| state.go(Screen::Run)>{t("Why?")}</button>
                <button class="ib" aria-label=t("Remove the trace") title=t("Remove the trace")
                    on:click=move |_| {
                        state.look.measured.set(None);
                        state.look.show_measured.set(false);
                    }>"×"</button>
            </p>
        })
    };
    Ok(view! { {line} {foreign(state)} }.into_any())
}

/// That the plan has become another one since the trace was opened.
fn foreign(state: State) -> impl IntoView {
    // What decides which actions there are: cuts, which a hand drags, do not.
    let order = Memo::new(move |_| {
        state
            .inputs
            .with(|i| (i.model.clone(), i.lanes(), i.micro_batches, i.schedule, i.own.clone()))
    });
    let why = Memo::new(move |_| {
        order.with(|_| ());
        let measured = state.look.measured.get()?;
        state
            .shown
            .with_untracked(|s| measured.foreign(&s.solved.inputs.model.name(), &s.solved.timeline))
    });
    move || {
        let why = why.get()?;
        Some(
            view! { <p class="note bad" id="foreign">{tr!("The trace is of another plan: it {why}.", why)}</p> },
        )
    }
}

#[component]
fn Why() -> impl IntoView {
    let state = expect_context::<State>();
    view! {
        <p class="why" id="why">
            {move || {
                let shown = state.shown.get();
                let reason = reason(&shown.solved, &state.arrivals.get());
                view! {
                    {shown.problem.as_ref().map(|why| view! { <b class="bad">{problem(why, &shown)}</b> })}
                    {reason.steady}
                    {reason.bad.map(|bad| view! { <b class="bad">{bad}</b> })}
                    <b>{reason.finding}</b> {reason.because}
                }
            }}
        </p>
    }
}

/// Why the newest plan has no figures, and what is shown in its place.
fn problem(why: &str, shown: &Shown) -> String {
    let Inputs { schedule, micro_batches, .. } = shown.solved.inputs;
    match shown.stands_in {
        true => tr!(
            "Showing {schedule}, micro-batches: {micro_batches}, which is possible, instead: {why}. ",
            schedule = schedule.title(),
            micro_batches,
            why
        ),
        false => tr!("Showing the previous result: {why}. ", why),
    }
}

/// Better plans, the best one open.
#[component]
pub fn Suggestion(own: PlanState) -> impl IntoView {
    view! {
        <section class="card sug" aria-label=t("Suggestion")>{later::view(better_plans(own))}</section>
    }
}

/// The list; fetched with the tray, as advice comes after the first picture.
#[wasm_split(tray, wasm_split_path = ::leptos::wasm_split, fallible)]
fn better_plans(own: PlanState) -> Result<AnyView, Missing> {
    let state = expect_context::<State>();
    let impossible = Memo::new(move |_| state.shown.with(|s| s.problem.is_some()));
    let list = move || {
        let advised = own.advice.get();
        let plans = advised.as_ref().map(|advised| advised.plans.clone()).unwrap_or_default();
        let fits = advised.as_ref().is_none_or(|advised| advised.fits);
        let mut rows = plans.into_iter().enumerate();
        let Some((row, first)) = rows.next() else {
            let (title, text) = match impossible.get() {
                true => (t("No suggestions until the plan is possible").into(), String::new()),
                false => suggest::none(advised.as_ref()),
            };
            return view! { <p>{title}</p><p>{text}</p> }.into_any();
        };
        let more = rows.len();
        let rest = rows.map(|(row, better)| view! { <BetterRow row better fits /> }).collect_view();
        let above = advised.as_ref().filter(|advised| advised.done).map(suggest::above);
        view! {
            <BetterRow row better=first fits />
            <details class="others" class:none=more == 0>
                <summary>{tr!("{more} more", more)}</summary>
                {rest}
                <p>{above}</p>
            </details>
        }
        .into_any()
    };
    Ok(view! { <div class="list">{list}</div> {full_lane()} }.into_any())
}

/// The way out of memory that is too small, for the lane that is fullest.
fn full_lane() -> impl IntoView {
    let state = expect_context::<State>();
    let full = Memo::new(move |_| {
        state.shown.with(|s| {
            let figures = s.solved.figures;
            (figures.peak > s.solved.capacity).then_some(figures.worst)
        })
    });
    move || {
        full.get().map(|lane| view! {
        <button class="btn acc also" id="recompute-lane" on:click=move |_| state.request(Request::Recompute(lane))>{tr!("Or recompute activations on lane {lane}", lane)}</button>
    })
    }
}

/// A better plan: what it changes, what that is worth, and the way to take it.
#[component]
fn BetterRow(row: usize, better: Better, fits: bool) -> impl IntoView {
    let state = expect_context::<State>();
    let now = state.shown.with_untracked(|s| s.solved.figures);
    let ranks = state.inputs.with_untracked(|inputs| inputs.ranks());
    let (first, second) = suggest::price(&better, fits, &now);
    let asks = suggest::asks(&better, ranks).map(|asks| format!(" · {asks}"));
    let title = suggest::title(&better);
    let id = if row == 0 { "apply".to_owned() } else { format!("apply-{row}") };
    let take = move |_| match state.inputs.with_untracked(|inputs| found::take(&better, inputs)) {
        Ok(next) => state.replace(next),
        Err(why) => state.complain(tr!("The plan cannot be used: {why}.", why)),
    };
    view! {
        <div class="better">
            <p>{title}</p>
            <p><span class="good">{first}</span>" · "{second}{asks}</p>
            <button class="btn acc" id=id on:click=take>{t("Apply")}</button>
        </div>
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
