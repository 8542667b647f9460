//! The left column's rest of the plan: copies, how gradients travel, what is computed again, and the training.

use crate::base::later::{self, Missing};
use crate::base::screen::Screen;
use crate::base::texts::{n, t, tr};
use crate::planner::engine::{self, Ground};
use crate::planner::inputs::Inputs;
use crate::planner::link::{REPLICAS_MAX, TENSOR_MAX};
use crate::state::State;
use crate::state::request::Request;
use crate::widgets::selects::Group;
use crate::widgets::slider::{no_number, number};
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use pipewright_core::compress::Reduction;
use pipewright_core::plan::{Data, Optimizer, STEPS_MAX};

/// How gradients travel, as most would choose it; the Communication screen has all of them.
const WAYS: [&str; 5] = ["fp32", "bf16", "fp8-e4m3", "table-mean:2+feedback", "one-bit+feedback"];

const OPTIMIZERS: [(&str, &str); 4] =
    [("sgd", "SGD"), ("adam", "Adam"), ("adamw", "AdamW"), ("lars", "LARS")];

/// Kinds of data, what follows the kind's name, and how they are called.
const KINDS: [(&str, &str, &str); 10] = [
    ("synthetic", "", n("Synthetic samples")),
    ("shapes", "", n("Drawn shapes, 16 classes")),
    ("idx", ":data/mnist", n("MNIST files (IDX)")),
    ("cifar10", ":data/cifar-10-batches-bin", "CIFAR-10"),
    ("cifar100", ":data/cifar-100-binary", "CIFAR-100"),
    ("images", ":data/images", n("Folder of images")),
    ("tokens16", ":data/train.bin", n("Tokens, 16 bits")),
    ("tokens32", ":data/train.bin", n("Tokens, 32 bits")),
    ("npy", ":data", n("NumPy arrays")),
    ("safetensors", ":data.safetensors", "safetensors"),
];

/// Groups below the pipeline's; fetched with the tray, after the first picture.
#[component]
pub fn Rest() -> impl IntoView {
    later::view(groups())
}

#[wasm_split(tray, wasm_split_path = ::leptos::wasm_split, fallible)]
fn groups() -> Result<AnyView, Missing> {
    Ok(view! {
        <Group title=t("Copies and memory") hint="">
            <Replicas />
            <Zero /><ZeroGradients />
            <Tensor /><Sequence /><Experts />
            <Gradients />
            <Recompute />
        </Group>
        <Group title=t("Training") hint=t("what the plan file runs")>
            <OptimizerRows />
            <DataRows />
            <Steps />
        </Group>
    }
    .into_any())
}

/// Puts back what a box had before something was typed that cannot be.
fn put_back(event: &web_sys::Event, now: String) {
    let input: web_sys::HtmlInputElement = event_target(event);
    input.set_value(&now);
}

/// The number from 1 to `most` that was typed; where it is none, that is said and the box has the one of `now` again.
fn whole(
    state: State,
    event: &web_sys::Event,
    label: &'static str,
    now: u64,
    most: u64,
) -> Option<u64> {
    let typed = number(event, most);
    if typed.is_none() {
        put_back(event, now.to_string());
        state.complain(no_number(t(label), 1, most));
    }
    typed
}

