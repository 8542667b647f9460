//! In which numbers the plan trains.

use crate::base::texts::t;
use crate::planner::precision::note;
use crate::state::State;
use leptos::prelude::*;
use pipewright_core::graph::Precision;

#[component]
pub fn PrecisionSelect(id: &'static str) -> impl IntoView {
    let state = expect_context::<State>();
    let now = Memo::new(move |_| state.inputs.with(|i| i.rest.training.precision));
    let chosen = move |event: web_sys::Event| {
        if let Some(precision) = Precision::of_word(&event_target_value(&event)) {
            state.edit(|i| i.rest.training.precision = precision);
        }
    };
    let told = move || state.cluster.with(|c| note(now.get(), &c.device));
    view! {
        <div class="row">
            <label for=id>{t("Precision")}</label>
            <span class="sel">
                <select id=id on:change=chosen>
                    {Precision::ALL.map(|one| {
                        let mine = move || now.get() == one;
                        view! { <option value=one.word() prop:selected=mine>{title(one)}</option> }
                    }).collect_view()}
                </select>
            </span>
            {move || told().map(|text| view! { <p class="note" id="precision-note">{t(text)}</p> })}
        </div>
    }
}

fn title(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => t("f32"),
        Precision::Tf32 => t("f32, products in TF32"),
        Precision::Bf16 => t("bf16, weights in f32"),
        Precision::F16 => t("fp16, weights in f32"),
        Precision::Fp8 => t("bf16, products in fp8"),
    }
}
