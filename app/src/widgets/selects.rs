//! Model and cluster of the plan, in a group that folds.

use super::icons::{Icon, icon};
use crate::base::format;
use crate::base::later::Missing;
use crate::base::texts::{t, tr};
use crate::planner::choices::{ClusterChoice, ModelChoice, cluster_title, preset_title};
use crate::planner::inputs::Inputs;
use crate::planner::{engine, kept, sane};
use crate::state::State;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_split::wasm_split;
use pipewright_core::cost::CLUSTERS;
use pipewright_core::graph::presets::{PRESETS, Preset};

#[component]
pub fn Group(title: &'static str, hint: &'static str, children: Children) -> impl IntoView {
    view! {
        <details class="grp" open>
            <summary>
                {icon(Icon::Chevron)} <h2>{title}</h2> <span>{hint}</span>
            </summary>
            {children()}
        </details>
    }
}

#[component]
pub fn ModelSelect(id: &'static str) -> impl IntoView {
    let state = expect_context::<State>();
    let own = move || {
        let model = state.inputs.with(|i| i.model.clone());
        let known = matches!(&model, ModelChoice::Preset(p) if PRESETS.contains(p));
        (!known).then(|| view! { <option value=model.key() selected>{model.title()}</option> })
    };
    let chosen = move |event: web_sys::Event| {
        if let Ok(preset) = event_target_value(&event).parse() {
            choose_model(state, preset);
        }
    };
    let facts = move || {
        state.graph.with(|g| {
            let params = format::parameters(g.trainable_elements() as f64);
            tr!(
                "{params} params · {flops}FLOP",
                params,
                flops = format::scaled(g.forward_flops() as f64)
            )
        })
    };
    view! {
        <div class="row">
            <label for=id>{t("Model")}</label>
            <span class="sel">
                <select id=id on:change=chosen>
                    {PRESETS.map(|p| {
                        let mine = move || state.inputs.with(|i| i.model == ModelChoice::Preset(p));
                        view! { <option value=p.to_string() prop:selected=mine>{preset_title(p)}</option> }
                    }).collect_view()}
                    {own}
                </select>
            </span>
            <p class="note">{facts}</p>
        </div>
    }
}

/// Takes another model.
pub fn choose_model(state: State, preset: Preset) {
    spawn_local(async move {
        match with_model(state.inputs.get_untracked(), preset).await {
            Ok(inputs) => {
                state.look.view.set(None);
                state.replace(inputs);
            }
            Err(why) => state.complain(tr!("Sorry, {why}.", why)),
        }
    });
}

/// The inputs with another model, cut for as many lanes and in a size that fits.
#[wasm_split(tray, wasm_split_path = ::leptos::wasm_split, fallible)]
fn with_model(inputs: Inputs, preset: Preset) -> Result<Inputs, Missing> {
    let mut next = inputs;
    kept::recut(&mut next, &|inputs| {
        kept::another_model(inputs, |inputs, lanes| {
            inputs.model = ModelChoice::Preset(preset);
            engine::split(inputs, lanes);
            sane::settle(inputs);
        });
    });
    Ok(next)
}

#[component]
pub fn ClusterSelect(id: &'static str) -> impl IntoView {
    let state = expect_context::<State>();
    let own = move || {
        let cluster = state.inputs.with(|i| i.cluster.clone());
        matches!(cluster, ClusterChoice::File(_)).then(|| {
            let title = tr!("{name} (from a file)", name = cluster.cluster().name);
            view! { <option value="file" selected>{title}</option> }
        })
    };
    let chosen = move |event: web_sys::Event| {
        if let Some(cluster) = ClusterChoice::by_name(&event_target_value(&event)) {
            state.look.view.set(None);
            state.edit(|inputs| inputs.cluster = cluster);
        }
    };
    let precision = Memo::new(move |_| state.inputs.with(|i| i.rest.training.precision));
    let facts = move || {
        state.cluster.with(|c| {
            let memory = format::bytes_text(c.device.memory);
            // Times that were measured follow from no rate.
            if c.profile.is_some() {
                return memory;
            }
            let flops = c.device.peak(precision.get()) / 1e12;
            if flops < 1.0 {
                format!("{:.0} GFLOP/s · {memory}", flops * 1e3)
            } else {
                format!("{flops:.0} TFLOP/s · {memory}")
            }
        })
    };
    view! {
        <div class="row">
            <label for=id>{t("Cluster")}</label>
            <span class="sel">
                <select id=id on:change=chosen>
                    {CLUSTERS.map(|name| {
                        let mine = move || state.inputs.with(|i| i.cluster == ClusterChoice::Preset(name));
                        view! { <option value=name prop:selected=mine>{cluster_title(name)}</option> }
                    }).collect_view()}
                    {own}
                </select>
            </span>
            <p class="note" title=move || state.cluster.with(|c| c.device.name.clone())>{facts}</p>
        </div>
    }
}
