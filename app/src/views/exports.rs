//! The menu of other formats, beside the button that saves the plan.

use super::help::focus;
use super::icons::{Icon, icon};
use crate::exports::{Format, command};
use crate::files;
use crate::later::{self, Missing};
use crate::state::State;
use crate::texts::t;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;

/// Items: the formats, the picture, the command.
const ITEMS: usize = Format::ALL.len() + 2;

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
#[wasm_split(exports, wasm_split_path = ::leptos::wasm_split, fallible)]
fn menu(open: RwSignal<bool>) -> Result<AnyView, Missing> {
    let state = expect_context::<State>();
    let menu: NodeRef<leptos::html::Div> = NodeRef::new();
    Effect::new(move |_| {
        if menu.get().is_some() {
            focus("format-0");
        }
    });
    let shut = move || {
        open.set(false);
        focus("formats");
    };
    let key = move |event: KeyboardEvent| {
        let at = document().active_element().map(|e| e.id()).and_then(|id| number(&id));
        let at = at.unwrap_or(0);
        let next = match event.key().as_str() {
            "ArrowDown" => (at + 1) % ITEMS,
            "ArrowUp" => (at + ITEMS - 1) % ITEMS,
            "Home" => 0,
            "End" => ITEMS - 1,
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
    let item = move |(at, title, note, act): (usize, &'static str, String, Act)| {
        let take = move |_| {
            shut();
            match act {
                Act::Save(format) => files::save(state, format),
                Act::Picture => files::save_picture(state),
                Act::Command => files::copy_command(state),
            }
        };
        view! {
            <button role="menuitem" id=format!("format-{at}") tabindex="-1" on:click=take>
                {title} <small>{note}</small>
            </button>
        }
    };
    let ranks = state.inputs.with(crate::inputs::Inputs::ranks);
    let mut items: Vec<(usize, &'static str, String, Act)> = vec![];
    for (at, format) in Format::ALL.into_iter().enumerate() {
        items.push((at, t(format.title()), format.file().into(), Act::Save(format)));
    }
    items.push((ITEMS - 2, t("Timeline as PNG"), "timeline.png".into(), Act::Picture));
    items.push((ITEMS - 1, t("Copy the command that runs it"), command(ranks), Act::Command));
    let shown = view! {
        <div class="menu" role="menu" aria-label=t("Other formats") node_ref=menu on:keydown=key>
            {items.into_iter().map(item).collect_view()}
        </div>
        <button class="shade clear" tabindex="-1" aria-hidden="true" on:click=move |_| shut()></button>
    };
    Ok(shown.into_any())
}

/// What an item does.
#[derive(Clone, Copy)]
enum Act {
    Save(Format),
    Picture,
    Command,
}

/// The number of an item's id.
fn number(id: &str) -> Option<usize> {
    id.strip_prefix("format-")?.parse().ok()
}