#[component]
fn Replicas() -> impl IntoView {
    let state = expect_context::<State>();
    let typed = move |event: web_sys::Event| {
        let now = state.inputs.with_untracked(|i| i.rest.data_parallel.replicas);
        let most = REPLICAS_MAX.into();
        if let Some(n) = whole(state, &event, n("Replicas"), now.into(), most) {
            state.edit(|i| i.rest.data_parallel.replicas = n as u32);
        }
    };
    let devices = Memo::new(move |_| state.shown.with(|s| s.solved.devices));
    let says = move || {
        state.inputs.with(|i| match (i.rest.data_parallel.replicas, i.lanes()) {
            _ if u64::from(i.ranks()) > devices.get() => tr!(
                "{ranks} ranks share the cluster's devices: {devices}.",
                ranks = i.ranks(),
                devices = devices.get()
            ),
            (1, _) => String::new(),
            (replicas, lanes) if i.rest.tensor > 1 => {
                tr!("{replicas} pipelines, {lanes} lanes each.", replicas, lanes)
            }
            (replicas, 1) => tr!("Data parallel: {replicas} devices sum gradients.", replicas),
            (replicas, lanes) => tr!(
                "{replicas} pipelines of {lanes} lanes: {ranks} devices.",
                replicas,
                lanes,
                ranks = i.ranks()
            ),
        })
    };
    view! {
        <div class="row">
            <label for="plan-replicas">{t("Replicas")}</label>
            <input id="plan-replicas" class="box" type="number" inputmode="numeric" min="1" max=REPLICAS_MAX.to_string()
                prop:value=move || state.inputs.with(|i| i.rest.data_parallel.replicas.to_string()) on:change=typed />
            <p class="note" id="plan-replicas-note">{says}</p>
        </div>
    }
}

/// Whether replicas divide what the optimizer keeps.
#[component]
fn Zero() -> impl IntoView {
    let state = expect_context::<State>();
    let is = Signal::derive(move || state.inputs.with(|i| i.rest.data_parallel.divides_updates()));
    let set = move |on: bool| state.edit(|i| i.rest.data_parallel.zero = on.into());
    tick("plan-zero", t("Replicas divide the optimizer's state (ZeRO-1)"), is, Callback::new(set))
}

/// Whether they divide gradients, too.
#[component]
fn ZeroGradients() -> impl IntoView {
    let state = expect_context::<State>();
    let zero = Memo::new(move |_| state.inputs.with(|i| i.rest.data_parallel.zero));
    let is = Signal::derive(move || zero.get() > 1);
    let set = move |on: bool| state.edit(|i| i.rest.data_parallel.zero = 1 + u8::from(on));
    move || {
        (zero.get() > 0).then(|| {
            tick("plan-zero-gradients", t("And gradients (ZeRO-2)"), is, Callback::new(set))
        })
    }
}

/// Whether ranks of a tensor group have slices of the sequence where they divide nothing else.
#[component]
fn Sequence() -> impl IntoView {
    let state = expect_context::<State>();
    let is = Signal::derive(move || state.inputs.with(|i| i.rest.sequence_parallel));
    let set = move |on: bool| state.edit(|i| i.rest.sequence_parallel = on);
    let there =
        Memo::new(move |_| state.inputs.with(|i| i.rest.tensor > 1 || i.rest.sequence_parallel));
    move || {
        there.get().then(|| {
            tick(
                "plan-sequence",
                t("And the sequence (sequence parallelism)"),
                is,
                Callback::new(set),
            )
        })
    }
}

/// A box to tick, in a line of its own.
fn tick(
    id: &'static str,
    text: &'static str,
    is: Signal<bool>,
    set: Callback<bool>,
) -> impl IntoView {
    view! {
        <p class="row tight"><label class="wide"><input id=id type="checkbox" prop:checked=move || is.get()
            on:change=move |event| set.run(event_target_checked(&event)) />" "{text}</label></p>
    }
}

/// Ranks that divide the work of each lane.
#[component]
fn Tensor() -> impl IntoView {
    let state = expect_context::<State>();
    let typed = move |event: web_sys::Event| {
        let now = state.inputs.with_untracked(|i| i.rest.tensor);
        let most = TENSOR_MAX.into();
        if let Some(n) = whole(state, &event, n("Tensor group"), now.into(), most) {
            state.edit(|i| i.rest.tensor = n as u32);
        }
    };
    let says = move || {
        state.inputs.with(|i| match i.rest.tensor {
            1 => String::new(),
            tensor => tr!(
                "{tensor} ranks divide each lane's attention and feed-forward parts: {ranks} ranks.",
                tensor,
                ranks = i.ranks()
            ),
        })
    };
    view! {
        <div class="row">
            <label for="plan-tensor">{t("Tensor group")}</label>
            <input id="plan-tensor" class="box" type="number" inputmode="numeric" min="1" max=TENSOR_MAX.to_string()
                prop:value=move || state.inputs.with(|i| i.rest.tensor.to_string()) on:change=typed />
            <p class="note" id="plan-tensor-note">{says}</p>
        </div>
    }
}

