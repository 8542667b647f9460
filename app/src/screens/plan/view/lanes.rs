//! The table that says in words what the canvas shows.

use super::results::{memory, share};
use crate::base::format::{self, Clock, percent};
use crate::base::texts::t;
use crate::planner::engine::{Ground, programs};
use crate::planner::held::Held;
use crate::screens::plan::model::reason::idle_of as idle;
use crate::state::State;
use leptos::prelude::*;
use pipewright_core::units::Bytes;

#[component]
pub fn Lanes() -> impl IntoView {
    let state = expect_context::<State>();
    let count = Memo::new(move |_| state.shown.with(|s| s.solved.timeline.lanes.len()));
    view! {
        <section class="lanesec" aria-label=t("Lanes")>
            <div class="sec"><h2>{t("Lanes")}</h2></div>
            <table class="lanes">
                <thead><tr>
                    <th>{t("lane")}</th><th colspan="2">{t("busy")}</th>
                    <th class="num">{t("idle")}</th><th class="num">{t("memory")}</th>
                </tr></thead>
                <tbody>
                    <For each=move || 0..count.get() key=|lane| *lane let(lane)>
                        <Row lane />
                    </For>
                </tbody>
            </table>
        </section>
    }
}

/// What a lane's memory is for, the parts as shares of the whole.
#[component]
fn Parts(lane: usize) -> impl IntoView {
    let state = expect_context::<State>();
    let rows = move || {
        state.shown.with(|shown| {
            let whole = shown.solved.timeline.lanes.get(lane).map_or(1, |l| l.arena.0.max(1)) as f64;
            let inputs = &shown.solved.inputs;
            let programs = state.ground.with(|g| programs(inputs, &Ground::near(inputs, g)));
            let program = programs.as_ref().and_then(|programs| programs.get(lane));
            let parts = program.map(|program| Held::of(program).parts().collect::<Vec<_>>());
            let row = |(name, bytes): (&'static str, Bytes)| {
                let share = bytes.0 as f64 / whole;
                view! {
                    <dt>{t(name)}</dt>
                    <dd><span class="mini"><i style=format!("width:{:.1}%", share * 100.0)></i></span></dd>
                    <dd class="num">{format::bytes_text(bytes)}</dd>
                }
            };
            parts.unwrap_or_default().into_iter().map(row).collect_view()
        })
    };
    view! { <dl class="parts">{rows}</dl> }
}

#[component]
fn Row(lane: usize) -> impl IntoView {
    let state = expect_context::<State>();
    // Busy share, idle text, memory text and its class: one memo, so that a row whose numbers
    // stayed the same is not touched.
    let facts = Memo::new(move |_| {
        state.shown.with(|shown| {
            let t = &shown.solved.timeline;
            let Some(content) = t.lanes.get(lane) else {
                return (0.0, String::new(), (String::new(), ""));
            };
            let busy = content.busy();
            let idle = Clock::of(t.step).short(t.step.saturating_sub(busy));
            (share(busy, t.step), idle, memory(content.arena, shown.solved.capacity))
        })
    });
    let busy = move || facts.with(|f| f.0);
    // Looked for when it is asked for: causes of all gaps of all lanes at each edit would be felt.
    let near = RwSignal::new(false);
    let why = move || {
        near.get().then(|| {
            state
                .shown
                .with(|shown| state.arrivals.with(|arrivals| idle(&shown.solved, arrivals, lane)))
        })
    };
    let open = RwSignal::new(false);
    view! {
        <tr>
            <th scope="row">{lane}</th>
            <td><span class="mini"><i style=move || format!("width:{:.1}%", busy() * 100.0)></i></span></td>
            <td class="num">{move || format!("{} %", percent(busy(), 0))}</td>
            <td class="num" title=why on:pointerenter=move |_| near.set(true)>{move || facts.with(|f| f.1.clone())}</td>
            <td class=move || format!("num {}", facts.with(|f| f.2.1))>
                <button class="pick" title=t("What the memory is for") aria-expanded=move || open.get().to_string()
                    on:click=move |_| open.update(|o| *o = !*o)>{move || facts.with(|f| f.2.0.clone())}</button>
            </td>
        </tr>
        <Show when=move || open.get()>
            <tr class="held"><td colspan="5"><Parts lane /></td></tr>
        </Show>
    }
}
