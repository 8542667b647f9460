//! The split editor: a bar of layers, each as high as its time, with cuts to drag. The same cuts
//! move by keys and by number boxes. The chain of layers has the same cuts on its rows.

use crate::charts::layers::{HEIGHT, Places, layer_marks, stage_marks};
use crate::keys::{self, Command, Scope};
use crate::shared::Shared;
use crate::state::State;
use crate::texts::{t, tr};
use leptos::ev::{KeyboardEvent, PointerEvent};
use leptos::prelude::*;
use wasm_bindgen::JsCast;

#[component]
pub fn Split() -> impl IntoView {
    let state = expect_context::<State>();
    let places = Memo::new(move |_| state.layers.with(|l| Shared::new(Places::new(l))));
    let layers = Memo::new(move |_| state.layers.with(|l| layer_marks(l)));
    let stages = move || {
        let cuts = state.inputs.with(|i| i.cuts.clone());
        state.shown.with(|s| stage_marks(&cuts, &s.solved, &places.get()))
    };
    let cuts = Memo::new(move |_| state.inputs.with(|i| i.cuts.len()));
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let top = Callback::new(move |index: usize| {
        let cut = state.inputs.with(|i| i.cuts.get(index).copied());
        cut.map_or(0.0, |c| places.with(|p| p.share(c)) * HEIGHT)
    });
    let near = Callback::new(move |y: f64| places.with_untracked(|p| p.near(y / HEIGHT)));
    let crowded = Callback::new(move |_| cuts.get() > 8);
    view! {
        <div id="split" node_ref=frame role="group" aria-label=t("Split editor")>
            <svg height=HEIGHT width="100%" aria-hidden="true">
                <g inner_html=layers></g>
                <g inner_html=stages></g>
            </svg>
            <Handles count=cuts places frame top near crowded says=Callback::new(|_| String::new()) />
        </div>
        <p class="eq"><i></i>{t("cut here for equal time")}</p>
        <Show when=move || { cuts.get() > 0 }>
            <div class="cuts" role="group" aria-label=t("Layers before each cut")>
                <span class="cuts-h">{t("Layers before cut")}</span>
                <For each=move || 0..cuts.get() key=|i| *i let(index)>
                    <Number index places />
                </For>
            </div>
        </Show>
    }
}

/// The cuts as lines with grips, on whatever picture of the layers.
#[component]
pub fn Handles(
    count: Memo<usize>,
    places: Memo<Shared<Places>>,
    /// The picture.
    frame: NodeRef<leptos::html::Div>,
    /// Where a cut is in it, CSS pixels.
    top: Callback<usize, f64>,
    /// The place nearest to a height.
    near: Callback<f64, usize>,
    /// Whether a cut's neighbours are so near that grips take columns, so that each can be caught.
    crowded: Callback<usize, bool>,
    /// Said beside a cut while it moves.
    says: Callback<usize, String>,
) -> impl IntoView {
    view! {
        <For each=move || 0..count.get() key=|i| *i let(index)>
            <Handle index places frame top near crowded says />
        </For>
    }
}

