//! The split editor: a bar of layers, each as high as its time, with cuts to drag. The same cuts
//! move by keys and by number boxes. The chain of layers has the same cuts on its rows.

use super::slider::no_number;
use super::stands::{Shown, Stand, Stands};
use crate::base::keys::{self, Command, Scope};
use crate::base::shared::Shared;
use crate::base::texts::{t, tr};
use crate::draw::layers::{BLOCK, Block, HEIGHT, Places, layer_marks, stage_marks};
use crate::planner::engine::{self, Way};
use crate::state::State;
use crate::state::history::History;
use crate::state::request::Request;
use leptos::ev::{KeyboardEvent, PointerEvent};
use leptos::prelude::*;
use pipewright_worker::protocol::Make;
use std::ops::Range;
use wasm_bindgen::JsCast;

#[component]
pub fn Split() -> impl IntoView {
    let state = expect_context::<State>();
    let places = Memo::new(move |_| state.layers.with(|l| Shared::new(Places::new(l))));
    let block = Memo::new(move |_| {
        let number = state.look.split_block.get();
        state.inputs.with(|i| places.with(|p| Block::new(&i.cuts, p, number)))
    });
    let layers = Memo::new(move |_| block.with(|b| state.layers.with(|l| layer_marks(l, b))));
    // The best cuts, where they were looked for and are as many; else those of equal time.
    let best = Memo::new(move |_| {
        let (found, now) = (state.look.best_cuts.get(), state.inputs.with(|i| i.cuts.len()));
        !found.is_empty() && found.len() == now
    });
    let marks = Memo::new(move |_| match best.get() {
        true => state.look.best_cuts.with(|found| {
            places.with(|p| found.iter().map(|cut| p.share(*cut)).collect::<Vec<f64>>())
        }),
        false => {
            let n = state.inputs.with(|i| i.cuts.len()) + 1;
            (1..n).map(|stage| stage as f64 / n as f64).collect()
        }
    });
    let stages = move || {
        let cuts = state.inputs.with(|i| i.cuts.clone());
        let marks = marks.get();
        state
            .shown
            .with(|s| block.with(|b| stage_marks(&cuts, &s.solved, &places.get(), b, &marks)))
    };
    let cuts = Memo::new(move |_| state.inputs.with(|i| i.cuts.len()));
    let caught = Memo::new(move |_| block.with(|b| b.cuts(cuts.get())));
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let near = Callback::new(move |y: f64| {
        let share = block.with_untracked(|b| b.share(y));
        places.with_untracked(|p| p.near(share))
    });
    let shown = Callback::new(move |index: usize| {
        let cut = state.inputs.with(|i| i.cuts.get(index).copied());
        let top = cut.map_or(0.0, |c| block.with(|b| b.y(places.with(|p| p.share(c)))));
        Shown { top, crowded: caught.with(|c| c.len()) > 8, says: String::new() }
    });
    let stands = Stands::new(state, places, shown);
    view! {
        <Show when=move || { cuts.get() >= BLOCK }><Blocks stages=cuts /></Show>
        <div id="split" node_ref=frame role="group" aria-label=t("Split editor")>
            <svg height=HEIGHT width="100%" aria-hidden="true">
                <g inner_html=layers></g>
                <g inner_html=stages></g>
            </svg>
            <Handles caught places frame near stands />
        </div>
        <p class="eq"><i></i>{move || if best.get() { t("best cut") } else { t("equal-time cut") }}</p>
        <Show when=move || { cuts.get() > 0 }><Ways /></Show>
        <Show when=move || { cuts.get() > 0 }>
            <div class="cuts" role="group" aria-label=t("Layers before each cut")>
                <span class="cuts-h">{t("Layers before cut")}</span>
                <For each=move || caught.get() key=|i| *i let(index)>
                    <Number index places stand=stands.of(index) />
                </For>
            </div>
        </Show>
    }
}

/// Which stages the bar shows.
#[component]
fn Blocks(
    /// Less one.
    stages: Memo<usize>,
) -> impl IntoView {
    let state = expect_context::<State>();
    let block = state.look.split_block;
    let button = move |number: usize| {
        let on = move || (block.get().min(stages.get() / BLOCK) == number).to_string();
        let name = move || {
            format!("{}–{}", number * BLOCK, (number * BLOCK + BLOCK - 1).min(stages.get()))
        };
        view! { <button aria-pressed=on on:click=move |_| block.set(number)>{name}</button> }
    };
    view! {
        <div class="seg blocks" role="group" aria-label=t("Stages of the bar")>
            <For each=move || 0..stages.get() / BLOCK + 1 key=|i| *i let(number)>{button(number)}</For>
        </div>
    }
}

