//! The right column: what the plan takes, and all about the selected layer, its times to type over.

use super::look::Looked;
use super::target::id_of;
use crate::base::focus::{focus, rewrite};
use crate::base::shared::Shared;
use crate::base::texts::{t, tr};
use crate::screens::model::anatomy::Passes;
use crate::screens::model::anatomy::edit::{self, Pass};
use crate::screens::model::chart::layer as picture;
use leptos::ev::{Event, KeyboardEvent, MouseEvent};
use leptos::prelude::*;
use pipewright_core::units::Nanos;
use wasm_bindgen::JsCast;

#[component]
pub fn Details() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let page = looked.page;
    let results = move || {
        let others = [page.before.get(), page.baseline.get()];
        page.shown.with(|s| picture::results(&s.solved.figures, others, s.problem.as_deref()))
    };
    let heading = move || match looked.selected() {
        Some((_, row)) => looked.look(|s, look| picture::heading(&row, look, &s.borders)),
        None => nothing(),
    };
    let facts = move || match looked.selected() {
        Some((_, row)) => page.graph.with(|g| looked.look(|_, look| picture::facts(&row, look, g))),
        None => String::new(),
    };
    let layer = move || looked.selected().and_then(|(_, r)| r.group().is_none().then_some(r.first));
    Effect::new(move |_| fill(looked, layer()));
    let take = move |event: Event| {
        let pass = Pass::BOTH.into_iter().find(|pass| id_of(&event) == id(*pass));
        let (Some(pass), Some(layer)) = (pass, layer()) else { return };
        let text = event_target_value(&event);
        if let Err(why) = edit::parse(&text).and_then(|time| typed(looked, layer, pass, time)) {
            page.complain(why);
        }
        // What holds, whatever was typed.
        fill(looked, Some(layer));
    };
    let key = move |event: KeyboardEvent| {
        if event.key() == "Escape" && Pass::BOTH.iter().any(|pass| id_of(&event) == id(*pass)) {
            fill(looked, layer());
            event.stop_propagation();
            focus("chain");
        }
    };
    let click = move |event: MouseEvent| {
        if id_of(&event) == "reset-layer" {
            page.edit(|i| edit::reset(i, layer()));
            rewrite("time-forward");
        }
    };
    view! {
        <aside class="out" aria-label=t("Selected layer and results")
            on:change=take on:keydown=key on:click=click>
            <section class="sum" inner_html=results></section>
            <section class="lay">
                <div class="sec" inner_html=heading></div>
                <div class="card times" id="times" role="group" aria-label=t("Times of one micro-batch") hidden inner_html=boxes()></div>
                <div inner_html=facts></div>
            </section>
        </aside>
    }
}

/// The heading while no layer is selected.
fn nothing() -> String {
    let (selected, how) = (t("Selected"), t("click a layer or press ↓ in the list"));
    format!("<h2>{selected}</h2><span class='dim small'>{how}</span>")
}

/// A box for the time of each pass, and the way back.
fn boxes() -> String {
    let row = |name: &str, id: &str| {
        format!(
            "<div class='row'><label for='time-{id}'>{name}</label><div class='sl'>\
             <input id='time-{id}' class='find' type='text' inputmode='decimal' autocomplete='off'><i>ms</i>\
             <span class='dim small' id='own-{id}'></span></div></div>"
        )
    };
    format!(
        "{}{}<div id='typed-here' hidden><button class='btn' id='reset-layer'>{}</button>\
         <p class='note'>{}</p></div>",
        row(t("Forward"), "forward"),
        row(t("Backward"), "backward"),
        t("Reset this layer"),
        t("The address has your settings, not your times; copied links have both.")
    )
}

fn id(pass: Pass) -> String {
    format!("time-{}", pass.name())
}

/// Writes a layer's times into the boxes; no layer has none.
fn fill(looked: Looked, layer: Option<usize>) {
    let scene = looked.scene.get();
    let hide = |id: &str, hidden: bool| {
        if let Some(element) = document().get_element_by_id(id) {
            let _ = element.toggle_attribute_with_force("hidden", hidden);
        }
    };
    hide("times", layer.is_none());
    let Some(layer) = layer else { return };
    hide("typed-here", scene.typed.binary_search(&(layer as u32)).is_err());
    for pass in Pass::BOTH {
        let of = |times: &[Passes]| {
            let passes = times.get(layer).copied().unwrap_or_default();
            if pass == Pass::Forward { passes.forward } else { passes.backward }
        };
        let (now, own) = (of(&scene.times), of(&scene.own));
        let input = document().get_element_by_id(&id(pass));
        if let Some(input) = input.and_then(|e| e.dyn_into::<web_sys::HtmlInputElement>().ok()) {
            input.set_value(&edit::written(now));
            let _ = input.class_list().toggle_with_force("typed", now != own);
        }
        let text =
            if now == own { String::new() } else { tr!("* not {own}", own = edit::written(own)) };
        if let Some(note) = document().get_element_by_id(&format!("own-{}", pass.name())) {
            note.set_text_content(Some(&text));
        }
    }
}

/// Predicts the plan from a typed time.
fn typed(looked: Looked, layer: usize, pass: Pass, time: Nanos) -> Result<(), String> {
    let page = looked.page;
    let (graph, net) = (page.graph.get_untracked(), looked.net.get_untracked());
    if layer >= net.anatomy.layers.len() {
        return Ok(());
    }
    let times =
        page.inputs.with_untracked(|i| edit::typed(i, &graph, &net.anatomy, layer, pass, time))?;
    page.edit(|i| i.times = Some(Shared::new(times)));
    Ok(())
}
