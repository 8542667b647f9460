//! Name, what is shown, undo, link, theme, help, files.

use super::files;
use super::here::panel::RunHere;
use super::menu::Exports;
use super::recent::Recent;
use super::state::Page;
use super::theme;
use crate::base::focus::focus;
use crate::base::screen::Screen;
use crate::base::texts::{t, tr};
use crate::base::{format, language, upload};
use crate::planner::compare;
use crate::screens::recompute::state::Source;
use crate::state::State;
use crate::state::request::Side;
use crate::widgets::icons::{Icon, icon};
use crate::widgets::size::observe;
use leptos::prelude::*;
use leptos::task::spawn_local;
use wasm_bindgen::JsCast;
use web_sys::HtmlElement;

#[component]
pub fn Header(page: Page) -> impl IntoView {
    let state = page.state;
    let file = move || match (state.screen.get(), page.recompute.source.get()) {
        (Screen::Recompute, Source::File(file)) => Some(file.name()),
        _ => None,
    };
    let title = move || file().unwrap_or_else(|| state.inputs.with(|i| i.model.title()));
    let lanes = move || match (file(), state.inputs.with(|i| (i.lanes(), i.ranks() / i.lanes()))) {
        (Some(_), _) => String::new(),
        (_, (1, 1)) => t("on 1 lane").to_owned(),
        (_, (n, 1)) => tr!("on {n} lanes", n),
        (_, (n, copies)) => tr!("on {n} × {copies} ranks", n, copies),
    };
    let against =
        move || state.inputs.with(|i| tr!("compared with A, {title}", title = compare::title(i)));
    view! {
        <header class="bar">
            <h1 class="brand">
                <svg viewBox="0 0 20 20" aria-hidden="true">
                    <rect x="1" y="2" width="7" height="4" rx="1" fill="var(--f)" />
                    <rect x="5" y="8" width="7" height="4" rx="1" fill="var(--f)" />
                    <rect x="9" y="14" width="10" height="4" rx="1" fill="var(--b)" />
                </svg>
                "Pipewright"
            </h1>
            <Screens />
            <p class="doc">
                <b>{title}</b> <span>{lanes}</span>
                <Show when=move || state.screen.get() == Screen::Plan>
                    <span class="vs">"· "{against}</span>
                </Show>
            </p>
            <div class="tools">
                <button class="ib" id="undo" title=t("Undo (Ctrl Z)") aria-label=t("Undo")
                    prop:disabled=move || !page.can_travel(0)
                    on:click=move |_| page.undo()>{icon(Icon::Undo)}</button>
                <button class="ib" id="redo" title=t("Redo (Ctrl Shift Z)") aria-label=t("Redo")
                    prop:disabled=move || !page.can_travel(1)
                    on:click=move |_| page.redo()>{icon(Icon::Redo)}</button>
                <span class="sep"></span>
                <button class="ib" id="link" title=t("Copy a link to this state") aria-label=t("Copy link")
                    on:click=move |_| files::copy_link(page)>{icon(Icon::Link)}</button>
                <Language />
                <button class="ib" id="theme" title=t("Theme: light, dark, system")
                    aria-label=t("Theme") on:click=move |_| theme::toggle(state)>{icon(Icon::Theme)}</button>
                <button class="ib" id="help" title=t("Keys and help (?)") aria-label=t("Keys and help")
                    aria-expanded=move || page.help.get().to_string()
                    on:click=move |_| page.help.update(|h| *h = !*h)>{icon(Icon::Help)}</button>
                <span class="sep"></span>
                <Open page />
                <Recent page />
                <RunHere page id="run-here" />
                <Export id="export" />
                <Exports />
            </div>
        </header>
    }
}

