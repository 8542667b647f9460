//! The Model screen: the layers as a chain with their costs, the plan's cuts on it, and times that can
//! be typed over.

mod chain;
mod details;
mod look;

use super::inputs::{ClusterSelect, Group, ModelSelect};
use crate::later::{self, Missing};
use crate::model::chain::{around, find};
use crate::model::edit;
use chain::ChainPane;
use details::Details;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use look::Looked;

#[component]
pub fn ModelView() -> impl IntoView {
    later::view(regions())
}

/// The screen's regions, laid out by the style sheet.
#[wasm_split(model, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions() -> Result<AnyView, Missing> {
    provide_context(Looked::new(expect_context()));
    Ok(view! { <Choices /> <ChainPane /> <Details /> }.into_any())
}

#[component]
fn Choices() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let page = looked.page;
    view! {
        <aside class="inp" class:open=move || page.sheet.get() aria-label="Inputs of the model">
            <Group title="Model and cluster" hint="">
                <ModelSelect id="model-model" />
                <ClusterSelect id="model-cluster" />
            </Group>
            <Group title="Layers" hint="">
                <Find />
                <Folds />
            </Group>
            <Group title="Typed times" hint="">
                <Edited />
            </Group>
        </aside>
    }
}

/// A box that jumps to the next layer with its text.
#[component]
fn Find() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let text = RwSignal::new(String::new());
    let at = RwSignal::new(0usize);
    let hits = Memo::new(move |_| {
        looked.anatomy.with(|a| find(a.layers.iter().map(|l| l.name.as_str()), &text.get()))
    });
    let show = move || {
        let layer = hits.with_untracked(|h| h.get(at.get_untracked()).copied());
        if let Some(layer) = layer {
            let groups = looked.groups.get_untracked();
            looked.open.update(|open| open.extend(around(&groups, layer)));
            looked.pick_layer(layer);
        }
    };
    let typed = move |event: web_sys::Event| {
        text.set(event_target_value(&event));
        at.set(0);
        show();
    };
    let key = move |event: KeyboardEvent| {
        let count = hits.with_untracked(Vec::len);
        if event.key() == "Enter" && count > 0 {
            event.prevent_default();
            let by = if event.shift_key() { count - 1 } else { 1 };
            at.update(|at| *at = (*at + by) % count);
            show();
        }
    };
    let says = move || match (text.with(|t| t.trim().is_empty()), hits.with(Vec::len)) {
        (true, _) => String::new(),
        (_, 0) => "No layer has that in its name.".into(),
        (_, n) => format!("{} of {n} · Enter: next", at.get() + 1),
    };
    view! {
        <div class="row"><label for="find-layer">"Find"</label>
            <input id="find-layer" class="find wide" type="search" placeholder="a layer" autocomplete="off"
                on:input=typed on:keydown=key /></div>
        <div class="row tight"><p class="note" role="status" id="found">{says}</p></div>
    }
}

#[component]
fn Folds() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let count = move || {
        let layers = looked.anatomy.with(|a| a.layers.len());
        let rows = looked.chain.with(|c| c.rows.len());
        format!("{layers} layers in {rows} rows")
    };
    let none = move || looked.groups.with(|g| g.is_empty());
    let unfold = move |_| {
        let all = looked.groups.with_untracked(|g| 0..g.len());
        looked.open.set(all.collect());
    };
    view! {
        <div class="two">
            <button class="btn" id="fold-all" disabled=none on:click=move |_| looked.open.update(|o| o.clear())>"Fold all"</button>
            <button class="btn" id="unfold-all" disabled=none on:click=unfold>"Unfold all"</button>
        </div>
        <p class="note wide" id="row-count">{count}</p>
    }
}

/// How many times are typed, and the way back.
#[component]
fn Edited() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let count = move || looked.typed.with(|t| t.len());
    let says = move || match count() {
        0 => "None. Select a layer and type how long it takes.".to_owned(),
        1 => "1 layer, marked *".to_owned(),
        n => format!("{n} layers, marked *"),
    };
    view! {
        <p class="note wide" id="typed-count">{says}</p>
        <Show when=move || { count() > 0 }>
            <button class="btn" id="reset-all" on:click=move |_| looked.page.edit(|i| edit::reset(i, None))>"Reset all"</button>
            <p class="note wide">"The link has your settings, not your times; save the plan."</p>
        </Show>
    }
}
