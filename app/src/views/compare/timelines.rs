//! The centre: A's step above B's, on one time axis.

use super::Compare;
use super::hand::Hand;
use super::painter::Painter;
use crate::charts::layout::View;
use crate::compare;
use crate::details::one_line;
use crate::files::{self, Side};
use crate::format;
use crate::keys::{self, Command, Scope};
use crate::texts::{t, tr};
use crate::views::moves::act;
use crate::views::size::observe;
use leptos::ev::KeyboardEvent;
use leptos::html;
use leptos::prelude::*;
use pipewright_core::timeline::causes;
use web_sys::{DragEvent, PointerEvent};

const NAMES: [&str; 2] = ["A", "B"];

#[component]
pub fn Timelines() -> impl IntoView {
    let state = expect_context::<Compare>();
    let canvases: [NodeRef<html::Canvas>; 2] = [NodeRef::new(), NodeRef::new()];
    let painter = Painter::new(state);
    attach(canvases, painter.clone());
    follow(state, painter.clone());
    let hand = Hand::new(state, painter);
    let label = move || {
        let step = |seen: Option<super::Seen>| {
            seen.map_or(t("not shown").into(), |seen| {
                let (value, unit) = format::hero(seen.solved.timeline.step);
                format!("{value} {unit}")
            })
        };
        let (a, b) = (step(state.side(0)), step(state.side(1)));
        tr!(
            "One step of A, {a}, and of B, {b}, on one time axis. Arrow keys select actions of B; \
             the tables of differences and lanes say the same.",
            a,
            b
        )
    };
    let dropped = move |event: DragEvent| {
        event.prevent_default();
        // The page would take it for B.
        event.stop_propagation();
        if let Some(files) = event.data_transfer().and_then(|d| d.files()) {
            files::read_all(state.page, files, Side::A);
        }
    };
    view! {
        <section class="time" aria-label=t("Timelines of A and B")>
            <ToolBar />
            <div class="halves" id="compare-timelines" tabindex="0" role="application" aria-label=label
                on:keydown=move |e| key(state, &e)>
                <div class="half" id="half-a" on:drop=dropped>
                    <Head index=0 /> <Picture index=0 canvas=canvases[0] hand=hand.clone() />
                </div>
                <div class="half"><Head index=1 /> <Picture index=1 canvas=canvases[1] hand /></div>
            </div>
            <div class="tfoot" aria-hidden="true">
                <span><kbd>"W"</kbd>" "<kbd>"S"</kbd>" "{t("zoom")}</span>
                <span><kbd>"A"</kbd>" "<kbd>"D"</kbd>" "{t("pan")}</span>
                <span><kbd>"←"</kbd>" "<kbd>"→"</kbd>" "{t("select")}</span>
                <span><kbd>"0"</kbd>" "{t("all")}</span>
                <span class="say">{move || said(state)}</span>
            </div>
            <p class="sr" aria-live="polite">{move || said(state)}</p>
        </section>
    }
}

#[component]
fn ToolBar() -> impl IntoView {
    let page = expect_context::<Compare>().page;
    view! {
        <div class="tbar">
            <h2>{t("One time axis")}</h2>
            <label class="chk">
                <input type="checkbox" id="compare-critical" prop:checked=move || page.critical.get()
                    on:change=move |e| page.critical.set(event_target_checked(&e)) />
                <span>{t("Critical paths")}</span>
            </label>
            <div class="keys">
                <span class="key"><i class="f"></i>{t("forward")}</span>
                <span class="key"><i class="b"></i>{t("backward")}</span>
                <span class="key"><i class="idle"></i>{t("idle")}</span>
            </div>
        </div>
    }
}

/// Which of both it is.
#[component]
fn Head(index: usize) -> impl IntoView {
    let state = expect_context::<Compare>();
    let what = move || {
        state
            .page
            .inputs
            .with(|i| if index == 0 { compare::title(i) } else { compare::describe(i) })
    };
    let step = move || {
        let (value, unit) = format::hero(state.side(index)?.solved.timeline.step);
        Some(view! { <span class="num">{value}" "<i>{unit}</i></span> })
    };
    view! { <p class="half-h"><b>{NAMES[index]}</b> <span class="nm">{what}</span> {step}</p> }
}

