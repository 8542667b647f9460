//! The left column: data, network, ranks, pipeline, link.

use super::lab::Lab;
use crate::playground::choice::{
    BATCHES, Choice, Control, LAYERS_MAX, MICRO_BATCHES, MOMENTA, NOISE_MAX, RANKS, RATES,
    SLOWNESS, WIDTHS,
};
use crate::playground::data::Set;
use crate::playground::network::Activation;
use crate::texts::{t, tr};
use crate::views::icons::{Icon, icon};
use crate::views::slider::Slider;
use leptos::prelude::*;
use pipewright_core::schedule::ScheduleKind;

#[component]
pub fn Controls() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let page = lab.page;
    view! {
        <aside class="inp" class:open=move || page.sheet.get() aria-label=t("Inputs of the playground")>
            <Group title=t("Data")><DataChoice /></Group>
            <Group title=t("Network")><NetworkChoice /></Group>
            <Group title=t("Virtual ranks")><RankChoice /></Group>
            <Group title=t("Pipeline of a rank")><PipelineChoice /></Group>
            <Group title=t("Link")><LinkChoice /></Group>
        </aside>
    }
}

#[component]
fn Group(title: &'static str, children: Children) -> impl IntoView {
    view! {
        <details class="grp" open>
            <summary>{icon(Icon::Chevron)} <h2>{title}</h2></summary>
            {children()}
        </details>
    }
}

/// A number of the choice.
#[derive(Clone, Copy)]
struct Number {
    id: &'static str,
    label: &'static str,
    unit: &'static str,
    get: fn(&Choice) -> u64,
    set: fn(&mut Choice, u64),
}

/// Slider, box and unit; what is not among `values` is said, not corrected.
fn number(lab: Lab, number: Number, values: Vec<u64>) -> impl IntoView {
    let Number { id, label, unit, get, set } = number;
    let usual = get(&Choice::default());
    let most = values.last().copied().unwrap_or(1);
    let allowed = values.clone();
    let taken = Callback::new(move |(value, dragging): (u64, bool)| {
        if allowed.contains(&value) {
            lab.edit(dragging, |choice| set(choice, value));
        } else if !dragging {
            let list = allowed.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            lab.page.complain(tr!("{label} may be {list}.", label, list));
            lab.choice.update(|_| ());
        }
    });
    view! {
        <Slider id=id label=label unit=Signal::derive(move || unit.to_owned()) values=Signal::stored(values)
            value=Signal::derive(move || lab.choice.with(get)) usual=usual most=most set=taken />
    }
}

/// One of few things, by name.
fn pick<T: Copy + PartialEq + Send + Sync + 'static>(
    lab: Lab,
    (id, label): (&'static str, &'static str),
    offered: Vec<(String, T)>,
    get: fn(&Choice) -> T,
    set: fn(&mut Choice, T),
) -> impl IntoView {
    let offered = StoredValue::new(offered);
    let chosen = move |event: web_sys::Event| {
        let at = event_target_value(&event).parse::<usize>().ok();
        if let Some(value) = at.and_then(|at| offered.with_value(|o| o.get(at).map(|o| o.1))) {
            lab.edit(false, |choice| set(choice, value));
        }
    };
    let options = offered.get_value().into_iter().enumerate().map(|(at, (name, value))| {
        let mine = move || lab.choice.with(|choice| get(choice) == value);
        view! { <option value=at.to_string() prop:selected=mine>{name}</option> }
    });
    view! {
        <div class="row"><label for=id>{label}</label>
            <span class="sel"><select id=id on:change=chosen>{options.collect_view()}</select></span>
        </div>
    }
}

/// What is wrong at a control, and the way out.
#[component]
fn Wrong(control: Control) -> impl IntoView {
    let lab = expect_context::<Lab>();
    move || {
        let problem = lab.problem.get().filter(|problem| problem.control == control)?;
        let fix = problem.fix.map(|(name, to)| {
            view! { <button class="fix" id="play-fix" on:click=move |_| lab.edit(false, |c| *c = (*to).clone())>{name}</button> }
        });
        Some(view! { <p class="note wide bad" role="alert">{problem.text} {fix}</p> })
    }
}

