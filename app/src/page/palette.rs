//! The command palette: Ctrl K, type, Enter.

use super::commands::perform;
use super::entries::{Act, Dial, Entry, entries, matching};
use super::header::switch_language;
use super::state::Page;
use super::{files, theme};
use crate::base::focus::focus;
use crate::base::later::{self, Missing};
use crate::base::screen::Screen;
use crate::base::texts::{t, tr};
use crate::planner::choices::ClusterChoice;
use crate::planner::link::{
    MICRO_BATCHES_MAX, MINI_BATCH_MAX, REPLICAS_MAX, STAGES_MAX, TENSOR_MAX,
};
use crate::planner::presets::EXAMPLES;
use crate::planner::{engine, found, kept};
use crate::state::State;
use crate::widgets::moves;
use crate::widgets::selects::choose_model;
use crate::widgets::slider::no_number;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use pipewright_core::plan::STEPS_MAX;
use wasm_bindgen::JsCast;

#[component]
pub fn Palette(page: Page) -> impl IntoView {
    view! { <Show when=move || page.palette.get()>{move || later::view(dialog(page))}</Show> }
}

/// Takes the focus back to where it was.
fn close(page: Page, before: &Option<web_sys::Element>) {
    page.palette.set(false);
    let before = before.as_ref().and_then(|e| e.dyn_ref::<web_sys::HtmlElement>());
    if let Some(element) = before {
        let _ = element.focus();
    }
}

/// The dialog, open.
#[wasm_split(menus, wasm_split_path = ::leptos::wasm_split, fallible)]
fn dialog(page: Page) -> Result<AnyView, Missing> {
    let before = StoredValue::new_local(document().active_element());
    let all = StoredValue::new(entries(page.here.offered.get_untracked()));
    let query = RwSignal::new(String::new());
    let chosen = RwSignal::new(0usize);
    let found = Memo::new(move |_| query.with(|query| all.with_value(|all| matching(all, query))));
    let take = move |at: usize| {
        let act = found.with_untracked(|found| found.get(at).map(|entry| entry.act));
        close(page, &before.get_value());
        if let Some(act) = act {
            act_on(page, act);
        }
    };
    let key = move |event: KeyboardEvent| {
        let count = found.with(Vec::len);
        let at = chosen.get_untracked();
        match event.key().as_str() {
            "ArrowDown" if count > 0 => chosen.set((at + 1) % count),
            "ArrowUp" if count > 0 => chosen.set((at + count - 1) % count),
            "Enter" if at < count => take(at),
            "Enter" => {}
            "Escape" | "Tab" => close(page, &before.get_value()),
            _ => return,
        }
        event.prevent_default();
        event.stop_propagation();
    };
    let input: NodeRef<leptos::html::Input> = NodeRef::new();
    Effect::new(move |_| {
        if let Some(input) = input.get() {
            let _ = input.focus();
        }
    });
    Effect::new(move |_| {
        let row = document().get_element_by_id(&format!("act-{}", chosen.get()));
        if let Some(row) = row {
            row.scroll_into_view_with_bool(false);
        }
    });
    let rows = move || {
        let row = |(at, Entry { title, keys, .. }): (usize, Entry)| {
            let mine = move || (chosen.get() == at).to_string();
            view! {
                <li role="option" id=format!("act-{at}") aria-selected=mine
                    on:pointermove=move |_| chosen.set(at) on:click=move |_| take(at)>
                    {title} <kbd>{keys}</kbd>
                </li>
            }
        };
        found.get().into_iter().enumerate().map(row).collect_view()
    };
    let none = move || found.with(Vec::is_empty);
    let shown = view! {
        <section class="pal" role="dialog" aria-label=t("Command palette") on:keydown=key>
            <input id="palette" type="text" role="combobox" aria-expanded="true" aria-controls="acts"
                aria-activedescendant=move || format!("act-{}", chosen.get()) autocomplete="off"
                aria-label=t("Command") placeholder=t("Type a model, a schedule or a command") node_ref=input
                on:input=move |e| { query.set(event_target_value(&e)); chosen.set(0); } />
            <ul id="acts" role="listbox" aria-label=t("Commands")>{rows}</ul>
            <p class="mut" role="status" hidden=move || !none()>{t("No match.")}</p>
        </section>
        <button class="shade" tabindex="-1" aria-hidden="true" on:click=move |_| close(page, &before.get_value())></button>
    };
    Ok(shown.into_any())
}

