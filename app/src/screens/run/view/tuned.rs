//! Table of what `runner tune` tried: a row a run.

use super::shown::Run;
use crate::base::format::{self, Clock};
use crate::base::texts::{t, tr};
use crate::screens::run::model::tune::TuneHistory;
use leptos::prelude::*;
use pipewright_core::units::Nanos;

#[component]
pub fn Tuned() -> impl IntoView {
    let state = expect_context::<Run>();
    let tuned = state.own.tuned;
    let said = move || tuned.with(|tuned| tuned.as_ref().map(gain).unwrap_or_default());
    let rows = move || tuned.with(|tuned| tuned.as_ref().map(|history| rows(history).into_any()));
    view! {
        <div class="metrics tuned">
            <div class="th">
                <h2>{t("Tuning")}</h2>
                <span class="names" id="tuned-said">{said}</span>
                <button class="ib" id="tuned-remove" on:click=move |_| tuned.set(None)>{t("Remove")}</button>
            </div>
            <div class="scroll" tabindex="0" role="region" aria-label=t("Runs of the tuning")>
                <table id="tuned">
                    <thead><tr><th scope="col">{t("trial")}</th><th scope="col">{t("plan")}</th>
                        <th scope="col" class="num">{t("expected")}</th><th scope="col" class="num">{t("measured")}</th>
                        <th scope="col">{t("why it was run")}</th></tr></thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        </div>
    }
}

/// What came of it.
fn gain(history: &TuneHistory) -> String {
    let runs = history.runs.len();
    let Some((first, best)) = history.steps() else {
        return tr!("{name}: {runs} runs, none was measured.", name = history.name, runs);
    };
    let clock = Clock::of(first);
    tr!(
        "{name}: {runs} runs, {first} to {best} ({change})",
        name = history.name,
        runs,
        first = clock.text(first),
        best = clock.text(best),
        change = format::signed_percent(best.secs(), first.secs())
    )
}

fn rows(history: &TuneHistory) -> impl IntoView + use<> {
    let longest = history
        .runs
        .iter()
        .map(|run| run.expected_step_ns.max(run.measured_step_ns.unwrap_or_default()));
    let clock = Clock::of(longest.max().unwrap_or(Nanos(1)));
    let best = history.best();
    history.runs.iter().enumerate().map(|(at, run)| {
        let measured = match (&run.measured_step_ns, &run.failed) {
            (Some(time), _) => clock.text(*time),
            (None, Some(why)) => tr!("failed: {why}", why),
            (None, None) => t("failed").to_owned(),
        };
        view! {
            <tr class:top=best == Some(at)>
                <th scope="row">{run.trial}</th><td>{run.plan()}</td>
                <td class="num">{clock.text(run.expected_step_ns)}</td><td class="num">{measured}</td>
                <td>{run.why.clone()}</td>
            </tr>
        }
    }).collect_view()
}