/// What the page can show.
#[component]
fn Screens() -> impl IntoView {
    let state = expect_context::<State>();
    let tabs = Screen::ALL.map(|screen| {
        let current = move || (state.screen.get() == screen).then_some("page");
        view! {
            <button class="ib tab" aria-current=current on:click=move |_| state.go(screen)>{t(screen.title())}</button>
        }
    });
    // On phones the tabs are wider than the page: the current one is in sight.
    let nav: NodeRef<leptos::html::Nav> = NodeRef::new();
    let show = move || {
        let now = state.screen.get_untracked();
        let at = Screen::ALL.iter().position(|screen| *screen == now);
        let Some((nav, at)) = nav.get_untracked().zip(at) else { return };
        let tab = nav.children().item(at as u32).and_then(|tab| tab.dyn_into::<HtmlElement>().ok());
        if let Some(tab) = tab {
            let aside = (nav.client_width() - tab.offset_width()) / 2;
            nav.set_scroll_left(tab.offset_left() - nav.offset_left() - aside);
        }
    };
    Effect::new(move |_| {
        if let Some(nav) = nav.get() {
            observe(&nav, show);
        }
    });
    Effect::new(move |_| {
        state.screen.track();
        show();
    });
    view! { <nav class="tabs" aria-label=t("Screens") node_ref=nav>{tabs.collect_view()}</nav> }
}

/// To the other language, whose name the button has.
#[component]
fn Language() -> impl IntoView {
    let state = expect_context::<State>();
    let (other, name) = language::spoken().unwrap_or_default().other();
    view! {
        <button class="ib lang" id="language" lang=other.tag() title=name
            on:click=move |_| switch_language(state)>{name}</button>
    }
}

/// Writes the page in the other language.
pub fn switch_language(state: State) {
    let (other, name) = language::spoken().unwrap_or_default().other();
    spawn_local(async move {
        if language::speak(other).await.is_err() {
            state.complain(tr!("The texts in {name} could not be loaded; try again.", name));
            return;
        }
        language::keep(other);
        // The page is written anew, and with it what had the focus.
        leptos::task::tick().await;
        focus("language");
        state.say(name);
    });
}

/// The file input, drawn as a button; the input itself keeps focus and keys.
#[component]
fn Open(page: Page) -> impl IntoView {
    let chosen = move |event| files::read_all(page, upload::chosen(&event), Side::B);
    view! {
        <label class="btn open" title=t("Open a plan.json, a trace.json or a graph.json; or drop one anywhere")>
            {icon(Icon::Open)} <span>{t("Open")}</span>
            <input id="import" type="file" accept=".json,.jsonl,.gz,.onnx,.csv,.txt,application/json,application/gzip" multiple
                aria-label=t("Open plan, trace or graph") on:change=chosen />
        </label>
    }
}

/// Actions of one direction beyond which the file's size is not shown.
const LONG: u32 = 8192;

/// Saves plan.json and says how large it is.
#[component]
pub fn Export(id: &'static str) -> impl IntoView {
    let state = expect_context::<State>();
    // The text is only written once the hand rests: it is as long as the schedule.
    let (size, set_size) = signal(String::new());
    let waiting = StoredValue::new(0u32);
    Effect::new(move |_| {
        let inputs = state.inputs.get();
        waiting.update_value(|n| *n += 1);
        let mine = waiting.get_value();
        let measure = move || {
            if waiting.try_get_value() != Some(mine) || inputs.samples().is_none() {
                return;
            }
            // Writing a long schedule as text only to count its letters would be felt.
            if inputs.stages() * inputs.micro_batches > LONG {
                return set_size.set("–".into());
            }
            spawn_local(async move {
                let size = files::size(inputs).await;
                if waiting.try_get_value() == Some(mine) {
                    set_size.set(size.map(format::bytes_text).unwrap_or_default());
                }
            });
        };
        set_timeout(measure, std::time::Duration::from_millis(600));
    });
    view! {
        <button class="btn pri" id=id title=t("Save plan.json (Ctrl S)")
            on:click=move |_| files::export(state)>
            <span>{t("Export plan")}</span> <small>{size}</small>
        </button>
    }
}
