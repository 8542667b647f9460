//! The page.

use super::commands::perform;
use super::gallery::{Gallery, Told};
use super::header::{Export, Header};
use super::help::Help;
use super::here::panel::{HerePanel, RunHere};
use super::palette::Palette;
use super::requests::{answer, answer_for};
use super::state::Page;
use super::tour::Tour;
use super::{address, files, here, keeping, theme};
use crate::base::focus::{focus, typing};
use crate::base::keys::{self, Command, Scope};
use crate::base::language;
use crate::base::screen::Screen;
use crate::base::texts::{t, tr};
use crate::base::upload;
use crate::planner::presets;
use crate::planner::repair::take_lanes;
use crate::screens::communication::view::CommunicationView;
use crate::screens::compare::view::CompareView;
use crate::screens::elastic::view::ElasticView;
use crate::screens::model::view::ModelView;
use crate::screens::plan::view::PlanView;
use crate::screens::playground::view::PlaygroundView;
use crate::screens::recompute::view::RecomputeView;
use crate::screens::run::view::RunView;
use crate::state::State;
use crate::state::request::Side;
use leptos::ev;
use leptos::prelude::*;
use pipewright_core::schedule::{Action, ActionKind};

#[component]
pub fn App() -> impl IntoView {
    let page = Page::new(presets::first(), answer);
    let state = page.state;
    provide_context(state);
    answer_for(page);
    theme::start(state);
    here::wire::begin(page);
    let asked = window().location().hash().unwrap_or_default();
    open(page);
    listen(page);
    // What was found stays when one looks at the plan again.
    let visited =
        |screen| Memo::new(move |before| before == Some(&true) || state.screen.get() == screen);
    let visited = Screen::ALL.map(visited);
    Effect::new(move |_| {
        let name = state.inputs.with(|i| i.model.title());
        let lanes = state.inputs.with(|i| i.lanes());
        document().set_title(&tr!("{name} on {lanes} lanes - Pipewright", name, lanes));
    });
    // Another language writes the page anew; the state stays.
    leptos::task::spawn_local(async move {
        language::start().await;
        address::retell(page, &asked);
    });
    move || language::spoken().map(|_| body(page, visited))
}

/// Everything that is seen; screens are made when they are first visited.
fn body(page: Page, visited: [Memo<bool>; Screen::ALL.len()]) -> impl IntoView {
    let state = page.state;
    let visited = move |screen: Screen| {
        let at = Screen::ALL.iter().position(|other| *other == screen);
        move || at.is_some_and(|at| visited[at].get())
    };
    view! {
        <button class="skip" on:click=|_| focus("timeline")>{t("Skip to the timeline")}</button>
        <Header page />
        <Told page />
        <Tour />
        <main class="app" hidden=move || state.screen.get() != Screen::Plan>
            <PlanView own=page.plan />
        </main>
        <Show when=visited(Screen::Model)>
            <main class="app mod" hidden=move || state.screen.get() != Screen::Model><ModelView /></main>
        </Show>
        <Show when=visited(Screen::Compare)>
            <main class="app cmp" hidden=move || state.screen.get() != Screen::Compare><CompareView /></main>
        </Show>
        <Show when=visited(Screen::Run)>
            <main class="app ran" hidden=move || state.screen.get() != Screen::Run><RunView own=page.run /></main>
        </Show>
        <Show when=visited(Screen::Recompute)>
            <main class="app rec" hidden=move || state.screen.get() != Screen::Recompute><RecomputeView own=page.recompute /></main>
        </Show>
        <Show when=visited(Screen::Communication)>
            <main class="app com" hidden=move || state.screen.get() != Screen::Communication><CommunicationView /></main>
        </Show>
        <Show when=visited(Screen::Playground)>
            <main class="app play" hidden=move || state.screen.get() != Screen::Playground><PlaygroundView own=page.playground /></main>
        </Show>
        <Show when=visited(Screen::Elastic)>
            <main class="app ela" hidden=move || state.screen.get() != Screen::Elastic><ElasticView own=page.elastic /></main>
        </Show>
        <footer class="foot only-m">
            <button class="btn" id="sheet" aria-controls="inputs" hidden=move || state.screen.get() == Screen::Run
                aria-expanded=move || state.sheet.get().to_string()
                on:click=move |_| state.sheet.update(|s| *s = !*s)>
                {move || if state.sheet.get() { t("Close inputs") } else { t("Inputs") }}
            </button>
            <RunHere page id="run-here-m" />
            <Export id="export-m" />
        </footer>
        <Note />
        <Help page />
        <Gallery page />
        <Palette page />
        <HerePanel page />
    }
}

