//! The centre: predicted and measured step in each lane, on one time axis.

use super::shown::Run;
use super::steps::Steps;
use crate::base::format;
use crate::base::texts::{n, t, tr};
use crate::planner::details::one_line;
use crate::widgets::pair::{Arrangement, Foot, Hand, Painter, Picture, attach, follow, key};
use crate::widgets::reel::LaneHeight;
use leptos::html;
use leptos::prelude::*;

/// Names of the halves, for [`t`].
const NAMES: [&str; 2] = [n("Predicted"), n("Measured")];

#[component]
pub fn Timelines() -> impl IntoView {
    let state = expect_context::<Run>();
    let canvas: NodeRef<html::Canvas> = NodeRef::new();
    let painter = Painter::new(state.pair, Arrangement::Joined);
    attach(&[canvas], painter.clone());
    follow(state.pair, painter.clone());
    let hand = Hand::new(state.pair, painter);
    let label = move || {
        let [predicted, measured] = [0, 1].map(|index| time(state, index));
        tr!(
            "One step, predicted ({predicted}) and measured ({measured}), on one time axis. \
             Arrow keys select actions; the drift table says what differs.",
            predicted,
            measured
        )
    };
    let stale = Signal::derive(move || {
        state.page.shown.with(|s| s.problem.as_ref().map(|_| s.stale().to_owned()))
    });
    let critical = state.page.look.critical;
    view! {
        <section class="time" aria-label=t("Timelines, predicted and measured")>
            <div class="tbar">
                <h2>{t("Predicted and measured")}</h2>
                <label class="chk">
                    <input type="checkbox" id="run-critical" prop:checked=move || critical.get()
                        on:change=move |e| critical.set(event_target_checked(&e)) />
                    <span>{t("Critical paths")}</span>
                </label>
                <LaneHeight />
                <div class="keys">
                    <span class="key rows2">{t("in each lane: predicted above, measured below")}</span>
                    <span class="key"><i class="f"></i>{t("forward")}</span>
                    <span class="key"><i class="b"></i>{t("backward")}</span>
                    <span class="key"><i class="idle"></i>{t("idle")}</span>
                </div>
            </div>
            <Steps />
            <div class="halves" id="run-timelines" tabindex="0" role="application" aria-label=label
                on:keydown=move |e| key(state.pair, &e)>
                <div class="half"><Picture index=0 canvas hand problem=stale /></div>
            </div>
            <Foot said=Signal::derive(move || said(state)) />
        </section>
    }
}

/// What the step of a half takes.
fn time(state: Run, index: usize) -> String {
    let step = state.pair.sides[index].with(|seen| Some(seen.as_ref()?.timeline().step));
    step.map_or(t("not shown").into(), |step| {
        let (value, unit) = format::hero(step);
        format!("{value} {unit}")
    })
}

/// The selected action, predicted and measured.
fn said(state: Run) -> String {
    let Some(action) = state.page.look.selected.get() else { return String::new() };
    let line = |index: usize| {
        let seen = state.pair.side(index)?;
        let line = one_line(seen.timeline(), &seen.arrivals, action)?;
        Some(format!("{}: {line}", t(NAMES[index])))
    };
    [line(0), line(1)].into_iter().flatten().collect::<Vec<String>>().join("  ")
}
