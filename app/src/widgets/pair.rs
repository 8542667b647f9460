//! Two steps on one time axis: what the Compare screen and the Run screen share.

mod hand;
mod joined;
mod painter;
mod sides;

pub use hand::Hand;
pub use painter::{Arrangement, Painter};
pub use sides::{Pair, Seen};

use super::moves::act;
use super::reel::reel;
use super::size::observe;
use crate::base::keys::{self, Command, Scope};
use crate::base::texts::t;
use crate::draw::layout::View;
use leptos::ev::KeyboardEvent;
use leptos::html;
use leptos::prelude::*;
use pipewright_core::timeline::causes;
use web_sys::PointerEvent;

#[component]
pub fn Picture(
    index: usize,
    canvas: NodeRef<html::Canvas>,
    hand: Hand,
    /// Why it does not show what is asked for now.
    problem: Signal<Option<String>>,
) -> impl IntoView {
    let stale = Memo::new(move |_| problem.with(Option::is_some));
    let scroll = hand.scroll(index);
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
    let canvas = view! {
                <canvas node_ref=canvas aria-hidden="true"
                    on:pointerdown=down on:pointermove=on(Hand::moved) on:pointerup=on(Hand::released)
                    on:pointercancel=on(Hand::released) on:wheel=move |e| wheel.wheel(index, &e)></canvas>
    };
    view! {
        <div class="pic" class:stale=move || stale.get()>
            {reel(scroll, canvas)}
            {move || problem.get().map(|text| view! { <p class="before">{text}</p> })}
        </div>
    }
}

/// Hands the canvases to the painter and keeps their sizes.
pub fn attach(canvases: &[NodeRef<html::Canvas>], painter: Painter) {
    let canvases = canvases.to_vec();
    Effect::new(move |_| {
        let found: Option<Vec<_>> = canvases.iter().map(|canvas| canvas.get()).collect();
        let Some(found) = found else { return };
        painter.attach(found.clone());
        for (index, canvas) in found.into_iter().enumerate() {
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

/// Draws again when what is drawn from changes, and scrolls to what is selected.
pub fn follow(state: Pair, painter: Painter) {
    let seen = painter.clone();
    Effect::new(move |_| {
        let Some(action) = state.page.look.selected.get() else { return };
        for (canvas, scroll) in state.scroll.into_iter().enumerate() {
            let side = untrack(|| state.side(canvas));
            let place = side.and_then(|side| causes::find(side.timeline(), action));
            if let Some((layout, (lane, _))) = seen.whole(canvas).zip(place) {
                scroll.show(&layout, lane);
            }
        }
    });
    Effect::new(move |_| {
        for side in state.sides {
            side.track();
        }
        state.view.track();
        state.page.look.selected.track();
        state.page.look.critical.track();
        state.page.look.colour_by.track();
        state.page.theme.track();
        for scroll in state.scroll {
            scroll.track(state.page);
        }
        painter.ask();
    });
}

/// Does what a key says while the timelines have focus.
pub fn key(state: Pair, event: &KeyboardEvent) {
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
        Command::Next
        | Command::Previous
        | Command::LaneUp
        | Command::LaneDown
        | Command::LanesTaller
        | Command::LanesLower
        | Command::Help => {
            event.prevent_default();
            return act(state.page, command);
        }
        _ => return,
    };
    event.prevent_default();
    state.view.set(next);
}

/// First the selected action of the plan that is edited, then everything.
fn focus(state: Pair, view: View, full: f64) -> Option<View> {
    let action = state.page.look.selected.get_untracked()?;
    let near = state.page.shown.with_untracked(|s| {
        let (lane, index) = causes::find(&s.solved.timeline, action)?;
        let span = s.solved.timeline.lanes[lane].spans[index];
        View::around(span.start.0 as f64, span.end.0 as f64, full)
    });
    near.filter(|near| *near != view)
}

/// The keys, and what is selected, also for those who hear the page.
#[component]
pub fn Foot(said: Signal<String>) -> impl IntoView {
    view! {
        <div class="tfoot" aria-hidden="true">
            <span><kbd>"W"</kbd>" "<kbd>"S"</kbd>" "{t("zoom")}</span>
            <span><kbd>"A"</kbd>" "<kbd>"D"</kbd>" "{t("pan")}</span>
            <span><kbd>"←"</kbd>" "<kbd>"→"</kbd>" "{t("select")}</span>
            <span><kbd>"0"</kbd>" "{t("all")}</span>
            <span class="say">{said}</span>
        </div>
        <p class="sr" aria-live="polite">{said}</p>
    }
}