/// Replicas that divide experts, where the network has some.
#[component]
fn Experts() -> impl IntoView {
    let state = expect_context::<State>();
    let of = |i: &Inputs| i.rest.data_parallel.expert_parallel;
    let there =
        Memo::new(move |_| state.inputs.with(|i| of(i) > 1 || i.model.graph().has_experts()));
    let typed = move |event: web_sys::Event| {
        let (now, most) =
            state.inputs.with_untracked(|i| (of(i), i.rest.data_parallel.replicas.max(of(i))));
        if let Some(n) = whole(state, &event, n("Expert group"), now.into(), most.into()) {
            state.edit(|i| i.rest.data_parallel.expert_parallel = n as u32);
        }
    };
    let says = move || match state.inputs.with(of) {
        1 => String::new(),
        experts => tr!(
            "{experts} replicas divide the experts and send each other rows of tokens.",
            experts
        ),
    };
    move || {
        there.get().then(|| {
            view! {
                <div class="row">
                    <label for="plan-experts">{t("Expert group")}</label>
                    <input id="plan-experts" class="box" type="number" inputmode="numeric" min="1"
                        max=REPLICAS_MAX.to_string()
                        prop:value=move || state.inputs.with(|i| of(i).to_string()) on:change=typed />
                    <p class="note" id="plan-experts-note">{says}</p>
                </div>
            }
        })
    }
}

#[component]
fn Gradients() -> impl IntoView {
    let state = expect_context::<State>();
    let now = Memo::new(move |_| state.inputs.with(|i| i.rest.communication.gradients.to_string()));
    let chosen = move |event: web_sys::Event| match event_target_value(&event).parse::<Reduction>()
    {
        Ok(way) => state.edit(|i| i.rest.communication.gradients = way),
        Err(_) => state.go(Screen::Communication),
    };
    let other = move || {
        let now = now.get();
        (!WAYS.contains(&now.as_str()))
            .then(|| view! { <option value=now.clone() selected>{now.clone()}</option> })
    };
    view! {
        <div class="row">
            <label for="plan-gradients">{t("Gradients as")}</label>
            <span class="sel">
                <select id="plan-gradients" on:change=chosen>
                    {WAYS.map(|way| view! { <option value=way prop:selected=move || now.get() == way>{way}</option> })}
                    {other}
                    <option value="other">{t("compare codecs")}" …"</option>
                </select>
            </span>
        </div>
    }
}

#[component]
fn Recompute() -> impl IntoView {
    let state = expect_context::<State>();
    let stages = Memo::new(move |_| {
        state.inputs.with(|i| {
            let again = i.sequences().iter().filter(|sequence| !sequence.0.is_empty()).count();
            (again, i.stages())
        })
    });
    let says = move || match stages.get() {
        (0, _) => t("nothing").to_owned(),
        (again, all) => tr!("{again} of {all} stages", again, all),
    };
    let open = move |_| {
        let worst = state.shown.with_untracked(|s| s.solved.figures.worst);
        state.request(Request::Recompute(worst));
    };
    let all = move |_| {
        let ground = state.ground.get_untracked();
        state.edit(|i| engine::recompute_all(i, &Ground::near(&i.clone(), &ground)));
    };
    view! {
        <div class="row">
            <span class="lab">{t("Recompute")}</span>
            <span class="act" id="plan-recompute">
                <span>{says}</span>
                <button class="fix" id="plan-recompute-all" title=t("Every stage keeps only what it receives")
                    on:click=all>{t("All")}</button>
                <button class="fix" on:click=open>{t("Choose")}" …"</button>
                <Show when=move || stages.get().0 != 0>
                    <button class="fix" on:click=move |_| state.edit(|i| i.recompute = None)>{t("Remove")}</button>
                </Show>
            </span>
        </div>
    }
}

