//! The tray: a search for plans, live, as a chart and as a list.

use super::shown::Compare;
use super::sizes::{SizesBody, SizesHead};
use crate::base::focus::focus;
use crate::base::format::{self, hero};
use crate::base::texts::{t, tr};
use crate::screens::compare::chart::pareto::{Axis, Mark, ParetoAxes, draw};
use crate::screens::compare::model as plans;
use crate::screens::compare::model::search::PlanSearch;
use crate::widgets::size::watch;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use pipewright_core::units::{Bytes, Nanos};
use pipewright_worker::protocol::FoundPlan;

/// What chart and list share.
#[derive(Clone, Copy)]
struct Shown {
    search: PlanSearch,
    /// The best plans with their numbers, the fastest first.
    front: Memo<Vec<(u32, FoundPlan)>>,
    axis: RwSignal<Axis>,
    /// The plan that is pointed at or has the focus.
    near: RwSignal<Option<u32>>,
}

#[component]
pub fn TradeOffs() -> impl IntoView {
    let search = expect_context::<PlanSearch>();
    let front = Memo::new(move |_| search.front());
    let (axis, near) = (RwSignal::new(Axis::Memory), RwSignal::new(None));
    provide_context(Shown { search, front, axis, near });
    // Of this number of devices, or of several.
    let several = RwSignal::new(false);
    let kinds = [(false, t("Other plans")), (true, t("More devices"))].map(|(kind, name)| {
        let on = move || (several.get() == kind).to_string();
        view! { <button id=if kind { "more-devices" } else { "other-plans" } aria-pressed=on
        on:click=move |_| several.set(kind)>{name}</button> }
    });
    view! {
        <section class="tray" aria-label=t("Search for plans")>
            <div class="th cmp-th">
                <h2 class="sr">{t("Search for plans")}</h2>
                <div class="seg kinds" role="group" aria-label=t("What is searched for")>{kinds.collect_view()}</div>
                {move || if several.get() { view! { <SizesHead /> }.into_any() } else { view! { <Head /> }.into_any() }}
            </div>
            {move || if several.get() {
                view! { <SizesBody /> }.into_any()
            } else {
                view! { <div class="tbody"><Chart /><List /></div> }.into_any()
            }}
        </section>
    }
}

#[component]
fn Head() -> impl IntoView {
    let Shown { search, axis, .. } = expect_context();
    let axes = [(Axis::Memory, t("Memory")), (Axis::Traffic, t("Traffic"))].map(|(one, name)| {
        let on = move || (axis.get() == one).to_string();
        view! { <button aria-pressed=on on:click=move |_| axis.set(one)>{name}</button> }
    });
    let running = move || search.running.get();
    let turn = move |_| if search.running.get_untracked() { search.stop() } else { search.start() };
    let there = move || search.page.cluster.with(|c| c.devices().clamp(1, 4096));
    let typed = move |event: web_sys::Event| {
        let input: web_sys::HtmlInputElement = event_target(&event);
        match input.value().trim().parse::<u32>() {
            Ok(n) if (1..=untrack(there)).contains(&u64::from(n)) => search.devices.set(Some(n)),
            _ => {
                search
                    .page
                    .complain(tr!("The cluster has 1 to {most} devices.", most = untrack(there)));
                input.set_value(&untrack(|| search.most()).to_string());
            }
        }
    };
    view! {
            <button class="btn acc" id="search" on:click=turn>
                {move || if running() { t("Stop") } else { t("Search") }}
            </button>
            <label class="on-devices" for="devices">{t("on")}</label>
            <input id="devices" class="box" type="number" min="1" max=move || there().to_string()
                prop:value=move || search.most().to_string() on:change=typed />
            <span class="dim small">{move || tr!("of {most} devices", most = there())}</span>
            <div class="seg" role="group" aria-label=t("Upwards")>{axes.collect_view()}</div>
            <p class="live" class:on=running id="search-said" role="status">{move || said(search)}</p>
    }
}

/// How far it is.
fn said(search: PlanSearch) -> String {
    if let Some(why) = search.failed.get() {
        return why;
    }
    let (tried, best) = search.progress.with(|p| (p.tried + p.skipped, p.front.len()));
    match (search.running.get(), tried) {
        (false, 0) => t("Stages, replicas, schedule and more").into(),
        (true, _) => tr!("{tried} plans tried, {best} on the front so far", tried, best),
        (false, _) => {
            tr!("{tried} plans tried, {best} on the front; search again for more", tried, best)
        }
    }
}