#[component]
fn Picture(index: usize, canvas: NodeRef<html::Canvas>, hand: Hand) -> impl IntoView {
    let state = expect_context::<Compare>();
    let problem = move || match index {
        0 => state.a.with(|a| a.as_ref().err().map(|why| format!("A: {why}"))),
        _ => state.page.shown.with(|s| s.problem.as_ref().map(|_| t("from before").to_owned())),
    };
    let stale = Memo::new(move |_| problem().is_some());
    let on = |act: fn(&Hand, usize, &PointerEvent)| {
        let hand = hand.clone();
        move |event: PointerEvent| act(&hand, index, &event)
    };
    let pressed = hand.clone();
    let down = move |event: PointerEvent| {
        if let Some(canvas) = canvas.get_untracked() {
            let _ = canvas.set_pointer_capture(event.pointer_id());
        }
        pressed.pressed(index, &event);
    };
    let wheel = hand.clone();
    view! {
        <div class="pic" class:stale=move || stale.get()>
            <canvas node_ref=canvas aria-hidden="true"
                on:pointerdown=down on:pointermove=on(Hand::moved) on:pointerup=on(Hand::released)
                on:pointercancel=on(Hand::released) on:wheel=move |e| wheel.wheel(index, &e)></canvas>
            {move || problem().map(|text| view! { <p class="before">{text}</p> })}
        </div>
    }
}

/// Hands the canvases to the painter and keeps their sizes.
fn attach(canvases: [NodeRef<html::Canvas>; 2], painter: Painter) {
    Effect::new(move |_| {
        let [Some(a), Some(b)] = canvases.map(|canvas| canvas.get()) else { return };
        painter.attach([a.clone(), b.clone()]);
        for (index, canvas) in [a, b].into_iter().enumerate() {
            let Some(parent) = canvas.parent_element() else { continue };
            let (painter, around) = (painter.clone(), parent.clone());
            let sized = move || {
                let (width, height) = (around.client_width(), around.client_height());
                painter.resize(index, (width.into(), height.into()));
            };
            sized();
            observe(&parent, sized);
        }
    });
}

/// Draws again when what is drawn from changes.
fn follow(state: Compare, painter: Painter) {
    Effect::new(move |_| {
        state.a.track();
        state.b.track();
        state.view.track();
        state.page.selected.track();
        state.page.critical.track();
        state.page.colour_by.track();
        state.page.theme.track();
        painter.ask();
    });
}

/// The selected action in both plans.
fn said(state: Compare) -> String {
    let Some(action) = state.page.selected.get() else { return String::new() };
    let line = |index: usize| {
        let seen = state.side(index)?;
        let line = one_line(&seen.solved.timeline, &seen.arrivals, action)?;
        Some(format!("{}: {line}", NAMES[index]))
    };
    [line(0), line(1)].into_iter().flatten().collect::<Vec<String>>().join("  ")
}

fn key(state: Compare, event: &KeyboardEvent) {
    let with_ctrl = event.ctrl_key() || event.meta_key();
    let found = keys::find(Scope::Timeline, &event.key(), with_ctrl, event.shift_key());
    let Some(command) = found else { return };
    let (full, view) = untrack(|| (state.full(), state.visible()));
    let centre = (view.from + view.to) / 2.0;
    let next = match command {
        Command::ZoomIn => view.zoom(0.75, centre, full),
        Command::ZoomOut => view.zoom(1.0 / 0.75, centre, full),
        Command::PanLeft => view.pan(-0.12, full),
        Command::PanRight => view.pan(0.12, full),
        Command::Everything => None,
        Command::Focus => focus(state, view, full),
        Command::Next | Command::Previous | Command::LaneUp | Command::LaneDown | Command::Help => {
            event.prevent_default();
            return act(state.page, command);
        }
        _ => return,
    };
    event.prevent_default();
    state.view.set(next);
}

/// First B's selected action, then everything.
fn focus(state: Compare, view: View, full: f64) -> Option<View> {
    let action = state.page.selected.get_untracked()?;
    let near = state.b.with_untracked(|b| {
        let (lane, index) = causes::find(&b.solved.timeline, action)?;
        let span = b.solved.timeline.lanes[lane].spans[index];
        View::around(span.start.0 as f64, span.end.0 as f64, full)
    });
    near.filter(|near| *near != view)
}
