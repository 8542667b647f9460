//! In which numbers the plan trains.

use crate::base::texts::t;
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
    // Only then times follow: such devices compute in single precision whatever is stored.
    let stores_only = move || {
        let multiplies = state.cluster.with(|c| c.device.half_flops_per_sec.is_some());
        now.get().is_half() && !multiplies
    };
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
            <Show when=stores_only>
                <p class="note">{t("This device computes in f32: half the bytes, no less time.")}</p>
            </Show>
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
