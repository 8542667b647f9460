//! Run here: the button, and the panel that starts a run and shows how it goes.

use super::help::focus;
use super::icons::{Icon, icon};
use crate::here::wire::{Act, perform};
use crate::here::{Device, Here, How, Run, Status, time};
use crate::later::{self, Missing};
use crate::state::State;
use crate::texts::{t, tr};
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;

/// Most steps that can be asked for.
const STEPS_MAX: u64 = 10_000_000;

/// Most threads of a rank.
const THREADS_MAX: u32 = 1024;

/// Opens the panel; it is there where runs are offered, and says how far one is.
#[component]
pub fn RunHere(id: &'static str) -> impl IntoView {
    let state = expect_context::<State>();
    let offered = Memo::new(move |_| state.here.with(|here| here.offer.is_some()));
    let progress = Memo::new(move |_| state.here.with(Here::progress));
    view! {
        <Show when=move || offered.get()>
            <button class="btn run-here" id=id title=t("Run this plan on this machine") aria-controls="here"
                aria-expanded=move || state.here.with(|h| h.open).to_string()
                on:click=move |_| open(state, state.here.with_untracked(|h| !h.open))>
                {icon(Icon::Run)} <span>{t("Run here")}</span> <small>{move || progress.get()}</small>
            </button>
        </Show>
    }
}

/// Opens or closes the panel.
pub fn open(state: State, open: bool) {
    state.here.update(|here| here.open = open);
    if !open {
        // Of the two buttons one is seen.
        focus("run-here");
        focus("run-here-m");
    }
}

#[component]
pub fn HerePanel() -> impl IntoView {
    let state = expect_context::<State>();
    let open = Memo::new(move |_| state.here.with(|here| here.open));
    view! { <Show when=move || open.get()>{move || later::view(panel())}</Show> }
}

/// The panel, open.
#[wasm_split(here, wasm_split_path = ::leptos::wasm_split, fallible)]
fn panel() -> Result<AnyView, Missing> {
    let state = expect_context::<State>();
    let close: NodeRef<leptos::html::Button> = NodeRef::new();
    Effect::new(move |_| {
        if let Some(button) = close.get() {
            let _ = button.focus();
        }
    });
    let key = move |event: KeyboardEvent| {
        if event.key() == "Escape" {
            event.stop_propagation();
            open(state, false);
        }
    };
    let has_run = Memo::new(move |_| state.here.with(|here| here.run.is_some()));
    let goes_on = Memo::new(move |_| state.here.with(Here::goes_on));
    let refused = Memo::new(move |_| state.here.with(|here| here.refused.clone()));
    let shown = view! {
        <section class="here" id="here" aria-label=t("Run here") on:keydown=key>
            <div class="sec">
                <h2>{t("Run here")}</h2>
                <button class="ib" node_ref=close aria-label=t("Close") on:click=move |_| open(state, false)>{icon(Icon::Close)}</button>
            </div>
            <Show when=move || has_run.get()><Progress /></Show>
            <Show when=move || refused.with(Option::is_some)>
                <p class="rfail" id="here-refused" role="alert">{move || refused.get()}</p>
            </Show>
            <Show when=move || !goes_on.get() fallback=move || view! { <Going /> }><Ask /></Show>
        </section>
    };
    Ok(shown.into_any())
}

/// How the newest run goes or went.
#[component]
fn Progress() -> impl IntoView {
    let state = expect_context::<State>();
    let run = Memo::new(move |_| state.here.with(|here| here.run.clone()).unwrap_or_default());
    let percent = move || run.with(|r| (100.0 * r.share()).round());
    let sentence = Memo::new(move |_| run.with(Run::sentence));
    let failed = move || run.with(|r| r.ended.as_ref().is_some_and(|e| e.status == Status::Failed));
    let step = move || run.with(|r| tr!("{done} of {steps}", done = r.done, steps = r.steps));
    let loss = move || run.with(|r| r.loss.map_or_else(|| "–".into(), |loss| format!("{loss:.4}")));
    let measured = move || run.with(|r| r.time().map_or_else(|| "–".into(), time));
    let predicted = move || run.with(|r| time(r.predicted));
    let drift = move || run.with(|r| r.drift().unwrap_or_else(|| "–".into()));
    let said =
        move || run.with(|r| r.ended.as_ref().map(|e| e.said.join("\n")).unwrap_or_default());
    view! {
        <div class="bar1" role="progressbar" aria-label=t("Steps of the run") aria-valuemin="0" aria-valuemax="100"
            aria-valuenow=move || percent().to_string()><i style=move || format!("width:{}%", percent())></i></div>
        <p id="here-status" role="status" class:rfail=failed>{move || sentence.get()}</p>
        <table class="shares"><tbody>
            <tr><th scope="row">{t("Step")}</th><td class="num" id="here-step">{step}</td></tr>
            <tr><th scope="row">{t("Loss")}</th><td class="num" id="here-loss">{loss}</td></tr>
            <tr><th scope="row">{t("Step time, measured")}</th><td class="num" id="here-time">{measured}</td></tr>
            <tr><th scope="row">{t("Step time, predicted")}</th><td class="num">{predicted}</td></tr>
            <tr><th scope="row">{t("Difference")}</th><td class="num">{drift}</td></tr>
        </tbody></table>
        <Show when=failed><pre class="log" tabindex="0" aria-label=t("The last lines of the run")>{said}</pre></Show>
    }
}