#[component]
fn Chart() -> impl IntoView {
    let shown: Shown = expect_context();
    let compare = expect_context::<Compare>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = watch(frame, (520.0, 200.0));
    let pins = Memo::new(move |_| {
        [0, 1].map(|side| compare.side(side).map(|seen| Mark::from(&seen.solved.figures)))
    });
    let marks = Memo::new(move |_| {
        shown.front.with(|front| front.iter().map(|(_, plan)| Mark::from(plan)).collect::<Vec<_>>())
    });
    let place = Memo::new(move |_| {
        let mut all = marks.get();
        all.extend(pins.get().into_iter().flatten());
        ParetoAxes::new(size.get(), shown.axis.get(), &all)
    });
    let picture = move || {
        let near = shown.near.get();
        let near = shown.front.with(|f| f.iter().position(|(number, _)| Some(*number) == near));
        let [a, b] = pins.get();
        marks.with(|marks| draw(&place.get(), marks, a, b, near))
    };
    view! {
        <div class="speed" node_ref=frame>
            <div class="plot" id="pareto" inner_html=picture></div>
            <For each=move || shown.front.get() key=|(number, _)| *number
                children=move |(number, plan)| view! { <Point number plan place /> } />
        </div>
    }
}

/// A disc as something to press: arrows go from one to the next, Enter takes it.
#[component]
fn Point(number: u32, plan: FoundPlan, place: Memo<ParetoAxes>) -> impl IntoView {
    let shown: Shown = expect_context();
    let mark = Mark::from(&plan);
    let style = move || {
        let (x, y) = place.with(|place| place.at(&mark));
        format!("left:{:.1}px;top:{:.1}px", x - 12.0, y - 12.0)
    };
    let first = move || shown.front.with(|f| f.first().map(|(number, _)| *number));
    let stop = move || shown.near.get().filter(|n| is_there(shown, *n)).or_else(first);
    let tab = move || if stop() == Some(number) { "0" } else { "-1" };
    let label = words(&plan);
    view! {
        <button class="disc" id=format!("plan-{number}") style=style tabindex=tab title=label.clone()
            aria-label=tr!("Use as B: {label}", label)
            on:focus=move |_| shown.near.set(Some(number))
            on:mouseenter=move |_| shown.near.set(Some(number))
            on:keydown=move |e| key(shown, number, &e)
            on:click=move |_| shown.search.take(&plan)></button>
    }
}

fn is_there(shown: Shown, number: u32) -> bool {
    shown.front.with(|front| front.iter().any(|(other, _)| *other == number))
}

fn key(shown: Shown, number: u32, event: &KeyboardEvent) {
    let by = match event.key().as_str() {
        "ArrowRight" | "ArrowDown" => 1,
        "ArrowLeft" | "ArrowUp" => -1,
        _ => return,
    };
    event.prevent_default();
    let next = shown.front.with_untracked(|front| {
        let at = front.iter().position(|(other, _)| *other == number)?;
        front.get(at.checked_add_signed(by)?).map(|(number, _)| *number)
    });
    if let Some(next) = next {
        focus(&format!("plan-{next}"));
    }
}

/// `4 × 2, m 64, 1F1B: 1.234 s, 12.3 GiB, sends 4.5 GiB`
fn words(plan: &FoundPlan) -> String {
    let (time, unit) = hero(Nanos(plan.step));
    let bytes = |n| format::bytes_text(Bytes(n));
    let (peak, sent) = (bytes(plan.peak), bytes(plan.traffic));
    tr!(
        "{plan}: {time}, {peak}, sends {sent}",
        plan = plans::name(plan),
        time = format_args!("{time} {unit}"),
        peak,
        sent
    )
}

/// The same plans as the chart's.
#[component]
fn List() -> impl IntoView {
    let shown: Shown = expect_context();
    view! {
        <div class="front" tabindex="-1">
            <table id="plans">
                <thead><tr>
                    <th>{t("stages × replicas")}</th><th class="num">{t("step")}</th>
                    <th class="num">{t("memory")}</th><th class="num">{t("sent")}</th>
                </tr></thead>
                <tbody>
                    <For each=move || shown.front.get() key=|(number, _)| *number
                        children=move |(number, plan)| view! { <Line number plan /> } />
                </tbody>
            </table>
        </div>
    }
}

#[component]
fn Line(number: u32, plan: FoundPlan) -> impl IntoView {
    let shown: Shown = expect_context();
    let search = shown.search;
    let same = plan.clone();
    let mine = Memo::new(move |_| search.page.inputs.with(|inputs| plans::is(&same, inputs)));
    let (time, unit) = hero(Nanos(plan.step));
    let bytes = |n| format::bytes_text(Bytes(n));
    let exact = [plan.step, plan.peak, plan.traffic].map(|n| n.to_string());
    let [step, peak, traffic] = exact;
    let (own, named) = (plan.clone(), plan.clone());
    let named = move || {
        let graph = search.page.graph.get();
        shown.front.with(|front| plans::name_in(&named, front, &graph))
    };
    let best = move || shown.front.with(|front| plans::best_in(&own, front)).map(t);
    view! {
        <tr class:me=move || mine.get() class:near=move || shown.near.get() == Some(number)
            data-step=step data-peak=peak data-traffic=traffic
            on:mouseenter=move |_| shown.near.set(Some(number))>
            <td><button class="pick" title=t("Use it as B") on:click={
                let plan = plan.clone();
                move |_| search.take(&plan)
            }>{named}</button> <small class="best">{best}</small></td>
            <td class="num">{format!("{time} {unit}")}</td>
            <td class="num">{bytes(plan.peak)}</td><td class="num">{bytes(plan.traffic)}</td>
        </tr>
    }
}
