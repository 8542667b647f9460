//! The right column: what the plan takes, and all about the selected layer, its times to type over.

use super::look::Looked;
use crate::charts::chain::Look;
use crate::format::{self, Clock};
use crate::model::Passes;
use crate::model::edit::{self, Pass};
use crate::model::fold::Row;
use crate::shared::Shared;
use crate::views::help::focus;
use crate::views::results::{Better, Row as Figure};
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use pipewright_core::units::{Bytes, Nanos};

/// Operations that are listed; a longer list is cut, and says so.
const OPERATIONS: usize = 40;

#[component]
pub fn Details() -> impl IntoView {
    view! {
        <aside class="out" aria-label="Selected layer and results">
            <Results />
            <Selected />
        </aside>
    }
}

#[component]
fn Results() -> impl IntoView {
    let page = expect_context::<Looked>().page;
    let now = Memo::new(move |_| page.shown.with(|s| s.solved.figures));
    let step = move || format::hero(now.get().step);
    let peak = move || format::bytes(now.get().peak);
    view! {
        <section class="sum">
            <table>
                <thead><tr>
                    <th colspan="3"><h2>"This plan"</h2></th>
                    <th class="num">"last edit"</th>
                    <th class="num">"vs A"</th>
                </tr></thead>
                <tbody>
                    <Figure id="model-step" name="Step time" big=true better=Better::Less
                        exact=Signal::derive(move || now.get().step.0.to_string())
                        value=Signal::derive(move || step().0) unit=Signal::derive(move || step().1.to_owned())
                        delta=|a, b| format::relative(a.step.secs(), b.step.secs()) />
                    <Figure id="model-peak" name="Peak memory" better=Better::Less
                        exact=Signal::derive(move || now.get().peak.0.to_string())
                        value=Signal::derive(move || peak().0) unit=Signal::derive(move || peak().1.to_owned())
                        delta=|a, b| format::relative(a.peak.0 as f64, b.peak.0 as f64) />
                </tbody>
            </table>
            {move || page.shown.with(|s| s.problem.clone()).map(|why| view! { <p class="why"><b class="bad">{why}</b></p> })}
        </section>
    }
}

/// What is selected; the boxes stay while the same row does, so that typing keeps the focus.
#[component]
fn Selected() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let row =
        Memo::new(move |_| looked.picked.with(Option::is_some).then(|| looked.row()).flatten());
    view! {
        <section class="lay" id="layer">
            {move || match row.get() {
                None => view! {
                    <div class="sec"><h2>"Selected"</h2></div>
                    <p class="mut small">"Click a layer, or press ↓ in the list: its operations, memory and times are shown here."</p>
                }.into_any(),
                Some(row) => view! { <Heading row /> <Times row /> <Facts row /> <Operations row /> }.into_any(),
            }}
        </section>
    }
}

#[component]
fn Heading(row: Row) -> impl IntoView {
    let looked = expect_context::<Looked>();
    let name = move || looked.look(|_, look| look.name(&row).0.to_owned());
    let place = move || {
        let stage = |layer: usize| looked.borders.with(|b| b.partition_point(|b| *b <= layer));
        match (stage(row.first), stage(row.end - 1)) {
            (a, b) if a == b => format!("stage {a}"),
            (a, b) => format!("stages {a} to {b}"),
        }
    };
    let count = (row.end - row.first > 1).then(|| format!(" · {} layers", row.end - row.first));
    view! {
        <div class="sec"><h2 id="layer-name">{name}</h2><span class="dim small">{place}{count}</span></div>
    }
}

/// Forward and backward time: boxes for a layer, numbers for a group.
#[component]
fn Times(row: Row) -> impl IntoView {
    let looked = expect_context::<Looked>();
    if row.group().is_some() {
        let time = move || looked.look(|_, look: &Look| look.time(&row));
        let clock = move || Clock::of(time().both());
        return view! {
            <dl class="facts card">
                <dt>"Forward"</dt><dd>{move || clock().text(time().forward)}</dd>
                <dt>"Backward"</dt><dd>{move || clock().text(time().backward)}</dd>
            </dl>
            <p class="note">"The sum of its layers. Unfold it to type their times."</p>
        }
        .into_any();
    }
    let layer = row.first;
    let is_typed = move || looked.typed.with(|t| t.binary_search(&(layer as u32)).is_ok());
    view! {
        <div class="card times" role="group" aria-label="Times of one micro-batch">
            {Pass::BOTH.map(|pass| view! { <Time layer pass /> }).collect_view()}
            <Show when=is_typed>
                <button class="btn" id="reset-layer" on:click=move |_| {
                    looked.page.edit(|i| edit::reset(i, Some(layer)));
                    focus("time-forward");
                }>"Reset this layer"</button>
                <p class="note">"The link has your settings, not your times; save the plan."</p>
            </Show>
        </div>
    }
    .into_any()
}

