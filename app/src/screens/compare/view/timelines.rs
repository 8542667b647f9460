//! The centre: A's step above B's, on one time axis.

use super::shown::Compare;
use crate::base::format;
use crate::base::texts::{self, t, tr};
use crate::base::upload;
use crate::planner::compare;
use crate::planner::details::one_line;
use crate::state::request::{Request, Side};
use crate::widgets::pair::{Arrangement, Foot, Hand, Painter, Picture, Seen, attach, follow, key};
use leptos::html;
use leptos::prelude::*;
use web_sys::DragEvent;

const NAMES: [&str; 2] = ["A", "B"];

#[component]
pub fn Timelines() -> impl IntoView {
    let state = expect_context::<Compare>();
    let canvases: [NodeRef<html::Canvas>; 2] = [NodeRef::new(), NodeRef::new()];
    let painter = Painter::new(state.pair, Arrangement::Stacked);
    attach(&canvases, painter.clone());
    follow(state.pair, painter.clone());
    let hand = Hand::new(state.pair, painter);
    let label = move || {
        let step = |seen: Option<Seen>| {
            seen.map_or(t("not shown").into(), |seen| {
                let (value, unit) = format::hero(seen.solved.timeline.step);
                format!("{value} {unit}")
            })
        };
        let (a, b) = (step(state.side(0)), step(state.side(1)));
        tr!(
            "One step of A, {a}, and of B, {b}, on one time axis. Arrow keys select actions of B; \
             the tables of differences and lanes say the same.",
            a,
            b
        )
    };
    let dropped = move |event: DragEvent| {
        event.prevent_default();
        // The page would take it for B.
        event.stop_propagation();
        state.page.request(Request::Open(upload::dropped(&event), Side::A));
    };
    view! {
        <section class="time" aria-label=t("Timelines of A and B")>
            <ToolBar />
            <div class="halves" id="compare-timelines" tabindex="0" role="application" aria-label=label
                on:keydown=move |e| key(state.pair, &e)>
                <div class="half" id="half-a" on:drop=dropped>
                    <Head index=0 /> <Picture index=0 canvas=canvases[0] hand=hand.clone() problem=problem(state, 0) />
                </div>
                <div class="half"><Head index=1 /> <Picture index=1 canvas=canvases[1] hand problem=problem(state, 1) /></div>
            </div>
            <Foot said=Signal::derive(move || said(state)) />
        </section>
    }
}

#[component]
fn ToolBar() -> impl IntoView {
    let page = expect_context::<Compare>().page;
    view! {
        <div class="tbar">
            <h2>{t("One time axis")}</h2>
            <label class="chk">
                <input type="checkbox" id="compare-critical" prop:checked=move || page.look.critical.get()
                    on:change=move |e| page.look.critical.set(event_target_checked(&e)) />
                <span>{t("Critical paths")}</span>
            </label>
            <div class="keys">
                <span class="key"><i class="f"></i>{t("forward")}</span>
                <span class="key"><i class="b"></i>{t("backward")}</span>
                <span class="key"><i class="idle"></i>{t("idle")}</span>
            </div>
        </div>
    }
}

/// Which of both it is.
#[component]
fn Head(index: usize) -> impl IntoView {
    let state = expect_context::<Compare>();
    let what = move || {
        state
            .page
            .inputs
            .with(|i| if index == 0 { compare::title(i) } else { compare::describe(i) })
    };
    let step = move || {
        let (value, unit) = format::hero(state.side(index)?.solved.timeline.step);
        Some(view! { <span class="num">{value}" "<i>{unit}</i></span> })
    };
    view! { <p class="half-h"><b>{NAMES[index]}</b> <span class="nm">{what}</span> {step}</p> }
}

/// Why a half does not show the newest plan.
fn problem(state: Compare, index: usize) -> Signal<Option<String>> {
    Signal::derive(move || match index {
        0 => state.a.with(|a| a.as_ref().err().map(|why| format!("A: {}", texts::said(why)))),
        _ => state.page.shown.with(|s| s.problem.as_ref().map(|_| s.stale().to_owned())),
    })
}

/// The selected action in both plans.
fn said(state: Compare) -> String {
    let Some(action) = state.page.look.selected.get() else { return String::new() };
    let line = |index: usize| {
        let seen = state.side(index)?;
        let line = one_line(&seen.solved.timeline, &seen.arrivals, action)?;
        Some(format!("{}: {line}", NAMES[index]))
    };
    [line(0), line(1)].into_iter().flatten().collect::<Vec<String>>().join("  ")
}
