//! The left column: which graph, how much memory, and the search.

use crate::base::format::{self, Clock};
use crate::base::texts::{t, tr};
use crate::draw::unit::Unit;
use crate::screens::recompute::chart::progress;
use crate::screens::recompute::model::{Recompute, SPAN, STEPS};
use crate::screens::recompute::state::Source;
use crate::state::request::Request;
use crate::widgets::icons::{Icon, icon};
use leptos::prelude::*;
use pipewright_core::units::{Bytes, Nanos};
use pipewright_worker::protocol::Point;

#[component]
pub fn Inputs() -> impl IntoView {
    let page = expect_context::<Recompute>().page;
    view! {
        <aside class="inp" class:open=move || page.sheet.get() aria-label=t("Inputs of recomputation")>
            <Group title=t("Graph") hint=""><Which /></Group>
            <Group title=t("Budget") hint=t("also: drag the line")><Budget /></Group>
            <Group title=t("Solved budgets") hint=t("click to load")><Solved /></Group>
            <Group title=t("Search") hint=""><Search /></Group>
        </aside>
    }
}

#[component]
fn Group(title: &'static str, hint: &'static str, children: Children) -> impl IntoView {
    view! {
        <details class="grp" open>
            <summary>{icon(Icon::Chevron)} <h2>{title}</h2> <span>{hint}</span></summary>
            {children()}
        </details>
    }
}

/// A stage of the plan, or a file that was dropped.
#[component]
fn Which() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let (page, own) = (state.page, state.own);
    let stages = Memo::new(move |_| page.inputs.with(|i| i.stages()));
    let chosen = move |event: web_sys::Event| {
        if let Ok(stage) = event_target_value(&event).parse() {
            own.source.set(Source::Stage(stage));
            page.request(Request::Follow);
        }
    };
    let file = move || match own.source.get() {
        Source::File(file) => Some(view! { <option value="file" selected>{file.name()}</option> }),
        Source::Stage(_) => None,
    };
    let facts = move || {
        state.opened.with(|o| {
            let o = o.as_ref()?;
            let (nodes, edges) = (o.nodes, o.edges);
            Some(match o.copies {
                2.. => tr!(
                    "{nodes} nodes · {edges} edges · {copies} in flight",
                    nodes,
                    edges,
                    copies = o.copies
                ),
                _ => tr!("{nodes} nodes · {edges} edges", nodes, edges),
            })
        })
    };
    view! {
        <div class="row">
            <label for="graph">{t("Graph")}</label>
            <span class="sel">
                <select id="graph" on:change=chosen>
                    {move || (0..stages.get()).map(|stage| {
                        let mine = move || matches!(own.source.get(), Source::Stage(s) if s == stage);
                        view! { <option value=stage.to_string() prop:selected=mine>{tr!("Stage {stage} of the plan", stage)}</option> }
                    }).collect_view()}
                    {file}
                </select>
            </span>
            <p class="note" id="graph-facts">{facts}</p>
        </div>
        <p class="note wide">{t("or drop a training graph: graph.json or graph.json.gz")}</p>
    }
}