/// One pass's box.
#[component]
fn Time(layer: usize, pass: Pass) -> impl IntoView {
    let looked = expect_context::<Looked>();
    let of = move |times: &[Passes]| {
        let passes = times.get(layer).copied().unwrap_or_default();
        if pass == Pass::Forward { passes.forward } else { passes.backward }
    };
    let now = Memo::new(move |_| looked.times.with(|t| of(t)));
    let own = Memo::new(move |_| looked.own.with(|t| of(t)));
    let differs = move || now.get() != own.get();
    let take = move |event: web_sys::Event| {
        let input: web_sys::HtmlInputElement = event_target(&event);
        match edit::parse(&input.value()).and_then(|time| typed(looked, layer, pass, time)) {
            Ok(()) => {}
            Err(why) => looked.page.complain(why),
        }
        // What holds, whatever was typed.
        input.set_value(&edit::written(now.get_untracked()));
    };
    let key = move |event: KeyboardEvent| {
        if event.key() == "Escape" {
            let input: web_sys::HtmlInputElement = event_target(&event);
            input.set_value(&edit::written(now.get_untracked()));
            event.stop_propagation();
            focus("chain");
        }
    };
    let id = format!("time-{}", pass.name());
    view! {
        <div class="row">
            <label for=id.clone()>{if pass == Pass::Forward { "Forward" } else { "Backward" }}</label>
            <div class="sl">
                <input id=id class="find" type="text" inputmode="decimal" autocomplete="off" class:typed=differs
                    prop:value=move || edit::written(now.get()) on:change=take on:keydown=key />
                <i>"ms"</i>
                <span class="dim small">{move || differs().then(|| format!("* not {}", edit::written(own.get())))}</span>
            </div>
        </div>
    }
}

/// Predicts the plan from a typed time.
fn typed(looked: Looked, layer: usize, pass: Pass, time: Nanos) -> Result<(), String> {
    let page = looked.page;
    let (graph, anatomy) = (page.graph.get_untracked(), looked.anatomy.get_untracked());
    if layer >= anatomy.layers.len() {
        return Ok(());
    }
    let times =
        page.inputs.with_untracked(|i| edit::typed(i, &graph, &anatomy, layer, pass, time))?;
    page.edit(|i| i.times = Some(Shared::new(times)));
    Ok(())
}

#[component]
fn Facts(row: Row) -> impl IntoView {
    let looked = expect_context::<Looked>();
    let facts = move || {
        looked.look(|_, look| {
            let layers = &look.anatomy.layers[row.first..row.end];
            let params: u64 = layers.iter().map(|l| l.params).sum();
            let flops: u64 = layers.iter().map(|l| l.flops).sum();
            let kept = look.anatomy.kept(row.first..row.end, look.samples);
            let sends = layers.last().map_or(Bytes::ZERO, |l| l.sends * look.samples);
            let time = look.time(&row).both();
            let all = Passes::sum(look.times).both();
            [
                (
                    "Share of all layers",
                    format!("{} %", format::percent(time.secs() / all.secs().max(1e-12), 1)),
                ),
                ("Parameters", format::scaled(params as f64)),
                ("Forward, one sample", format!("{}FLOP", format::scaled(flops as f64))),
                ("Kept for backward", format::bytes_text(kept)),
                ("A cut after it sends", format::bytes_text(sends)),
            ]
        })
    };
    view! {
        <dl class="facts">{move || facts().map(|(name, value)| view! { <dt>{name}</dt><dd>{value}</dd> }).collect_view()}</dl>
    }
}

/// The operations with the shapes that they give, of one sample.
#[component]
fn Operations(row: Row) -> impl IntoView {
    let looked = expect_context::<Looked>();
    let nodes = move || {
        looked.anatomy.with(|a| {
            let layers = a.layers.get(row.first..row.end).unwrap_or_default();
            let ends = layers.first().zip(layers.last());
            ends.map_or(0..0, |(a, b)| a.nodes.start as usize..b.nodes.end as usize)
        })
    };
    let rows = move || {
        looked.page.graph.with(|graph| {
            let nodes = graph.nodes().get(nodes()).unwrap_or_default();
            let row = |node: &pipewright_core::graph::Node| {
                let shape = node.output.shape.iter().map(u64::to_string).collect::<Vec<_>>();
                view! {
                    <tr><td class="nm" title=node.name.clone()>{node.op.name()}</td><td class="num">{shape.join(" × ")}</td></tr>
                }
            };
            nodes.iter().take(OPERATIONS).map(row).collect_view()
        })
    };
    let more = move || {
        let hidden = nodes().len().saturating_sub(OPERATIONS);
        (hidden > 0).then(|| view! { <p class="note">{format!("and {hidden} more")}</p> })
    };
    view! {
        <div>
            <table class="shares ops">
                <thead><tr><th>"operation"</th><th class="num">"gives, one sample"</th></tr></thead>
                <tbody>{rows}</tbody>
            </table>
            {more}
        </div>
    }
}
