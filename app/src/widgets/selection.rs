//! The selected action in full, and its micro-batch's way through the lanes.

use crate::base::format::{self, Clock};
use crate::base::texts::{t, tr};
use crate::planner::details::{because, drift, holds, waited, way};
use crate::planner::engine::Solved;
use crate::planner::range::TimeRange;
use crate::state::State;
use leptos::prelude::*;
use pipewright_core::schedule::Action;
use pipewright_core::timeline::causes;
use std::ops::Range;

#[component]
pub fn Selection() -> impl IntoView {
    let state = expect_context::<State>();
    view! {
        <section class="selsec" aria-label=t("Selection")>
            <div class="sec">
                <h2>{t("Selected")}</h2>
                <span class="dim small"><kbd>","</kbd>" "<kbd>"."</kbd>" "{t("step")}" · "<kbd>"Esc"</kbd>" "{t("clear")}</span>
            </div>
            {move || {
                let solved = state.shown.get().solved;
                if let Some(range) = state.look.range.get() {
                    let (a, b) = range;
                    return stretch(&solved, a.min(b)..a.max(b)).into_any();
                }
                let found = state.look.selected.get().and_then(|action| {
                    causes::find(&solved.timeline, action).map(|place| (action, place))
                });
                match found {
                    Some((action, place)) => card(state, &solved, action, place).into_any(),
                    None => view! {
                        <p class="card mut">{t("Click an action on the timeline, or reach it \
                                                with Tab and the arrow keys.")}</p>
                    }.into_any(),
                }
            }}
        </section>
    }
}

/// What each lane does in a stretch of time that was dragged over.
fn stretch(solved: &Solved, range: Range<f64>) -> impl IntoView {
    let clock = Clock::of(solved.timeline.step);
    let range = TimeRange::new(&solved.timeline, range);
    let rows = range.lanes.iter().enumerate().map(|(lane, busy)| {
        let idle = range.length().saturating_sub(*busy);
        view! {
            <tr><th scope="row">{tr!("Lane {lane}", lane)}</th>
                <td class="num">{clock.text(*busy)}</td>
                <td class="num">{clock.text(idle)}</td>
                <td class="num">{format!("{} %", format::percent(range.share(*busy), 0))}</td></tr>
        }
    });
    view! {
        <div class="card range" id="range">
            <p class="sel-h">{tr!("{range}: {length}", range = clock.span(range.from, range.to), length = clock.text(range.length()))}</p>
            <div class="wide" tabindex="0" role="region" aria-label=t("Lanes in the selected time")>
            <table>
                <thead><tr><th scope="col">{t("lane")}</th><th scope="col" class="num">{t("busy")}</th>
                    <th scope="col" class="num">{t("idle")}</th><th scope="col" class="num">{t("busy share")}</th></tr></thead>
                <tbody>{rows.collect_view()}</tbody>
                <tfoot><tr><th scope="row">{t("all lanes")}</th>
                    <td class="num">{clock.text(range.busy())}</td>
                    <td class="num">{clock.text(range.idle())}</td>
                    <td class="num">{format!("{} %", format::percent(range.mean(), 0))}</td></tr></tfoot>
            </table>
            </div>
        </div>
    }
}

fn card(
    state: State,
    solved: &Solved,
    action: Action,
    (lane, index): (usize, usize),
) -> impl IntoView {
    let timeline = &solved.timeline;
    let clock = Clock::of(timeline.step);
    let span = timeline.lanes[lane].spans[index];
    let mut facts = vec![
        (t("Where"), tr!("stage {stage} · lane {lane}", stage = action.stage, lane)),
        (t("When"), clock.span(span.start, span.end)),
        (t("Duration"), clock.text(span.end - span.start)),
        (t("Waited"), state.arrivals.with(|a| waited(timeline, a, lane, index, &clock))),
    ];
    if let Some(text) = state.arrivals.with(|a| because(timeline, a, lane, index, &clock)) {
        facts.push((t("During the wait"), text));
    }
    if let Some(text) = holds(solved, action, lane, &clock) {
        facts.push((t("Holds"), text));
    }
    if let Some(measured) = state.overlay()
        && let Some((l, i)) = causes::find(&measured, action)
    {
        let m = measured.lanes[l].spans[i];
        let (real, planned) = (m.end - m.start, span.end - span.start);
        let change = format::signed_percent(real.secs(), planned.secs());
        facts.push((t("Measured"), format!("{} ({change})", clock.text(real))));
        facts.push((t("Lane drift"), drift(timeline, &measured, lane)));
    }
    let class = format!("chip {}", action.kind.letter().to_ascii_lowercase());
    let (way, caption) = way(timeline, action, &clock);
    view! {
        <div class="card">
            <p class="sel-h"><span class=class>{action.kind.letter().to_string()}</span>{format::action_title(action)}</p>
            <dl class="facts">
                {facts.into_iter().map(|(name, text)| view! { <dt>{name}</dt><dd>{text}</dd> }).collect_view()}
            </dl>
            <div class="jrn">
                <div class="way" inner_html=way></div>
                <p>{caption}</p>
            </div>
        </div>
    }
}