#[component]
fn Budget() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let base = move || state.opened.with(|o| o.as_ref().map_or(0, |o| o.base.peak));
    let floor = move || state.opened.with(|o| o.as_ref().map_or(0, |o| o.floor));
    let unit = move || Unit::of(base());
    let least = move || (floor() * STEPS).div_ceil(base().max(1));
    let at =
        move || (state.budget.get() as u128 * u128::from(STEPS) / u128::from(base().max(1))) as u64;
    let bytes = move |step: u64| (base() as u128 * u128::from(step) / u128::from(STEPS)) as u64;
    let slide = move |event: web_sys::Event, moving: bool| {
        if let Ok(step) = event_target_value(&event).parse::<u64>() {
            state.set_budget(untrack(|| bytes(step)), moving);
        }
    };
    let typed = move |event: web_sys::Event| {
        let value = event_target_value(&event).trim().parse::<f64>().ok().filter(|v| *v > 0.0);
        if let Some(value) = value {
            state.set_budget((value * untrack(unit).bytes) as u64, false);
        }
        let input: web_sys::HtmlInputElement = event_target(&event);
        input.set_value(&untrack(unit).number(state.budget.get_untracked()));
    };
    let filled = move || {
        let span = (STEPS - least().min(STEPS - 1)) as f64;
        format!("--p:{:.1}%", at().saturating_sub(least()) as f64 / span * 100.0)
    };
    let device = move || {
        let room = state.opened.with(|o| o.as_ref().and_then(|o| o.room));
        let room = room.filter(|room| *room < base())?;
        let text = tr!("Fit the device: {room}", room = format::bytes_text(Bytes(room)));
        Some(
            view! { <button class="btn" id="fit-device" on:click=move |_| state.set_budget(room, false)>{text}</button> },
        )
    };
    let missed = move || {
        let (best, budget) = (state.progress.with(|p| p.best.peak), state.budget.get());
        (best > budget).then(|| {
            let over = format::bytes_text(Bytes(best - budget));
            view! { <p class="note wide bad" role="status">{tr!("not met so far: {over} over", over)}</p> }
        })
    };
    view! {
        <div class="sl rsl">
            <input id="budget" type="range" step="1" aria-label=t("Budget") style=filled
                min=move || least().to_string() max=STEPS.to_string()
                prop:value=move || { least(); at().to_string() }
                aria-valuetext=move || format::bytes_text(Bytes(state.budget.get()))
                on:input=move |e| slide(e, true) on:change=move |e| slide(e, false) />
            <input id="budget-n" type="number" step="any" min="0" inputmode="decimal" aria-label=t("Budget")
                prop:value=move || unit().number(state.budget.get()) on:change=typed />
            <i>{move || unit().name}</i>
        </div>
        <p class="ends"><span>{move || tr!("least {bytes}", bytes = unit().number(floor()))}</span>
            <span>{move || tr!("all {bytes}", bytes = unit().number(base()))}</span></p>
        {missed}
        {device}
    }
}

#[component]
fn Solved() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let rows = move || {
        let base = state.opened.with(|o| o.as_ref().map(|o| o.base)).unwrap_or_default();
        let best = state.progress.with(|p| p.best);
        let row = move |point: Point| {
            let text = format::bytes_text(Bytes(point.peak));
            let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
            let memory = format::percent(share(point.peak as f64, base.peak as f64), 1);
            let time = format::percent((share(point.time, base.time) - 1.0).max(0.0), 1);
            view! {
                <tr class:me=point == best>
                    <td><button class="pick" on:click=move |_| state.set_budget(point.peak, false)>{text}</button></td>
                    <td class="num">{memory}" %"</td><td class="num">"+"{time}" %"</td>
                </tr>
            }
        };
        state.solved().into_iter().map(row).collect_view()
    };
    view! {
        <table class="solved">
            <thead><tr><th>{t("budget")}</th><th class="num">{t("peak")}</th><th class="num">{t("time")}</th></tr></thead>
            <tbody>{rows}</tbody>
        </table>
    }
}

#[component]
fn Search() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let millions = |moves: u64| format!("{:.1} M", moves as f64 / 1e6);
    let done = move || format!("width:{:.1}%", (state.spent.get().0 / SPAN * 100.0).min(100.0));
    let rate = move || {
        let (spent, from, to) = state.spent.get();
        (spent > 300.0).then(|| {
            tr!(
                "{millions} M moves/s",
                millions = format_args!("{:.2}", (to - from) as f64 / spent / 1e3)
            )
        })
    };
    let picture = move || state.history.with(|h| progress::draw(h, (243.0, 96.0)));
    let best = move || {
        state.progress.with(|p| {
            let time = Nanos(p.best.time as u64);
            tr!("best {time}", time = Clock::of(time).text(time))
        })
    };
    let toggle = move |_| if state.running.get_untracked() { state.stop() } else { state.start() };
    view! {
        <p class="live" role="status" class:on=move || state.running.get()>
            {move || if state.running.get() { t("running") } else { t("stopped") }}
        </p>
        <div class="bar1"><i style=done></i></div>
        <p class="ends"><span id="moves">{move || state.progress.with(|p| tr!("{count} moves", count = millions(p.moves)))}</span>
            <span id="rate">{rate}</span></p>
        <div class="spark" inner_html=picture></div>
        <p class="ends"><span>{move || tr!("{count} trade-offs", count = state.progress.with(|p| p.front.len()))}</span>
            <span>{best}</span></p>
        <div class="two">
            <button class="btn" id="search" on:click=toggle>
                {move || if state.running.get() { t("Stop, keep best") } else { t("Continue the \
                    search") }}
            </button>
            <button class="btn" id="reseed" on:click=move |_| state.reseed()>{t("New seed")}</button>
        </div>
        <p class="note wide">{t("The page stays responsive. The best sequence so far is drawn.")}</p>
    }
}
