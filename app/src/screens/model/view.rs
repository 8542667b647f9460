//! The Model screen: the layers as a chain with their costs, the plan's cuts on it, and times that can
//! be typed over.
//!
//! Most of it is markup that plain functions make, and events are handled where they bubble to: that
//! is a third of the code that as many views would be.

mod chain;
mod details;
mod look;
mod target;

use super::anatomy::chain::{around, find};
use super::anatomy::edit;
use crate::base::later::{self, Missing};
use crate::base::texts::{t, tr};
use crate::widgets::selects::{ClusterSelect, Group, ModelSelect};
use chain::ChainPane;
use details::Details;
use leptos::ev::{Event, KeyboardEvent, MouseEvent};
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use look::Looked;
use target::id_of;

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

/// What is found by its name.
#[derive(Clone, Default)]
struct Found {
    text: String,
    layers: Vec<usize>,
    at: usize,
}

#[component]
fn Choices() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let page = looked.page;
    let found = RwSignal::new(Found::default());
    let click = move |event: MouseEvent| match id_of(&event).as_str() {
        "fold-all" => looked.open.update(|open| open.fill(false)),
        "unfold-all" => looked.open.update(|open| open.fill(true)),
        "reset-all" => page.edit(|i| edit::reset(i, None)),
        _ => {}
    };
    let typed = move |event: Event| {
        if id_of(&event) == "find-layer" {
            let text = event_target_value(&event);
            let layers = looked
                .net
                .with_untracked(|n| find(n.anatomy.layers.iter().map(|l| l.name.as_str()), &text));
            found.set(Found { text, layers, at: 0 });
            show(looked, found);
        }
    };
    let key = move |event: KeyboardEvent| {
        if event.key() == "Enter" && id_of(&event) == "find-layer" {
            event.prevent_default();
            let back = event.shift_key();
            found.update(|f| {
                let count = f.layers.len().max(1);
                f.at = (f.at + if back { count - 1 } else { 1 }) % count;
            });
            show(looked, found);
        }
    };
    let hits = move || {
        found.with(|f| match f.layers.len() {
            _ if f.text.trim().is_empty() => String::new(),
            0 => t("No layer name matches.").into(),
            n => tr!("{at} of {n} · Enter for the next", at = f.at + 1, n),
        })
    };
    let rows = move || {
        looked.scene.with(|s| {
            let layers = s.net.anatomy.layers.len();
            tr!("{layers} layers in {rows} rows", layers, rows = s.chain.rows.len())
        })
    };
    let edited = move || looked.scene.with(|s| edited(s.typed.len()));
    view! {
        <aside class="inp" class:open=move || page.sheet.get() aria-label=t("Inputs of the model")
            on:click=click on:input=typed on:keydown=key>
            <Group title=t("Model and cluster") hint="">
                <ModelSelect id="model-model" />
                <ClusterSelect id="model-cluster" />
            </Group>
            <section class="grp ff" inner_html=find_box()></section>
            <div class="grp"><p class="note wide" role="status" id="found">{hits}</p><p class="note wide" id="row-count">{rows}</p></div>
            <section class="grp" id="typed" inner_html=edited></section>
        </aside>
    }
}

fn find_box() -> String {
    format!(
        "<h2 class='gh'>{}</h2><div class='row'><label for='find-layer'>{}</label>\
         <input id='find-layer' class='find wide' type='search' placeholder='{}' autocomplete='off'></div>\
         <div class='two'><button class='btn' id='fold-all'>{}</button>\
         <button class='btn' id='unfold-all'>{}</button></div>",
        t("Layers"),
        t("Find"),
        t("a layer"),
        t("Fold all"),
        t("Unfold all")
    )
}

/// How many times are typed, and the way back.
fn edited(count: usize) -> String {
    let says = match count {
        0 => t("None. Select a layer and type how long it takes.").to_owned(),
        1 => t("1 layer, marked *").to_owned(),
        n => tr!("{n} layers, marked *", n),
    };
    let mut out =
        format!("<h2 class='gh'>{}</h2><p class='note wide'>{says}</p>", t("Typed times"));
    if count > 0 {
        let (link, reset) = (
            t("The address has your settings, not your times; copied links have both."),
            t("Reset all times"),
        );
        out += &format!(
            "<p class='note wide'>{link}</p><button class='btn' id='reset-all'>{reset}</button>"
        );
    }
    out
}

/// Selects what was found, unfolded.
fn show(looked: Looked, found: RwSignal<Found>) {
    let layer = found.with_untracked(|f| f.layers.get(f.at).copied());
    if let Some(layer) = layer {
        let net = looked.net.get_untracked();
        looked.open.update(|open| around(&net.groups, layer).for_each(|g| open[g] = true));
        looked.pick(looked.scene.with_untracked(|s| s.chain.row_of(layer)));
    }
}