fn act_on(page: Page, act: Act) {
    match act {
        Act::Command(command) => perform(page, command),
        Act::Theme => theme::toggle(page.state),
        Act::Pin => page.state.pin(Some(page.state.inputs.get_untracked())),
        Act::Swap => page.state.swap(),
        Act::CopyLink => files::copy_link(page),
        Act::OpenFile => {
            focus("import");
            let input = document().get_element_by_id("import");
            if let Some(input) = input.and_then(|e| e.dyn_into::<web_sys::HtmlElement>().ok()) {
                input.click();
            }
        }
        Act::RunHere => crate::page::here::panel::open(page, true),
        Act::Save(format) => files::save(page.state, format),
        Act::SavePicture => files::save_picture(page.state),
        Act::CopyCommand => files::copy_command(page.state),
        Act::Example(at) => page.state.load(EXAMPLES[at].inputs()),
        Act::Model(preset) => choose_model(page.state, preset),
        Act::Stories => page.state.look.gallery.set(true),
        Act::Language => switch_language(page.state),
        Act::Better => better(page),
        Act::Set(dial, number) => set(page.state, dial, number),
        Act::Select(action) if !moves::is_there(page.state, action) => {
            page.state.complain(tr!("This plan has no action {action}.", action));
        }
        Act::Select(action) => {
            page.state.go(Screen::Plan);
            moves::select(page.state, action);
        }
        Act::Cluster(name) => {
            if let Some(cluster) = ClusterChoice::by_name(name) {
                page.state.edit(|inputs| inputs.cluster = cluster);
            }
        }
        Act::Schedule(kind) => {
            page.state.edit(|inputs| kept::recut(inputs, &|i| engine::reschedule(i, kind)))
        }
    }
}

/// Takes the best of the better plans that are known.
fn better(page: Page) {
    let state = page.state;
    let best =
        page.plan.advice.with_untracked(|a| a.as_ref().and_then(|a| a.plans.first().cloned()));
    match best.map(|best| state.inputs.with_untracked(|inputs| found::take(&best, inputs))) {
        Some(Ok(next)) => state.replace(next),
        Some(Err(why)) => state.complain(tr!("The plan cannot be used: {why}.", why)),
        None => state.say(t("No better plan is known.")),
    }
}

/// Sets a number of the plan, where there is such a one.
fn set(state: State, dial: Dial, number: u64) {
    let most = match dial {
        Dial::Lanes => u64::from(state.inputs.with_untracked(|i| {
            state
                .graph
                .with_untracked(|graph| engine::most_lanes(graph, i.schedule).min(STAGES_MAX))
        })),
        Dial::MicroBatches => MICRO_BATCHES_MAX.into(),
        Dial::MiniBatch => MINI_BATCH_MAX,
        Dial::Replicas => REPLICAS_MAX.into(),
        Dial::Tensor => TENSOR_MAX.into(),
        Dial::Steps => STEPS_MAX,
    };
    if !(1..=most).contains(&number) {
        let label =
            Dial::ALL.into_iter().find(|(other, _)| *other == dial).map_or("", |(_, name)| t(name));
        return state.complain(no_number(label, 1, most));
    }
    state.edit(|inputs| match dial {
        Dial::Lanes => kept::recut(inputs, &|i| engine::split(i, number as u32)),
        Dial::MicroBatches => inputs.micro_batches = number as u32,
        Dial::MiniBatch => inputs.mini_batch = number,
        Dial::Replicas => inputs.rest.data_parallel.replicas = number as u32,
        Dial::Tensor => inputs.rest.tensor = number as u32,
        Dial::Steps => inputs.rest.steps = number,
    });
}