/// While a run goes on.
#[component]
fn Going() -> impl IntoView {
    let state = expect_context::<State>();
    let stopping = Memo::new(move |_| {
        state.here.with(|here| here.run.as_ref().is_some_and(|run| run.stopping))
    });
    let listening = Memo::new(move |_| state.here.with(|here| here.listening));
    let label = move || if stopping.get() { t("Stop at once") } else { t("Stop after this step") };
    view! {
        <Show when=move || listening.get() fallback=move || view! {
            <button class="btn" id="here-listen" on:click=move |_| perform(state, Act::Listen)>{t("Ask again")}</button>
        }>
            <button class="btn" id="here-stop" on:click=move |_| perform(state, Act::Stop)>{label}</button>
        </Show>
    }
}

/// What the next run is to be.
#[component]
fn Ask() -> impl IntoView {
    let state = expect_context::<State>();
    let planned = move || state.inputs.with(|i| i.rest.steps);
    let steps = move || state.here.with(|h| h.form.steps).unwrap_or_else(planned).to_string();
    let threads =
        move || state.here.with(|h| h.form.threads).map_or_else(String::new, |n| n.to_string());
    let take_steps = move |event| {
        let typed = number(&event, STEPS_MAX);
        state.here.update(|h| h.form.steps = typed.or(h.form.steps));
        show(&event, &steps());
    };
    let take_threads = move |event| {
        let typed = number(&event, THREADS_MAX.into());
        state.here.update(|h| h.form.threads = typed.map(|n| n as u32));
        show(&event, &threads());
    };
    let modelled = move || state.here.with(|h| h.form.device == Device::Model);
    let take_device = move |event| {
        let device =
            if event_target_value(&event) == "model" { Device::Model } else { Device::Cpu };
        state.here.update(|h| h.form.device = device);
    };
    let ranks = move || state.inputs.with(|i| i.stages() * i.rest.data_parallel.replicas);
    let how = move || {
        let offer = state.here.with(|h| h.offer.clone());
        offer.map_or_else(String::new, |offer| match (offer.how, offer.folder) {
            (How::Mpirun, folder) => {
                tr!(
                    "{ranks} lanes as processes of mpirun; files go to {folder}.",
                    ranks = ranks(),
                    folder
                )
            }
            (How::Threads, folder) => {
                tr!(
                    "{ranks} lanes as threads, for want of mpirun; files go to {folder}.",
                    ranks = ranks(),
                    folder
                )
            }
        })
    };
    view! {
        <div class="row"><label for="here-steps">{t("Steps")}</label>
            <input id="here-steps" type="number" min="1" max=STEPS_MAX.to_string() prop:value=steps on:change=take_steps /></div>
        <div class="row"><label for="here-device">{t("Computes")}</label>
            <span class="sel"><select id="here-device" on:change=take_device>
                <option value="cpu" prop:selected=move || !modelled()>{t("this machine")}</option>
                <option value="model" prop:selected=modelled>{t("nothing: planned times pass")}</option>
            </select></span></div>
        <div class="row"><label for="here-threads">{t("Threads")}</label>
            <input id="here-threads" type="number" min="1" max=THREADS_MAX.to_string() placeholder=t("shared among ranks")
                prop:value=threads on:change=take_threads /></div>
        <p class="row tight"><label class="wide"><input id="here-save" type="checkbox"
            prop:checked=move || state.here.with(|h| h.form.save) prop:disabled=modelled
            on:change=move |e| state.here.update(|h| h.form.save = event_target_checked(&e)) />" "
            {t("Save the weights at the end and when stopped")}</label></p>
        <p class="note wide">{how}</p>
        <button class="btn pri" id="here-start" on:click=move |_| perform(state, Act::Start)>{t("Start")}</button>
    }
}

/// The whole number from 1 on that was typed.
fn number(event: &web_sys::Event, max: u64) -> Option<u64> {
    let typed = event_target_value(event).trim().parse::<u64>().ok()?;
    (1..=max).contains(&typed).then_some(typed)
}

/// What counts, where something else was typed.
fn show(event: &web_sys::Event, value: &str) {
    let input: web_sys::HtmlInputElement = event_target(event);
    input.set_value(value);
}