/// What the address bar asks for; then an action is selected, so that the first look explains.
fn open(page: Page) {
    let state = page.state;
    let found = address::take(page);
    // The first state is where undo ends.
    state.history.set(Default::default());
    let (stages, m) = state.inputs.with_untracked(|i| (i.stages(), i.micro_batches));
    let first = Action::new(1.min(stages - 1), ActionKind::Forward, m / 2);
    state.look.selected.set(Some(first));
    files::fetch_all(page, found);
    keeping::start(page);
}

/// Page-wide keys, drops and the browser's own back and forward.
fn listen(page: Page) {
    let keys = window_event_listener(ev::keydown, move |event| {
        let with_ctrl = event.ctrl_key() || event.meta_key();
        let found = keys::find(Scope::Page, &event.key(), with_ctrl, event.shift_key());
        // Nothing focused: nobody types, and `?` is what people try first.
        let idle = document().active_element().is_none_or(|e| e.tag_name() == "BODY");
        let help = (event.key() == "?" && idle && !typing()).then_some(Command::Help);
        let Some(command) = found.or(help) else { return };
        let plain = matches!(command, Command::Screen(_));
        if plain && (typing() || event.alt_key() || !page.number_keys.get_untracked()) {
            return;
        }
        if command != Command::Clear {
            event.prevent_default();
        }
        perform(page, command);
    });
    let over = window_event_listener(ev::dragover, |event| event.prevent_default());
    let dropped = window_event_listener(ev::drop, move |event| {
        event.prevent_default();
        files::read_all(page, upload::dropped(&event), Side::B);
    });
    let back = window_event_listener(ev::popstate, move |_| {
        here::wire::begin_again(page);
        files::fetch_all(page, address::take(page));
    });
    on_cleanup(move || {
        keys.remove();
        over.remove();
        dropped.remove();
        back.remove();
    });
}

/// The line of messages; good ones leave by themselves.
#[component]
fn Note() -> impl IntoView {
    let state = expect_context::<State>();
    let shown = StoredValue::new(0u32);
    Effect::new(move |_| {
        let note = state.note.get();
        shown.update_value(|n| *n += 1);
        let mine = shown.get_value();
        if !note.text.is_empty() && !note.bad {
            let leave = move || {
                if shown.try_get_value() == Some(mine) {
                    state.note.set(Default::default());
                }
            };
            set_timeout(leave, std::time::Duration::from_secs(8));
        }
    });
    let empty = move || state.note.with(|n| n.text.is_empty());
    let instead = move || state.note.with(|n| n.instead);
    let take = move |_| {
        if let Some((lanes, kind)) = untrack(instead) {
            state.note.set(Default::default());
            state.edit(|inputs| take_lanes(inputs, lanes, kind));
        }
    };
    view! {
        <div class="toast" class:bad=move || state.note.with(|n| n.bad) class:none=empty>
            <p id="note" role="status">{move || state.note.with(|n| n.text.clone())}</p>
            <button class="fix" id="instead" hidden=move || instead().is_none() on:click=take>
                {move || instead().map_or_else(String::new, |(lanes, _)| tr!("Use {lanes} lanes", lanes))}</button>
            <button class="ib" aria-label=t("Close the message") tabindex=move || if empty() { "-1" } else { "0" }
                on:click=move |_| state.note.set(Default::default())>"×"</button>
        </div>
    }
}
