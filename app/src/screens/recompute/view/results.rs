//! The right column: how good the best answer is, and why it costs what it costs.

use crate::base::format::{self, Clock, Delta};
use crate::base::texts::{t, tr};
use crate::screens::recompute::model::Recompute;
use crate::screens::recompute::state::Source;
use leptos::prelude::*;
use pipewright_core::units::{Bytes, Nanos};
use pipewright_worker::protocol::{Opened, Point, Share};

#[component]
pub fn Results() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let take = move || match state.own.source.get() {
        Source::Stage(_) => t("Use in plan"),
        Source::File(_) => t("Save sequence"),
    };
    view! {
        <aside class="out" aria-label=t("Results of recomputation")>
            <Best />
            <div class="more">
            // Nothing was found yet, or there is no plan to look for.
            <button class="btn pri" id="take" on:click=move |_| state.take()
                prop:disabled=move || state.progress.with(|p| p.best.peak == 0)>{take}</button>
            <section>
                <div class="sec"><h2>{t("Most recomputed")}</h2><span class="dim small">{move || total(state)}</span></div>
                <Shares head=[t("operation"), t("runs"), t("time")] list=Signal::derive(move || state.shown.get().again.clone())
                    amount=|share| { let t = Nanos(share.amount as u64); Clock::of(t).text(t) } class="r" />
            </section>
            <section>
                <div class="sec"><h2>{t("Held at the peak")}</h2><span class="dim small">{move || peak(state)}</span></div>
                <Shares head=[t("values of"), t("count"), t("bytes")] list=Signal::derive(move || state.shown.get().alive.clone())
                    amount=|share| format::bytes_text(Bytes(share.amount as u64)) class="m" />
            </section>
            <Others />
            </div>
        </aside>
    }
}

fn total(state: Recompute) -> String {
    state.shown.with(|shown| {
        let runs: u32 = shown.again.iter().map(|share| share.count).sum();
        let time = Nanos(shown.again.iter().map(|share| share.amount).sum::<f64>() as u64);
        tr!("{runs} runs, {time}", runs, time = Clock::of(time).text(time))
    })
}

fn peak(state: Recompute) -> String {
    state.shown.with(|shown| {
        let moment = Nanos(shown.peaks[1] as u64);
        tr!("at {moment}", moment = Clock::of(Nanos(shown.end as u64)).text(moment))
    })
}

/// Peak, time, bound and what is kept.
#[component]
fn Best() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let now = Memo::new(move |_| state.progress.with(|p| p.best));
    let opened = move || state.opened.get();
    let base = move || opened().map(|o| o.base).unwrap_or_default();
    let memory = move || format::bytes(Bytes(now.get().peak));
    let time = move || format::hero(Nanos(now.get().time as u64));
    let bound = move || format::bytes(Bytes(opened().map_or(0, |o| o.floor)));
    let above = move || {
        let floor = opened().map_or(0, |o| o.floor).max(1);
        let above = (now.get().peak as f64 / floor as f64 - 1.0) * 100.0;
        tr!("{share} % above", share = format_args!("{above:.0}"))
    };
    let kept = move || state.shown.with(|s| s.kept);
    view! {
        // Nothing was found yet, or there is no plan to look for.
        <section class="sum" class:none=move || now.get().peak == 0>
            <table>
                <thead><tr><th colspan="3"><h2>{t("Best so far")}</h2></th><th class="num">{t("vs keep all")}</th></tr></thead>
                <tbody>
                    <tr class="big">
                        <th scope="row">{t("Peak memory")}</th>
                        <td class="num v" id="recompute-peak" data-value=move || now.get().peak.to_string()>{move || memory().0}</td>
                        <td class="u">{move || memory().1}</td>
                        {move || change(now.get().peak as f64, base().peak as f64)}
                    </tr>
                    <tr>
                        <th scope="row">{t("Time")}</th>
                        <td class="num v" id="recompute-time" data-value=move || now.get().time.to_string()>{move || time().0}</td>
                        <td class="u">{move || time().1}</td>
                        {move || change(now.get().time, base().time)}
                    </tr>
                    <tr>
                        <th scope="row">{t("Lower bound")}</th>
                        <td class="num v">{move || bound().0}</td><td class="u">{move || bound().1}</td>
                        <td class="num dim">{above}</td>
                    </tr>
                    <tr>
                        <th scope="row">{t("Kept")}</th>
                        <td class="num v" id="kept">{move || kept().0}</td><td class="u"></td>
                        <td class="num dim">{move || tr!("of {count} values", count = kept().1)}</td>
                    </tr>
                </tbody>
            </table>
            <p class="why">{move || why(state)}</p>
        </section>
    }
}

