//! The menu of other formats, beside the button that saves the plan.

use super::exports::Format;
use super::files;
use super::pictures::{self, Chart};
use crate::base::focus::focus;
use crate::base::later::{self, Missing};
use crate::base::texts::{t, tr};
use crate::planner::command::command;
use crate::state::{Note, State};
use crate::widgets::icons::{Icon, icon};
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_split::wasm_split;

#[component]
pub fn Exports() -> impl IntoView {
    let open = RwSignal::new(false);
    view! {
        <div class="formats">
            <button class="ib" id="formats" title=t("Other formats") aria-label=t("Save in other formats")
                aria-haspopup="menu" aria-expanded=move || open.get().to_string()
                on:click=move |_| open.update(|o| *o = !*o)>{icon(Icon::More)}</button>
            <Show when=move || open.get()>{move || later::view(menu(open))}</Show>
        </div>
    }
}

/// The menu, open.
#[wasm_split(menus, wasm_split_path = ::leptos::wasm_split, fallible)]
fn menu(open: RwSignal<bool>) -> Result<AnyView, Missing> {
    let state = expect_context::<State>();
    let menu: NodeRef<leptos::html::Div> = NodeRef::new();
    Effect::new(move |_| {
        if menu.get().is_some() {
            focus("format-0");
        }
    });
    let charts = pictures::charts();
    let items = items(state, &charts);
    let charts = StoredValue::new_local(charts);
    let count = items.len();
    let shut = move || {
        open.set(false);
        focus("formats");
    };
    let key = move |event: KeyboardEvent| {
        let at = document().active_element().map(|e| e.id()).and_then(|id| number(&id));
        let at = at.unwrap_or(0);
        let next = match event.key().as_str() {
            "ArrowDown" => (at + 1) % count,
            "ArrowUp" => (at + count - 1) % count,
            "Home" => 0,
            "End" => count - 1,
            "Escape" | "Tab" => {
                event.prevent_default();
                event.stop_propagation();
                return shut();
            }
            _ => return,
        };
        event.prevent_default();
        focus(&format!("format-{next}"));
    };
    let item = move |(at, Item { title, note, act }): (usize, Item)| {
        let take = move |_| {
            shut();
            match act {
                Act::Save(format) => files::save(state, format),
                Act::Picture => files::save_picture(state),
                Act::Page => files::save_page(state),
                Act::Command => files::copy_command(state),
                Act::Chart(at, ending) => {
                    let chart = charts.with_value(|charts| charts[at].clone());
                    spawn_local(async move {
                        let (text, bad) = chart.save(ending).await;
                        state.note.set(Note { text, bad, instead: None });
                    });
                }
            }
        };
        view! {
            <button role="menuitem" id=format!("format-{at}") tabindex="-1" on:click=take>
                {title} <small>{note}</small>
            </button>
        }
    };
    let shown = view! {
        <div class="menu" role="menu" aria-label=t("Other formats") node_ref=menu on:keydown=key>
            {items.into_iter().enumerate().map(item).collect_view()}
        </div>
        <button class="shade clear" tabindex="-1" aria-hidden="true" on:click=move |_| shut()></button>
    };
    Ok(shown.into_any())
}

/// A line of the menu.
struct Item {
    title: String,
    note: String,
    act: Act,
}

/// What it does.
#[derive(Clone, Copy)]
enum Act {
    Save(Format),
    Picture,
    /// Plan and trace as one HTML file.
    Page,
    Command,
    /// Saves the chart of that number as a file with that ending.
    Chart(usize, &'static str),
}

/// The formats, the picture, the command, and the charts of the screen.
fn items(state: State, charts: &[Chart]) -> Vec<Item> {
    let save = |format: Format| Item {
        title: t(format.title()).into(),
        note: format.file().into(),
        act: Act::Save(format),
    };
    let mut items: Vec<Item> = Format::ALL.into_iter().map(save).collect();
    let (title, note) = (t("Timeline as PNG").into(), "timeline.png".into());
    items.push(Item { title, note, act: Act::Picture });
    let (title, note) = (t("Plan and trace as one page").into(), "plan.html".into());
    items.push(Item { title, note, act: Act::Page });
    let ranks = state.inputs.with(crate::planner::inputs::Inputs::ranks);
    let title = t("Copy the command that runs it").into();
    items.push(Item { title, note: command(ranks), act: Act::Command });
    for (at, chart) in charts.iter().enumerate() {
        for ending in ["svg", "png"] {
            if ending == "png" || chart.is_drawing() {
                let kind = ending.to_ascii_uppercase();
                let title = tr!("{chart} as {kind}", chart = chart.name, kind);
                items.push(Item { title, note: chart.file(ending), act: Act::Chart(at, ending) });
            }
        }
    }
    items
}

/// The number of an item's id.
fn number(id: &str) -> Option<usize> {
    id.strip_prefix("format-")?.parse().ok()
}
