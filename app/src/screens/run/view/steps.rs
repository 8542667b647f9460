//! The chosen step of the trace: a strip of them all, a slider, a number.

use super::shown::Run;
use crate::base::texts::{t, tr};
use crate::screens::run::chart::drift::{step_at, strip};
use crate::widgets::size::watch;
use leptos::html;
use leptos::prelude::*;
use web_sys::PointerEvent;

#[component]
pub fn Steps() -> impl IntoView {
    let state = expect_context::<Run>();
    let page = state.page;
    let frame: NodeRef<html::Div> = NodeRef::new();
    let size = watch(frame, (600.0, 52.0));
    let durations = Memo::new(move |_| {
        page.look.measured.with(|m| m.as_ref().map(|m| m.durations())).unwrap_or_default()
    });
    let at = Memo::new(move |_| page.look.measured.with(|m| m.as_ref().map_or(0, |m| m.at)));
    let number = move || page.look.measured.with(|m| m.as_ref().map_or(0, |m| m.number()));
    let go = move |at: usize| {
        page.look.measured.update(|m| *m = m.as_ref().map(|m| m.at_step(at)));
    };
    let picture = move || {
        let predicted = page.shown.with(|s| s.solved.timeline.step);
        durations.with(|d| strip(d, at.get(), predicted, size.get()))
    };
    let pressed = move |event: PointerEvent| {
        let found = durations
            .with_untracked(|d| step_at(d, size.get_untracked().0, f64::from(event.offset_x())));
        if let Some(at) = found {
            go(at);
        }
    };
    let typed = move |event: web_sys::Event| {
        let wanted = event_target_value(&event).trim().parse::<u64>().ok();
        let near = page.look.measured.with_untracked(|m| {
            let steps = &m.as_ref()?.trace.steps;
            let distance = |at: &usize| steps[*at].number.abs_diff(wanted.unwrap_or(0));
            (0..steps.len()).min_by_key(distance).filter(|_| wanted.is_some())
        });
        if let Some(at) = near {
            go(at);
        }
        let input: web_sys::HtmlInputElement = event_target(&event);
        input.set_value(&untrack(number).to_string());
    };
    let slid = move |event: web_sys::Event| {
        if let Ok(at) = event_target_value(&event).parse() {
            go(at);
        }
    };
    let last = move || durations.with(|d| d.len().saturating_sub(1));
    let median = move || page.look.measured.with(|m| m.as_ref().map_or(0, |m| m.median()));
    let part = move || match last() {
        0 => 100.0,
        last => at.get() as f64 / last as f64 * 100.0,
    };
    view! {
        <div class="steps">
            <div class="strip" node_ref=frame on:pointerdown=pressed>
                <div class="plot" inner_html=picture></div>
            </div>
            <div class="pickstep">
                <label for="run-step-slider">{t("Step")}</label>
                <input type="range" id="run-step-slider" min="0" max=move || last().to_string() step="1"
                    style=move || format!("--p:{:.1}%", part())
                    prop:value=move || at.get().to_string() on:input=slid
                    aria-valuetext=move || tr!("step {number}", number = number()) />
                <input type="number" id="run-step" aria-label=t("Number of the step")
                    prop:value=move || number().to_string() on:change=typed />
                <button class="btn" id="run-median" title=t("The step whose duration is the median")
                    aria-pressed=move || (at.get() == median()).to_string()
                    on:click=move |_| go(untrack(median))>{t("Median")}</button>
            </div>
        </div>
    }
}