fn change(new: f64, old: f64) -> impl IntoView {
    match format::relative(new, old) {
        Delta::Same => view! { <td class="num dim">"0"</td> }.into_any(),
        Delta::By { down, text } => {
            let (class, arrow) = if down { ("num good", "▼") } else { ("num bad", "▲") };
            view! { <td class=class>{format!("{arrow} {text}")}</td> }.into_any()
        }
    }
}

/// What stands together at the peak.
fn why(state: Recompute) -> String {
    state.shown.with(|shown| {
        let names: Vec<&str> =
            shown.alive.iter().take(2).map(|share| share.name.as_str()).collect();
        match names[..] {
            [] => String::new(),
            [one] => tr!("Only {one} is held at the peak.", one),
            _ => tr!("Mostly held at the peak: {a} and {b}.", a = names[0], b = names[1]),
        }
    })
}

#[component]
fn Shares(
    head: [&'static str; 3],
    list: Signal<Vec<Share>>,
    amount: fn(&Share) -> String,
    class: &'static str,
) -> impl IntoView {
    let rows = move || {
        let list = list.get();
        let most = list.iter().map(|share| share.amount).fold(0.0, f64::max);
        let row = |share: &Share| {
            let width = format!("width:{:.0}%", share.amount / most.max(1e-9) * 100.0);
            view! {
                <tr>
                    <td class="nm" title=name(share)>{name(share)}</td>
                    <td><span class="mini"><i class=class style=width></i></span></td>
                    <td class="num">{share.count}</td><td class="num">{amount(share)}</td>
                </tr>
            }
        };
        list.iter().map(row).collect_view()
    };
    view! {
        <table class="shares">
            <thead><tr><th colspan="2">{head[0]}</th><th class="num">{head[1]}</th><th class="num">{head[2]}</th></tr></thead>
            <tbody>{rows}</tbody>
        </table>
    }
}

/// What a share is called: operations keep their names.
fn name(share: &Share) -> String {
    match share.name.strip_suffix(" (backward)") {
        Some(operation) => tr!("{operation} (backward)", operation),
        None if share.name == "all others" => t("all others").into(),
        None if share.name == "workspace" => t("workspace").into(),
        None => share.name.clone(),
    }
}

/// What one would do without a search.
#[component]
fn Others() -> impl IntoView {
    let state = expect_context::<Recompute>();
    let rows = move || {
        let opened = state.opened.get()?;
        let best = state.progress.with(|p| p.best);
        let least = segments(&opened, best);
        let base = opened.base;
        let row = |name: &'static str, point: Point, own: bool| {
            let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
            view! {
                <tr class:me=own><td>{name}</td>
                    <td class="num">{format::percent(share(point.peak as f64, base.peak as f64), 1)}" %"</td>
                    <td class="num">{format::percent(share(point.time, base.time), 1)}" %"</td></tr>
            }
        };
        Some((
            row(t("this search"), best, true),
            least.map(|point| row(t("segments (Chen 2016)"), point, false)),
            row(t("keep everything"), base, false),
        ))
    };
    view! {
        <section>
            <div class="sec"><h2>{t("Other ways on this graph")}</h2></div>
            <table class="shares"><thead><tr><th>{t("method")}</th><th class="num">{t("memory")}</th><th class="num">{t("time")}</th></tr></thead>
            <tbody>{rows}</tbody></table>
        </section>
    }
}

/// The segments whose memory is next to that of the answer, those with less first.
fn segments(opened: &Opened, best: Point) -> Option<Point> {
    let below = opened.segments.iter().filter(|p| p.peak <= best.peak).max_by_key(|p| p.peak);
    below.or_else(|| opened.segments.iter().min_by_key(|p| p.peak)).copied()
}
