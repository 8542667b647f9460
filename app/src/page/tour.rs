//! The first visit: three sentences about what is seen, one after the other.

use crate::base::later::{self, Missing};
use crate::base::screen::Screen;
use crate::base::settings;
use crate::base::texts::{n, t, tr};
use crate::state::State;
use crate::widgets::icons::{Icon, icon};
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;

/// The setting's name; who has it has seen the tour, or did not want to.
const TOURED: &str = "pipewright-toured";

/// What is seen, what can be changed, what comes of it; for [`t`].
const STEPS: [&str; 3] = [
    n("This is one training step, a row per device: blue computes forward, orange backward, \
       hatched is waiting. Click a bar or a gap to read what it waits for."),
    n(
        "Change anything on the left, or drag a cut between stages: time and memory follow at once. \
       The schedules below are all simulated for this plan; click one to take it.",
    ),
    n("Drop your own ONNX file or config.json anywhere. Export plan saves what the runner runs; \
       drop its trace.json back here and Run shows prediction and measurement together."),
];

/// Whether somebody comes for the first time, and not by a link to something.
fn first_visit() -> bool {
    let plain = window().location().hash().is_ok_and(|hash| hash.is_empty());
    plain && settings::kept(TOURED).is_none()
}

#[component]
pub fn Tour() -> impl IntoView {
    let state = expect_context::<State>();
    let story = state.look.story;
    let step = RwSignal::new(first_visit().then_some(0));
    // A story that is opened takes its place.
    Effect::new(move |_| {
        if story.with(|story| !story.is_empty()) {
            step.set(None);
        }
    });
    view! {
        <Show when=move || step.get().is_some() && state.screen.get() == Screen::Plan>
            <aside class="story" id="tour" aria-label=t("First visit")>{move || later::view(line(step))}</aside>
        </Show>
    }
}

#[wasm_split(tray, wasm_split_path = ::leptos::wasm_split, fallible)]
fn line(step: RwSignal<Option<usize>>) -> Result<AnyView, Missing> {
    let end = move || {
        settings::keep(TOURED, Some("yes"));
        step.set(None);
    };
    let at = move || step.get().unwrap_or(0);
    let last = move || at() + 1 == STEPS.len();
    let next = move |_| match last() {
        true => end(),
        false => step.set(Some(at() + 1)),
    };
    let number = move || tr!("{number} of {count}", number = at() + 1, count = STEPS.len());
    Ok(view! {
        <p aria-live="polite"><b>{number}</b>" "{move || t(STEPS[at()])}</p>
        <button class="btn" id="tour-next" on:click=next>{move || if last() { t("Done") } else { t("Next") }}</button>
        <button class="ib" id="tour-skip" aria-label=t("Skip the introduction") title=t("Skip the introduction")
            on:click=move |_| end()>{icon(Icon::Close)}</button>
    }
    .into_any())
}