#[component]
fn DataChoice() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let names = [t("Circles"), t("Moons"), t("Xor"), t("Spiral")];
    let sets = Set::ALL.into_iter().zip(names).map(|(set, name)| {
        let mine = move || lab.choice.with(|choice| choice.set == set).to_string();
        view! { <button aria-pressed=mine on:click=move |_| lab.edit(false, |c| c.set = set)>{name}</button> }
    });
    let typed = move |event: web_sys::Event| {
        let input: web_sys::HtmlInputElement = event_target(&event);
        match input.value().trim().parse::<u64>().ok().filter(|seed| *seed <= 9999) {
            Some(seed) => lab.edit(false, |choice| choice.seed = seed),
            None => input.set_value(&lab.choice.with_untracked(|choice| choice.seed.to_string())),
        }
    };
    let noise = Number {
        id: "noise",
        label: t("Noise"),
        unit: "%",
        get: |c| c.noise,
        set: |c, value| c.noise = value,
    };
    view! {
        <div class="seg wide" role="group" aria-label=t("Data set")>{sets.collect_view()}</div>
        {number(lab, noise, (0..=NOISE_MAX).collect())}
        <div class="row"><label for="seed">{t("Seed")}</label>
            <span class="pair"><input id="seed" type="number" min="0" max="9999"
                prop:value=move || lab.choice.with(|c| c.seed.to_string()) on:change=typed />
            <button class="btn" on:click=move |_| lab.edit(false, |c| c.seed = (c.seed + 1) % 10_000)>{t("Next")}</button></span>
        </div>
    }
}

#[component]
fn NetworkChoice() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let layers = Number {
        id: "layers",
        label: t("Hidden layers"),
        unit: "",
        get: |c| c.layers,
        set: |c, value| c.layers = value,
    };
    let width = Number {
        id: "width",
        label: t("Units each"),
        unit: "",
        get: |c| c.width,
        set: |c, value| c.width = value,
    };
    let activations = vec![("tanh".into(), Activation::Tanh), ("ReLU".into(), Activation::Relu)];
    let rates = RATES.map(|rate| (rate.to_string(), rate)).to_vec();
    let momenta = MOMENTA.map(|momentum| (momentum.to_string(), momentum)).to_vec();
    view! {
        {number(lab, layers, (1..=LAYERS_MAX).collect())}
        {number(lab, width, WIDTHS.to_vec())}
        {pick(lab, ("activation", t("Activation")), activations, |c| c.activation, |c, v| c.activation = v)}
        {pick(lab, ("rate", t("Learning rate")), rates, |c| c.rate, |c, v| c.rate = v)}
        {pick(lab, ("momentum", t("Momentum")), momenta, |c| c.momentum, |c, v| c.momentum = v)}
    }
}

#[component]
fn RankChoice() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let ranks = Number {
        id: "ranks",
        label: t("Ranks"),
        unit: "",
        get: |c| c.ranks,
        set: |c, value| c.ranks = value,
    };
    let batch = Number {
        id: "samples",
        label: t("Mini-batch"),
        unit: "",
        get: |c| c.batch,
        set: |c, value| c.batch = value,
    };
    let alone = move || {
        let one = lab.choice.with(|choice| choice.ranks == 1);
        one.then(|| view! { <p class="note wide">{t("One rank alone sends nothing: codecs change nothing.")}</p> })
    };
    view! {
        {number(lab, ranks, RANKS.to_vec())}
        {alone}
        {number(lab, batch, BATCHES.to_vec())}
        <Wrong control=Control::Batch />
    }
}

#[component]
fn PipelineChoice() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let stages = Number {
        id: "stages",
        label: t("Stages"),
        unit: "",
        get: |c| c.stages,
        set: |c, value| c.stages = value,
    };
    let micro = Number {
        id: "micro",
        label: t("Micro-batches"),
        unit: "",
        get: |c| c.micro_batches,
        set: |c, value| c.micro_batches = value,
    };
    let kinds = ScheduleKind::ALL.map(|kind| (kind.title().to_owned(), kind)).to_vec();
    view! {
        {number(lab, stages, (1..=LAYERS_MAX + 1).collect())}
        <Wrong control=Control::Stages />
        {number(lab, micro, MICRO_BATCHES.to_vec())}
        {pick(lab, ("play-schedule", t("Schedule")), kinds, |c| c.schedule, |c, v| c.schedule = v)}
        <Wrong control=Control::Schedule />
    }
}

#[component]
fn LinkChoice() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let slow = Number {
        id: "slow",
        label: t("fp32 sum takes"),
        unit: "×",
        get: |c| c.slowness,
        set: |c, value| c.slowness = value,
    };
    view! {
        {number(lab, slow, SLOWNESS.to_vec())}
        <p class="note wide">{t("the computing of a step: the axis Time counts both")}</p>
    }
}