#[component]
fn OptimizerRows() -> impl IntoView {
    let state = expect_context::<State>();
    let now = Memo::new(move |_| state.inputs.with(|i| i.rest.optimizer));
    let chosen = move |event: web_sys::Event| {
        if let Ok(optimizer) = event_target_value(&event).parse::<Optimizer>() {
            state.edit(|i| i.rest.optimizer = optimizer);
        }
    };
    let typed = move |event: web_sys::Event| {
        match event_target_value(&event).trim().parse::<f32>() {
            Ok(rate) if rate.is_finite() && rate > 0.0 => state.edit(|i| {
                // Every optimizer has a learning rate.
                let _ = i.rest.optimizer.replace("learning_rate", rate);
            }),
            _ => {
                put_back(&event, now.get_untracked().learning_rate().to_string());
                state.complain(t("Learning rate: a number above 0."));
            }
        }
    };
    view! {
        <div class="row">
            <label for="plan-optimizer">{t("Optimizer")}</label>
            <span class="sel">
                <select id="plan-optimizer" on:change=chosen>
                    {OPTIMIZERS.map(|(name, title)| view! {
                        <option value=name prop:selected=move || now.get().name() == name>{title}</option>
                    })}
                </select>
            </span>
        </div>
        <div class="row">
            <label for="plan-rate">{t("Learning rate")}</label>
            <input id="plan-rate" class="box wide" inputmode="decimal"
                prop:value=move || now.get().learning_rate().to_string() on:change=typed />
        </div>
    }
}

#[component]
fn DataRows() -> impl IntoView {
    let state = expect_context::<State>();
    let now = Memo::new(move |_| state.inputs.with(|i| i.rest.data.clone()));
    let kind = move || now.with(|data| data.to_string().split(':').next().unwrap_or("").to_owned());
    let set = move |text: String| match text.parse::<Data>() {
        Ok(data) => state.edit(|i| i.rest.data = data),
        Err(why) => state.complain(why),
    };
    let chosen = move |event: web_sys::Event| {
        let name = event_target_value(&event);
        let usual = KINDS.iter().find(|(kind, ..)| *kind == name).map_or("", |(_, path, _)| path);
        set(format!("{name}{usual}"));
    };
    let typed = move |event: web_sys::Event| {
        set(format!("{}:{}", untrack(kind), event_target_value(&event).trim()))
    };
    let path = Memo::new(move |_| now.with(|data| data.path().map(str::to_owned)));
    view! {
        <div class="row">
            <label for="plan-data">{t("Data")}</label>
            <span class="sel">
                <select id="plan-data" on:change=chosen>
                    {KINDS.map(|(name, _, title)| view! {
                        <option value=name prop:selected=move || kind() == name>{t(title)}</option>
                    })}
                </select>
            </span>
        </div>
        <div class="row" class:none=move || path.with(Option::is_none)>
            <label for="plan-path">{t("Path")}</label>
            <input id="plan-path" class="box wide" prop:value=move || path.get().unwrap_or_default() on:change=typed
                title=t("On the machine that trains") />
        </div>
    }
}

#[component]
fn Steps() -> impl IntoView {
    let state = expect_context::<State>();
    let typed = move |event: web_sys::Event| {
        let now = state.inputs.with_untracked(|i| i.rest.steps);
        if let Some(steps) = whole(state, &event, n("Steps"), now, STEPS_MAX) {
            state.edit(|i| i.rest.steps = steps);
        }
    };
    view! {
        <div class="row">
            <label for="plan-steps">{t("Steps")}</label>
            <input id="plan-steps" class="box" type="number" inputmode="numeric" min="1" max=STEPS_MAX.to_string()
                prop:value=move || state.inputs.with(|i| i.rest.steps.to_string()) on:change=typed />
        </div>
    }
}
