//! The Playground view: small networks, trained while one looks.
//!
//! Its regions are markup that is written once (`chart`); one listener each for clicks,
//! changes and keys finds what was meant by the control's own word, and what changes is put in by name.
//! As views the same controls took three times the code.

mod hand;
mod lab;
mod show;

use super::chart::{form, page};
use super::state::PlaygroundState;
use crate::base::later::{self, Missing};
use crate::base::texts::t;
use crate::state::State;
use lab::Lab;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;

#[component]
pub fn PlaygroundView(own: PlaygroundState) -> impl IntoView {
    later::view(regions(own))
}

/// The view's regions, laid out by the style sheet.
#[wasm_split(playground, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions(own: PlaygroundState) -> Result<AnyView, Missing> {
    let lab = Lab::new(expect_context::<State>(), own);
    let markup = format!(
        "<aside class='inp' id='pg-inputs' aria-label='{}'>{}</aside>\
         <section class='pwork' aria-label='{}'>{}</section>\
         <aside class='out' aria-label='{}'>{}</aside>",
        t("Inputs of the playground"),
        form::controls(),
        t("Training runs side by side"),
        page::work(),
        t("Results of the playground"),
        page::side(),
    );
    let root: NodeRef<leptos::html::Div> = NodeRef::new();
    Effect::new(move |_| {
        if root.get().is_some() {
            lab.start();
        }
    });
    let shown = view! {
        <div class="whole" node_ref=root inner_html=markup
            on:click=move |event| hand::clicked(lab, &event)
            on:input=move |event| hand::typed(lab, &event, true)
            on:change=move |event| hand::typed(lab, &event, false)
            on:dblclick=move |event| hand::usual(lab, &event)
            on:keydown=move |event| hand::key(lab, &event)></div>
    };
    Ok(shown.into_any())
}
