//! A tile for each training: its codec, what its network says of the plane, its gradient.

use super::lab::Lab;
use crate::charts::canvas::Canvas;
use crate::charts::playground::histogram;
use crate::charts::playground::tile::draw;
use crate::format;
use crate::playground::choice::{CODECS, RUNS_MAX};
use crate::texts::{t, tr};
use crate::views::icons::{Icon, icon};
use leptos::prelude::*;
use pipewright_core::compress::Reduction;
use pipewright_core::units::Bytes;

/// Shares a row of a network's picture.
const SIDE: usize = 36;

#[component]
pub fn Tiles() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let count = Memo::new(move |_| lab.choice.with(|choice| choice.ways.len()));
    view! {
        <div class="tiles">
            {move || (0..count.get()).map(|at| view! { <Tile at=at /> }).collect_view()}
        </div>
    }
}

/// A training's line, as in the chart.
pub fn sample(at: usize) -> impl IntoView {
    view! {
        <svg class="lsm" width="22" height="10" viewBox="0 0 22 10" aria-hidden="true">
            <path d="M1 5H21" class=format!("pl p{at}") />
        </svg>
    }
}

#[component]
fn Tile(at: usize) -> impl IntoView {
    let lab = expect_context::<Lab>();
    let way = Memo::new(move |_| lab.choice.with(|c| c.ways.get(at).copied().unwrap_or_default()));
    let alone = Memo::new(move |_| lab.choice.with(|choice| choice.ways.len() == 1));
    let remove = move |_| {
        lab.edit(false, |choice| {
            if choice.ways.len() > 1 {
                choice.ways.remove(at);
            }
        })
    };
    let number = at + 1;
    view! {
        <article class="tile" data-run=move || way.get().to_string() aria-label=tr!("Training {number}", number)>
            <div class="tile-h">
                {sample(at)}
                <Codec at=at way=way />
                <button class="ib" hidden=move || alone.get() aria-label=tr!("Remove training {number}", number)
                    on:click=remove>{icon(Icon::Close)}</button>
            </div>
            <Picture at=at />
            <Newest at=at />
            <Gradient at=at />
        </article>
    }
}

/// Codec and feedback.
#[component]
fn Codec(at: usize, way: Memo<Reduction>) -> impl IntoView {
    let lab = expect_context::<Lab>();
    let number = at + 1;
    let name = move || {
        let mut bare = way.get();
        bare.method.feedback = false;
        bare.to_string()
    };
    let offered = || {
        let operator = ["fp8-e5m2+operator", "fp8-e5m2:truncate+operator"].map(str::to_owned);
        CODECS.iter().map(ToString::to_string).chain(operator)
    };
    // What only links can ask for is offered as well where one does.
    let options = move || {
        let now = name();
        let foreign = (!offered().any(|text| text == now)).then(|| now.clone());
        offered()
            .chain(foreign)
            .map(|text| {
                let mine = text == now;
                view! { <option value=text.clone() prop:selected=mine>{text.clone()}</option> }
            })
            .collect_view()
    };
    let chosen = move |event: web_sys::Event| {
        if let Ok(mut new) = event_target_value(&event).parse::<Reduction>() {
            new.method.feedback = way.get_untracked().method.feedback;
            lab.edit(false, |choice| choice.set_way(at, new));
        }
    };
    let feedback = move |event: web_sys::Event| {
        let mut new = way.get_untracked();
        new.method.feedback = event_target_checked(&event);
        lab.edit(false, |choice| choice.set_way(at, new));
    };
    view! {
        <span class="sel"><select id=format!("codec-{at}") aria-label=tr!("Codec of training {number}", number)
            on:change=chosen>{options}</select></span>
        <label class="chk" class:off=move || way.get().is_plain() title=t("What the codec loses is added to the next step")>
            <input type="checkbox" id=format!("feedback-{at}") disabled=move || way.get().is_plain()
                prop:checked=move || way.get().method.feedback on:change=feedback />
            <span>{t("Feedback")}</span>
        </label>
    }
}

#[component]
fn Picture(at: usize) -> impl IntoView {
    let lab = expect_context::<Lab>();
    let element: NodeRef<leptos::html::Canvas> = NodeRef::new();
    let canvas = StoredValue::new_local(None::<(Canvas, Canvas)>);
    Effect::new(move |_| {
        let Some(element) = element.get() else { return };
        let (_, whose) = lab.turn.get();
        if whose.is_some_and(|whose| whose != at) {
            return;
        }
        canvas.update_value(|kept| {
            if kept.is_none() {
                *kept = Canvas::new(element.clone()).zip(Canvas::offscreen());
            }
            let width = f64::from(element.client_width());
            let Some((canvas, room)) = kept.as_mut().filter(|_| width > 0.0) else { return };
            lab.with(|race| {
                let shares = race.picture(at, SIDE);
                if !shares.is_empty() {
                    lab.with_palette(|palette| {
                        draw(canvas, room, palette, (&shares, SIDE), &race.data, width);
                    });
                }
            });
        });
    });
    view! {
        <canvas node_ref=element class="plane" role="img"
            aria-label=t("What the network says of every place: blue and squares are one class, orange and circles the other")></canvas>
    }
}

/// The newest numbers.
#[component]
fn Newest(at: usize) -> impl IntoView {
    let lab = expect_context::<Lab>();
    let text = move || {
        lab.seen.track();
        let now = lab.with(|race| race.runs.get(at).map(|run| (run.now(), run.lost)));
        let Some((now, lost)) = now.flatten() else { return ().into_any() };
        if let Some(step) = lost {
            return view! { <b class="bad">{tr!("✕ left the numbers at step {step}", step)}</b> }
                .into_any();
        }
        let sent = format::bytes_text(Bytes(now.sent as u64));
        let loss = if now.loss.is_nan() { "–".to_owned() } else { format!("{:.3}", now.loss) };
        view! {
            <b>{format::percent(now.accuracy, 1)}<i>" %"</i></b>
            <span>{t("loss")} " " {loss}</span>
            <span class="end">{sent}</span>
        }
        .into_any()
    };
    view! { <p class="tile-n">{text}</p> }
}

#[component]
fn Gradient(at: usize) -> impl IntoView {
    let lab = expect_context::<Lab>();
    let picture = move || {
        lab.seen.track();
        let drawn = lab.with(|race| {
            let seen = &race.runs.get(at)?.trainer().seen;
            Some(histogram::draw(&seen.exact, &seen.received, (200.0, 58.0)))
        });
        drawn.flatten().unwrap_or_default()
    };
    view! { <div class="hist" inner_html=picture></div> }
}

/// One training more.
#[component]
pub fn Add() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let full = move || lab.choice.with(|choice| choice.ways.len() >= RUNS_MAX);
    view! {
        <button class="btn" id="add-run" prop:disabled=full
            on:click=move |_| lab.edit(false, |choice| choice.add_way())>{t("Add a codec")}</button>
    }
}
