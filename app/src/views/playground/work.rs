//! The middle: what to look at, play and pause, the networks, their curves.

use super::lab::{Lab, Pace};
use super::tiles::{Add, Tiles};
use crate::charts::playground::curves::{Across, Line, Up, draw};
use crate::playground::presets;
use crate::texts::{t, tr};
use crate::views::size::watch;
use leptos::prelude::*;

#[component]
pub fn Work() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let stale = move || lab.problem.with(Option::is_some);
    view! {
        <section class="pwork" aria-label=t("Trainings side by side")>
            <Presets />
            <Player />
            <p class="rfail" hidden=move || !stale()>{t("These trainings are from before: the choices on the left do not fit together.")}</p>
            <Tiles />
            <Curves />
        </section>
    }
}

/// Buttons of things to look at, and a line that says what.
#[component]
fn Presets() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let buttons = presets::ALL.iter().enumerate().map(|(at, preset)| {
        let mine = move || (lab.preset() == Some(at)).to_string();
        let take = move |_| {
            lab.edit(false, |choice| *choice = preset.choice());
            lab.restart();
        };
        view! { <button aria-pressed=mine on:click=take>{t(preset.title)}</button> }
    });
    let look = move || match lab.preset() {
        Some(at) => t(presets::ALL[at].look),
        None => t(
            "Your own: change one thing at a time, and watch where the curves part. All trainings begin with the same weights and see the same samples.",
        ),
    };
    view! {
        <div class="looks">
            <div class="seg" role="group" aria-label=t("Things to look at")>{buttons.collect_view()}</div>
            <p class="why" id="look">{look}</p>
        </div>
    }
}

#[component]
fn Player() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let wrong = move || lab.problem.with(Option::is_some);
    let paces = [(Pace::Slow, t("Slow")), (Pace::Steady, t("Steady")), (Pace::Fast, t("Fast"))];
    let paces = paces.map(|(pace, name)| {
        let mine = move || (lab.pace.get() == pace).to_string();
        view! { <button aria-pressed=mine on:click=move |_| lab.pace.set(pace)>{name}</button> }
    });
    let step = move || {
        lab.seen.track();
        let step = lab.with(|race| race.step).unwrap_or(0);
        tr!("step {step}", step)
    };
    view! {
        <div class="tbar">
            <button class="btn pri" id="play" prop:disabled=wrong
                on:click=move |_| lab.play(!lab.playing.get_untracked())>
                {move || if lab.playing.get() { t("Pause") } else { t("Train") }}
            </button>
            <button class="btn" id="step" prop:disabled=wrong on:click=move |_| lab.step()>{t("One step")}</button>
            <button class="btn" id="reset" prop:disabled=wrong on:click=move |_| lab.restart()>{t("Start again")}</button>
            <div class="seg" role="group" aria-label=t("Pace")>{paces.collect_view()}</div>
            <output class="num" id="steps">{step}</output>
            <span class="push"></span>
            <Add />
        </div>
    }
}

#[component]
fn Curves() -> impl IntoView {
    let lab = expect_context::<Lab>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = watch(frame, (800.0, 300.0));
    let picture = move || {
        lab.seen.track();
        let drawn = lab.with(|race| {
            let lines: Vec<Line> = race.runs.iter().map(line).collect();
            draw(&lines, lab.across.get(), lab.up.get(), size.get())
        });
        drawn.unwrap_or_default()
    };
    let ups = Up::ALL.map(|(up, name)| {
        let mine = move || (lab.up.get() == up).to_string();
        view! { <button aria-pressed=mine on:click=move |_| lab.up.set(up)>{t(name)}</button> }
    });
    let across = Across::ALL.map(|(across, name)| {
        let mine = move || (lab.across.get() == across).to_string();
        view! { <button aria-pressed=mine on:click=move |_| lab.across.set(across)>{t(name)}</button> }
    });
    view! {
        <div class="tbar curves-h">
            <h2>{t("Curves")}</h2>
            <div class="seg" role="group" aria-label=t("What is drawn upwards")>{ups.collect_view()}</div>
            <div class="seg" role="group" aria-label=t("What is drawn to the right")>{across.collect_view()}</div>
        </div>
        <div class="rpic curves" node_ref=frame><div class="plot" id="curves" inner_html=picture></div></div>
    }
}

/// A training's line of the chart.
fn line(run: &crate::playground::race::Run) -> Line<'_> {
    Line { name: run.way.to_string(), points: &run.curve }
}
