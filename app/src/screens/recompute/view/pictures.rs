//! The three pictures in the middle.

use crate::base::format::{self, Clock};
use crate::base::texts::{t, tr};
use crate::draw::chart::Place;
use crate::draw::unit::Unit;
use crate::screens::recompute::chart::{cells, memory, trade_offs};
use crate::screens::recompute::model::{Recompute, STEPS};
use crate::widgets::readout::Readout;
use crate::widgets::size::watch;
use leptos::ev::{KeyboardEvent, MouseEvent, PointerEvent};
use leptos::prelude::*;
use pipewright_core::units::{Bytes, Nanos};
use pipewright_worker::protocol::Point;
use wasm_bindgen::JsCast;

fn base(state: Recompute) -> Point {
    state.opened.with(|o| o.as_ref().map(|o| o.base)).unwrap_or_default()
}

/// Memory over time; the line of the budget is a control on top of it.
#[component]
pub fn Memory() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = watch(frame, (820.0, 460.0));
    let place = Memo::new(move |_| memory::MemoryAxes::new(size.get(), base(state)));
    let picture = move || {
        let shown = state.shown.get();
        place.with(|frame| memory::draw(frame, &shown, base(state), state.budget.get()))
    };
    view! {
        <div class="tbar">
            <h2>{t("Memory over one step")}</h2>
            <div class="keys">
                <span class="key"><i class="wo-k"></i>{t("keep everything")}</span>
                <span class="key"><i class="wi-k"></i>{t("with recompute")}</span>
                <span class="key"><i class="f"></i>"F"</span>
                <span class="key"><i class="r"></i>{t("R recompute")}</span>
                <span class="key"><i class="b"></i>"B"</span>
            </div>
        </div>
        <div class="rpic" node_ref=frame>
            <div class="plot" inner_html=picture></div>
            <Line frame place />
        </div>
    }
}

/// The budget as a line to drag.
#[component]
fn Line(frame: NodeRef<leptos::html::Div>, place: Memo<memory::MemoryAxes>) -> impl IntoView {
    let state = expect_context::<Recompute>();
    let unit = move || Unit::of(base(state).peak);
    let style = move || {
        let (y, left) = place.with(|p| (p.y(state.budget.get() as f64), p.left()));
        format!("top:{y:.1}px;left:{left}px")
    };
    let down = move |event: PointerEvent| {
        event.prevent_default();
        let Some(handle) = event.current_target() else { return };
        let handle: web_sys::HtmlElement = handle.unchecked_into();
        let _ = handle.set_pointer_capture(event.pointer_id());
        let _ = handle.focus();
    };
    let to = move |event: &PointerEvent, moving: bool| {
        let Some(handle) = event.current_target() else { return };
        let handle: web_sys::Element = handle.unchecked_into();
        let Some(frame) = frame.get_untracked() else { return };
        if handle.has_pointer_capture(event.pointer_id()) {
            let y = f64::from(event.client_y()) - frame.get_bounding_client_rect().top();
            state.set_budget(place.with_untracked(|p| p.bytes(y)) as u64, moving);
        }
    };
    let key = move |event: KeyboardEvent| {
        let by = if event.shift_key() { 10 } else { 1 } * untrack(|| base(state).peak) / STEPS;
        let now = state.budget.get_untracked();
        let to = match event.key().as_str() {
            "ArrowUp" | "ArrowRight" => now + by,
            "ArrowDown" | "ArrowLeft" => now.saturating_sub(by),
            "PageUp" => now + 10 * by,
            "PageDown" => now.saturating_sub(10 * by),
            "Home" => 0,
            "End" => u64::MAX,
            _ => return,
        };
        event.prevent_default();
        state.set_budget(to, false);
    };
    let least = move || state.opened.with(|o| o.as_ref().map_or(0, |o| o.floor)).to_string();
    view! {
        <div class="bline" id="budget-line" tabindex="0" role="slider" aria-orientation="vertical"
            aria-label=t("Budget") aria-valuemin=least aria-valuemax=move || base(state).peak.to_string()
            aria-valuenow=move || state.budget.get().to_string()
            aria-valuetext=move || format::bytes_text(Bytes(state.budget.get())) style=style
            on:pointerdown=down on:pointermove=move |e| to(&e, true) on:pointerup=move |e| to(&e, false)
            on:keydown=key>
            <span><b>{move || unit().number(state.budget.get())}" "{move || unit().name}</b> <small>{t("budget")}</small></span>
        </div>
    }
}

