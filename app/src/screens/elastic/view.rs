//! The Elastic view: what became of a job when nodes came and went, and what would become of one.
//!
//! As in the Playground, regions are markup that is written once (`chart`), and one listener of
//! each kind finds what was meant by the control's own word.

mod hand;
mod lab;
mod pointer;
mod scripts;
mod show;

use super::chart::{form, page};
use super::state::ElasticState;
use crate::base::later::{self, Missing};
use crate::base::texts::t;
use crate::state::State;
use lab::Lab;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;

#[component]
pub fn ElasticView(own: ElasticState) -> impl IntoView {
    later::view(regions(own))
}

/// The view's regions, laid out by the style sheet.
#[wasm_split(elastic, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions(own: ElasticState) -> Result<AnyView, Missing> {
    let lab = Lab::new(expect_context::<State>(), own);
    let replica = lab.page.inputs.with_untracked(|inputs| inputs.ranks_of_replica());
    let markup = format!(
        "<aside class='inp' id='el-inputs' aria-label='{}'>{}</aside>\
         <section class='ework' aria-label='{}'>{}</section>\
         <aside class='out' aria-label='{}'>{}</aside>",
        t("Inputs of the simulation"),
        form::controls(replica),
        t("Job timeline"),
        page::work(),
        t("Figures of the job"),
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
            on:keydown=move |event| hand::key(lab, &event)
            on:pointerdown=move |event| pointer::down(lab, &event)
            on:pointermove=move |event| pointer::moved(lab, &event)
            on:pointerup=move |event| pointer::up(lab, &event)
            on:pointercancel=move |event| pointer::up(lab, &event)
            on:pointerout=move |event| pointer::left(lab, &event)
            on:wheel=move |event| pointer::wheel(lab, &event)></div>
    };
    Ok(shown.into_any())
}
