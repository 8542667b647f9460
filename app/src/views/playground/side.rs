//! The right column: the numbers as a table, a step of the schedule, and whether pipelining changed a bit.

use super::lab::Lab;
use super::tiles::sample;
use crate::charts::playground::step::draw;
use crate::format;
use crate::playground::race::{Race, Run, Twin, keeps_bits};
use crate::texts::{t, tr};
use crate::views::size::watch;
use leptos::prelude::*;
use pipewright_core::schedule::Updates;
use pipewright_core::units::Bytes;

#[component]
pub fn Side() -> impl IntoView {
    view! {
        <aside class="out" aria-label=t("Results of the playground")>
            <Numbers />
            <Step />
        </aside>
    }
}

#[component]
fn Numbers() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let rows = move || {
        lab.seen.track();
        lab.with(|race| race.runs.iter().enumerate().map(|(at, run)| row(at, run)).collect_view())
    };
    view! {
        <section class="sum">
            <table id="runs">
                <thead><tr>
                    <th><h2>{t("Trainings")}</h2></th><th class="num">{t("right")}</th><th class="num">{t("loss")}</th>
                    <th class="num">{t("sent")}</th><th class="num">{t("carried")}</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
            <p class="small dim">{t("Right: of 512 points that no training has seen. Sent: by a rank. Carried: what feedback owes, in gradients.")}</p>
        </section>
    }
}

fn row(at: usize, run: &Run) -> impl IntoView + use<> {
    let now = run.now();
    let number = |value: f64, text: String| if value.is_nan() { "–".to_owned() } else { text };
    let carried = run.way.method.feedback.then(|| format!("{:.1}", now.carried));
    view! {
        <tr data-run=run.way.to_string() data-loss=now.loss.to_string()>
            <th>{sample(at)} <span>{run.way.to_string()}</span></th>
            <td class="num">{number(now.accuracy, format!("{} %", format::percent(now.accuracy, 1)))}</td>
            <td class="num">{number(now.loss, format!("{:.3}", now.loss))}</td>
            <td class="num">{format::bytes_text(Bytes(now.sent as u64))}</td>
            <td class="num">{carried.unwrap_or_else(|| "–".into())}</td>
        </tr>
    }
}

#[component]
fn Step() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = watch(frame, (288.0, 88.0));
    let picture = move || {
        lab.choice.track();
        lab.seen.track();
        lab.with(|race| draw(&race.recipe.pipeline, size.get().0)).unwrap_or_default()
    };
    let facts = move || {
        lab.seen.track();
        lab.with(facts)
    };
    let bits = move || {
        lab.seen.track();
        lab.with(|race| race.runs.iter().map(|run| bits(race, run)).collect_view())
    };
    view! {
        <section class="pstep">
            <div class="sec"><h2>{t("A step of one rank")}</h2><span class="small dim">{facts}</span></div>
            <div node_ref=frame><div class="lanes-s" inner_html=picture></div></div>
        </section>
        <section class="pbits">
            <h2>{t("Beside one device without micro-batches")}</h2>
            <ul id="bits">{bits}</ul>
            <p class="small dim">{move || { lab.seen.track(); lab.with(why) }}</p>
        </section>
    }
}

fn facts(race: &Race) -> String {
    let pipeline = &race.recipe.pipeline;
    let bubble = format::percent(pipeline.bubble(), 0);
    tr!("{lanes} lanes, {bubble} % idle", lanes = pipeline.lanes.len(), bubble)
}

/// Whether the weights are those of the training beside it.
fn bits(race: &Race, run: &Run) -> impl IntoView + use<> {
    let way = run.way.to_string();
    let (class, text) = match run.twin() {
        Twin::None => ("dim", t("the same thing").to_owned()),
        Twin::Same(hash) => {
            let hash = format!("{hash:016x}");
            ("good", tr!("✓ all weights bit-identical, {hash}", hash = &hash[..8]))
        }
        Twin::Apart(by) => {
            let by = format!("{by:.1e}");
            ("warn", tr!("≠ weights differ by up to {by}", by))
        }
    };
    let age = run.trainer().staleness;
    let old = (age > 0 && race.recipe.pipeline.schedule.updates != Updates::Synchronous)
        .then(|| tr!("gradients up to {age} updates late", age));
    view! { <li data-run=way.clone()><b>{way.clone()}</b> <span class=class>{text}</span> <span class="dim">{old}</span></li> }
}

/// Why bits are the same or not.
fn why(race: &Race) -> &'static str {
    let pipeline = &race.recipe.pipeline;
    match pipeline.schedule.updates {
        Updates::Stashed => t(
            "Every stage updates after every micro-batch; a backward pass uses the weights of its forward pass, which are stashed.",
        ),
        Updates::DoubleBuffered => {
            t("All passes of a step use the weights of one update before: two versions are kept.")
        }
        Updates::Synchronous if keeps_bits(pipeline) => t(
            "Gradients are added in the order of micro-batches whatever the schedule, so not even a rounding differs.",
        ),
        Updates::Synchronous if pipeline.copies() > 1 => t(
            "This schedule keeps two copies of every stage. Each adds its own micro-batches, and the two are summed like ranks: other roundings, the same learning.",
        ),
        Updates::Synchronous => t(
            "This schedule takes backward passes in reverse, so sums are rounded in another order: the same learning, other last bits.",
        ),
    }
}