#[component]
fn Handle(
    index: usize,
    places: Memo<Shared<Places>>,
    frame: NodeRef<leptos::html::Div>,
    top: Callback<usize, f64>,
    near: Callback<f64, usize>,
    crowded: Callback<usize, bool>,
    says: Callback<usize, String>,
) -> impl IntoView {
    let state = expect_context::<State>();
    let cut = move || state.inputs.with(|i| i.cuts.get(index).copied());
    let place = move || cut().map_or(0, |c| places.with(|p| p.of(c)));
    let shift = move || if crowded.run(index) { (index % 3) as f64 * -34.0 } else { 0.0 };
    let after = move || {
        state.layers.with(|l| {
            l.get(place()).map(|l| tr!("after {layer}", layer = l.name)).unwrap_or_default()
        })
    };
    let spoken = move || match says.run(index) {
        text if text.is_empty() => after(),
        text => format!("{}: {text}", after()),
    };
    let to = move |place: usize| move_to(state, places, index, place);
    let down = move |event: PointerEvent| {
        if event.button() != 0 {
            return;
        }
        event.prevent_default();
        let handle: web_sys::Element = event_current(&event);
        let _ = handle.set_pointer_capture(event.pointer_id());
        if let Some(element) = handle.dyn_ref::<web_sys::HtmlElement>() {
            let _ = element.focus();
        }
    };
    let drag = move |event: PointerEvent| {
        let handle: web_sys::Element = event_current(&event);
        if !handle.has_pointer_capture(event.pointer_id()) {
            return;
        }
        let Some(frame) = frame.get_untracked() else { return };
        let y = f64::from(event.client_y()) - frame.get_bounding_client_rect().top();
        to(near.run(y));
    };
    let key = move |event: KeyboardEvent| key(state, places, index, place(), &event);
    view! {
        <div class="cut" class:crowded=move || crowded.run(index) data-cut=index.to_string() tabindex="0" role="slider"
            aria-orientation="vertical" aria-label=tr!("Cut {number}", number = index + 1)
            aria-valuemin="1" aria-valuemax=move || places.with(|p| p.nodes.len()).to_string()
            aria-valuenow=move || (place() + 1).to_string() aria-valuetext=spoken title=after
            style=move || format!("top:{:.1}px;--dx:{}px", top.run(index), shift())
            on:pointerdown=down on:pointermove=drag
            on:pointerup=move |_| state.release() on:pointercancel=move |_| state.release()
            on:lostpointercapture=move |_| state.release() on:keydown=key>
            <i></i>
            <span class="says" aria-hidden="true">{move || says.run(index)}</span>
        </div>
    }
}

/// Moves a cut to a place, as far as its neighbours allow.
fn move_to(state: State, places: Memo<Shared<Places>>, index: usize, place: usize) {
    places.with_untracked(|p| {
        state.drag(|i| {
            if index < i.cuts.len() {
                i.cuts[index] = p.moved(&i.cuts, index, place);
            }
        });
    });
}

/// A key on cut `index`, which stands at place `at`.
fn key(state: State, places: Memo<Shared<Places>>, index: usize, at: usize, event: &KeyboardEvent) {
    let by = match event.key().as_str() {
        "PageUp" | "PageDown" => 4,
        _ if event.shift_key() => 10,
        _ => 1,
    };
    match keys::find(Scope::Cut, &event.key(), event.ctrl_key(), event.shift_key()) {
        Some(Command::CutBack) => move_to(state, places, index, at.saturating_sub(by)),
        Some(Command::CutForward) => move_to(state, places, index, at + by),
        Some(Command::PreviousCut) => select(index.checked_sub(1)),
        Some(Command::NextCut) => select(Some(index + 1)),
        _ => return,
    }
    event.prevent_default();
    state.release();
}

/// A cut as a number: how many layers stand before it.
#[component]
fn Number(index: usize, places: Memo<Shared<Places>>) -> impl IntoView {
    let state = expect_context::<State>();
    let value = move || {
        let cut = state.inputs.with(|i| i.cuts.get(index).copied());
        cut.map_or(0, |c| places.with(|p| p.of(c))) + 1
    };
    let typed = move |event: web_sys::Event| {
        let number = event_target_value(&event).trim().parse::<usize>().unwrap_or(0);
        if number > 0 {
            state.edit(|i| {
                if index < i.cuts.len() {
                    i.cuts[index] = places.with_untracked(|p| p.moved(&i.cuts, index, number - 1));
                }
            });
        }
        // What was typed may have been more than the neighbours allow.
        let input: web_sys::HtmlInputElement = event_target(&event);
        input.set_value(&value().to_string());
    };
    view! {
        <input type="number" id=format!("cut-{index}") min="1" inputmode="numeric"
            max=move || places.with(|p| p.nodes.len()).to_string()
            aria-label=tr!("Layers before cut {number}", number = index + 1)
            prop:value=move || value().to_string() on:change=typed />
    }
}

/// Gives the focus to a cut.
pub fn select(index: Option<usize>) {
    let Some(index) = index else { return };
    // Screens that are hidden keep their cuts.
    let css = format!("main:not([hidden]) [data-cut=\"{index}\"]");
    let found = document().query_selector(&css).ok().flatten();
    if let Some(element) = found.and_then(|e| e.dyn_into::<web_sys::HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

fn event_current(event: &PointerEvent) -> web_sys::Element {
    event.current_target().expect("an event that is handled has a target").unchecked_into()
}
