//! The right column: predicted, measured, why they differ, and times that would fit.

use super::shown::Run;
use crate::base::format;
use crate::base::texts::{t, tr};
use crate::screens::run::chart::drift::headline;
use crate::screens::run::model::fit::{Fitted, Verdict};
use crate::widgets::selection::Selection;
use leptos::prelude::*;
use pipewright_core::units::Nanos;

#[component]
pub fn Results() -> impl IntoView {
    view! {
        <aside class="out" aria-label=t("Predicted and measured")>
            <Headline />
            <UseTimes />
            <Selection />
        </aside>
    }
}

#[component]
fn Headline() -> impl IntoView {
    let state = expect_context::<Run>();
    let page = state.page;
    let predicted = Memo::new(move |_| page.shown.with(|s| s.solved.timeline.step));
    let measured = Memo::new(move |_| {
        page.look.measured.with(|m| m.as_ref().map_or(Nanos::ZERO, |m| m.timeline.step))
    });
    let body = move || {
        let idle = |index: usize| {
            state.pair.sides[index].with(|s| s.as_ref().map_or(0.0, |s| s.timeline().bubble()))
        };
        headline((predicted.get(), idle(0)), (measured.get(), idle(1)))
    };
    let remove = move |_| {
        page.look.measured.set(None);
        page.look.show_measured.set(false);
    };
    view! {
        <section class="sum">
            <table>
                <caption class="sr">{t("The step, predicted and measured")}</caption>
                <thead><tr><td></td><th class="num" colspan="2">{t("step")}</th><th class="num">{t("idle")}</th></tr></thead>
                <tbody inner_html=body></tbody>
            </table>
            <p class="against">
                <span>{move || page.look.measured.with(|m| m.as_ref().map(|m| m.name.clone()))}</span>
                <button class="ib" id="run-remove" on:click=remove>{t("Remove the trace")}</button>
            </p>
            <p class="why" id="run-why" aria-live="polite">{move || state.table.with(|table| match table {
                None => t("Simulating each part's share of the difference.").to_owned(),
                Some(Ok(table)) => table.sentence(),
                Some(Err(why)) => tr!("No shares: {why}. Open the plan this trace was measured \
                                       with.", why),
            })}</p>
            {move || doubt(state).map(|text| view! { <p class="note bad" id="run-doubt">{text}</p> })}
        </section>
    }
}

/// Why the trace may be of another plan although its work is the same.
fn doubt(state: Run) -> Option<String> {
    let solved = state.page.shown.with(|s| s.solved.clone());
    let measured = state.page.look.measured.get()?;
    // The plan may have been changed since the trace was opened.
    if let Some(why) = measured.foreign(&solved.inputs.model.name(), &solved.timeline) {
        return Some(tr!("The trace is of another plan: it {why}.", why));
    }
    let lanes = |t: &pipewright_core::timeline::Timeline| -> Vec<u64> {
        t.lanes.iter().map(|lane| lane.arena.0).collect()
    };
    let (ran, planned) = (lanes(&measured.timeline), lanes(&solved.timeline));
    // Profilers' traces say nothing of memory.
    let other = ran.len() == planned.len() && ran != planned && ran.iter().any(|bytes| *bytes > 0);
    other.then(|| {
        t("The trace's lanes use different memory from the plan's: it was measured with another \
           split or batch.")
        .into()
    })
}

/// What using the measured times would come to, and the button that does it.
#[component]
fn UseTimes() -> impl IntoView {
    let state = expect_context::<Run>();
    let page = state.page;
    let take = move |fitted: &Fitted| {
        let typed = page.inputs.with_untracked(|i| i.typed().is_some());
        page.replace(fitted.inputs.clone());
        page.say(fitted.said(typed));
    };
    view! {
        <section class="card sug" aria-label=t("Times to use")>
            {move || match state.fitted.get() {
                None => view! { <p>{t("Predicting the plan with the measured times.")}</p> }.into_any(),
                Some(Err(why)) => view! { <p>{why}</p> }.into_any(),
                Some(Ok(fitted)) => {
                    let measured = page.look.measured.with(|m| {
                        m.as_ref().map_or(Nanos::ZERO, |m| m.timeline.step)
                    });
                    let predicted = page.shown.with(|s| s.solved.timeline.step);
                    let (value, unit) = format::hero(fitted.step);
                    let left = format::signed_percent(measured.secs(), fitted.step.secs());
                    let verdict = fitted.verdict(predicted, measured);
                    let title = match verdict {
                        Verdict::Used => t("The plan uses the measured times."),
                        Verdict::Worse => t("Measured times would not help: the plan is nearer to this step already."),
                        Verdict::Better => t("Re-plan with measured times"),
                    };
                    view! {
                        <p>{title}</p>
                        <p id="run-preview" data-value=fitted.step.0.to_string()>
                            {tr!("predicts {time}; remaining drift {left}", time = format!("{value} {unit}"), left)}</p>
                        <button class="btn acc" id="use-times" prop:disabled=verdict != Verdict::Better
                            on:click=move |_| take(&fitted)>{t("Use these times")}</button>
                    }.into_any()
                }
            }}
        </section>
    }
}