/// Ways to cut, the one that made the cuts pressed.
#[component]
fn Ways() -> impl IntoView {
    let state = expect_context::<State>();
    let now = Memo::new(move |_| {
        if state.history.with(History::dragging) {
            return None;
        }
        let (inputs, best) = (state.inputs.get(), state.look.best_cuts.get());
        match !best.is_empty() && inputs.cuts == best {
            true => Some(Way::Best),
            false => state.ground.with(|ground| engine::way_of(&inputs, ground)),
        }
    });
    let cut = move |way: Way| {
        move |_| match way {
            Way::Best => state.request(Request::Make(Make::Cuts)),
            Way::Time | Way::Layers => state.edit(|inputs| {
                let ground = state.ground.get_untracked();
                inputs.cuts = engine::cuts_of(way, &ground, inputs.stages());
            }),
        }
    };
    let ways = [
        (Way::Best, "cut-best", t("Best"), t("The cuts with the shortest simulated step")),
        (
            Way::Time,
            "cut-time",
            t("Equal time"),
            t("Stages of about equal compute time; messages and memory not counted"),
        ),
        (Way::Layers, "cut-layers", t("Equal layers"), t("As many layers in each stage")),
    ];
    view! {
        <div class="seg ways" role="group" aria-label=t("How to cut")>
            {ways.map(|(way, id, name, title)| {
                let on = move || (now.get() == Some(way)).to_string();
                view! { <button id=id title=title aria-pressed=on on:click=cut(way)>{name}</button> }
            }).collect_view()}
        </div>
    }
}

/// The cuts as lines with grips, on whatever picture of the layers.
#[component]
pub fn Handles(
    /// The cuts that have them.
    caught: Memo<Range<usize>>,
    places: Memo<Shared<Places>>,
    /// The picture.
    frame: NodeRef<leptos::html::Div>,
    /// The place nearest to a height in it.
    near: Callback<f64, usize>,
    stands: Stands,
) -> impl IntoView {
    view! {
        <For each=move || caught.get() key=|i| *i let(index)>
            <Handle index places frame near stand=stands.of(index) />
        </For>
    }
}

#[component]
fn Handle(
    index: usize,
    places: Memo<Shared<Places>>,
    frame: NodeRef<leptos::html::Div>,
    near: Callback<f64, usize>,
    stand: RwSignal<Stand>,
) -> impl IntoView {
    let state = expect_context::<State>();
    let spoken = move || {
        stand.with(|s| match s.shown.says.as_str() {
            "" => s.after.clone(),
            says => format!("{}: {says}", s.after),
        })
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
    let key = move |event: KeyboardEvent| {
        let at = stand.with_untracked(|s| s.place);
        key(state, places, index, at, &event);
    };
    view! {
        <div class="cut" class:crowded=move || stand.with(|s| s.shown.crowded) data-cut=index.to_string() tabindex="0" role="slider"
            aria-orientation="vertical" aria-label=tr!("Cut {number}", number = index + 1)
            aria-valuemin="1" aria-valuemax=move || stand.with(|s| s.places.to_string())
            aria-valuenow=move || stand.with(|s| (s.place + 1).to_string())
            aria-valuetext=spoken title=move || stand.with(|s| s.after.clone())
            style=move || stand.with(|s| style(index, &s.shown))
            on:pointerdown=down on:pointermove=drag
            on:pointerup=move |_| state.release() on:pointercancel=move |_| state.release()
            on:lostpointercapture=move |_| state.release() on:keydown=key>
            <i></i>
            <span class="says" aria-hidden="true">{move || stand.with(|s| s.shown.says.clone())}</span>
        </div>
    }
}

/// Grips of a crowd stand in three columns.
fn style(index: usize, shown: &Shown) -> String {
    let shift = if shown.crowded { index as i32 % 3 * -34 } else { 0 };
    format!("top:{:.1}px;--dx:{shift}px", shown.top)
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
        Some(Command::PreviousCut) => select(state, index.checked_sub(1)),
        Some(Command::NextCut) => select(state, Some(index + 1)),
        _ => return,
    }
    event.prevent_default();
    state.release();
}

/// A cut as a number: how many layers stand before it, of how many.
#[component]
fn Number(index: usize, places: Memo<Shared<Places>>, stand: RwSignal<Stand>) -> impl IntoView {
    let state = expect_context::<State>();
    let named = move || tr!("Layers before cut {number}", number = index + 1);
    let typed = move |event: web_sys::Event| {
        let number = event_target_value(&event).trim().parse::<usize>().unwrap_or(0);
        let room =
            places.with_untracked(|p| state.inputs.with_untracked(|i| p.room(&i.cuts, index)));
        if room.contains(&number) {
            move_to(state, places, index, number - 1);
            state.release();
        } else {
            // What was typed may be no number, or more than the neighbours allow.
            state.complain(no_number(&named(), *room.start() as u64, *room.end() as u64));
        }
        let input: web_sys::HtmlInputElement = event_target(&event);
        input.set_value(&stand.with_untracked(|s| s.place + 1).to_string());
    };
    view! {
        <input type="number" id=format!("cut-{index}") min="1" inputmode="numeric"
            max=move || stand.with(|s| s.places.to_string())
            aria-label=named()
            prop:value=move || stand.with(|s| (s.place + 1).to_string()) on:change=typed />
    }
}

/// Gives the focus to a cut.
pub fn select(state: State, index: Option<usize>) {
    let Some(index) = index else { return };
    let block = state.look.split_block;
    if block.get_untracked() != index / BLOCK {
        block.set(index / BLOCK);
    }
    request_animation_frame(move || focus(index));
}

fn focus(index: usize) {
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