/// All trade-offs; a click takes one.
#[component]
pub fn TradeOffs() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = watch(frame, (480.0, 280.0));
    let place = Memo::new(move |_| {
        let front = state.progress.with(|p| p.front.clone());
        state
            .opened
            .with(|o| o.as_ref().map(|o| trade_offs::TradeOffAxes::new(size.get(), o, &front)))
    });
    let picture = move || {
        let (place, opened) = (place.get()?, state.opened.get()?);
        let budget = state.budget.get();
        Some(state.progress.with(|p| trade_offs::draw(&place, &opened, p, budget)))
    };
    let readout = Readout::new();
    let over = move |event: MouseEvent| {
        readout.moved(&event, |at| {
            let place = place.get_untracked()?;
            state.progress.with_untracked(|p| place.reading(&p.front, at))
        });
    };
    let click = move |event: MouseEvent| {
        let at = Place { x: event.offset_x().into(), y: event.offset_y().into() };
        let near = place
            .get_untracked()
            .and_then(|place| state.progress.with_untracked(|p| place.near(&p.front, at)));
        if let Some(point) = near {
            state.set_budget(point.peak, false);
        }
    };
    view! {
        <div class="tbar"><h2>{t("Memory against time")}</h2>
            <div class="keys">
                <span class="key"><i class="fr-k"></i>{t("best trade-offs")}</span>
                <span class="key"><i class="sg-k"></i>{t("segments")}</span>
            </div>
        </div>
        // The same by keyboard: the list of solved budgets.
        <div class="rpic" node_ref=frame on:click=click on:mousemove=over on:mouseleave=move |_| readout.clear()>
            <div class="plot" inner_html=move || picture().unwrap_or_default()></div>
            {readout.view()}
        </div>
    }
}

/// What is kept and what is run again.
#[component]
pub fn Graph() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = watch(frame, (480.0, 280.0));
    let place = Memo::new(move |_| {
        let grid = state.opened.with(|o| o.as_ref().map(|o| o.grid.clone())).unwrap_or_default();
        cells::CellsFrame::new(size.get(), &grid)
    });
    let picture = move || {
        let opened = state.opened.get()?;
        let (shown, picked) = (state.shown.get(), state.picked.get());
        Some(place.with(|p| cells::draw(p, &opened.grid, &shown.cells, picked.as_ref())))
    };
    let over = move |event: MouseEvent| {
        let at = (f64::from(event.offset_x()), f64::from(event.offset_y()));
        state.describe(place.with_untracked(|p| p.at(at.0, at.1)));
    };
    let key = move |event: KeyboardEvent| {
        if event.key() == "Escape" {
            return state.describe(None);
        }
        let now = state.picked.with_untracked(|p| p.as_ref().map(|p| p.cell));
        let next = match now {
            Some(cell) => place.with_untracked(|p| p.step(cell, &event.key())),
            None => event.key().starts_with("Arrow").then_some(0),
        };
        if let Some(cell) = next {
            event.prevent_default();
            state.describe(Some(cell));
        }
    };
    view! {
        <div class="tbar"><h2>{t("Kept for the backward pass")}</h2></div>
        <div class="rpic" id="cells" tabindex="0" role="application"
            aria-label=t("Values of the forward pass; arrow keys move between them") node_ref=frame
            on:mousemove=over on:mouseleave=move |_| state.describe(None) on:keydown=key>
            <div class="plot" inner_html=move || picture().unwrap_or_default()></div>
            <p class="say" id="node" aria-live="polite">{move || state.picked.get().map(|node| words(&node))}</p>
        </div>
    }
}

/// `layer4.2.relu · relu · 12.3 MiB · run 2 ×, 0.41 ms each`
fn words(node: &pipewright_worker::protocol::Described) -> String {
    let time = Nanos(node.time as u64);
    let runs = match node.times {
        1 => tr!("run once, {time}", time = Clock::of(time).text(time)),
        n => tr!("run {n} ×, {time} each", n, time = Clock::of(time).text(time)),
    };
    let read = tr!(
        "reads {inputs}, read by {readers} and {backward} backward",
        inputs = node.inputs.len(),
        readers = node.readers.len(),
        backward = node.backward
    );
    format!(
        "{} · {} · {} · {runs} · {read}",
        node.name,
        node.op,
        format::bytes_text(Bytes(node.bytes))
    )
}
