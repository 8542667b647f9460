//! The menu of other formats, beside the button that saves the plan.

use super::help::focus;
use super::icons::{Icon, icon};
use crate::exports::Format;
use crate::files;
use crate::state::State;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;

/// Items: the formats, the picture, the command.
const ITEMS: usize = Format::ALL.len() + 2;

#[component]
pub fn Exports() -> impl IntoView {
    let state = expect_context::<State>();
    let open = RwSignal::new(false);
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
    let item = move |at: usize, title: &'static str, note: String, act: fn(State)| {
        let take = move |_| {
            shut();
            act(state);
        };
        view! {
            <button role="menuitem" id=format!("format-{at}") tabindex="-1" on:click=take>
                {title} <small>{note}</small>
            </button>
        }
    };
    let format = move |(at, format): (usize, Format)| {
        let take = move |_| {
            shut();
            files::save(state, format);
        };
        view! {
            <button role="menuitem" id=format!("format-{at}") tabindex="-1" on:click=take>
                {format.title()} <small>{format.file()}</small>
            </button>
        }
    };
    let picture =
        move || item(ITEMS - 2, "Timeline as PNG", "timeline.png".into(), files::save_picture);
    let ranks = move || state.inputs.with(|i| i.stages() * i.rest.data_parallel.replicas);
    let command = move || {
        let text = crate::exports::command(ranks());
        item(ITEMS - 1, "Copy the command that runs it", text, files::copy_command)
    };
    view! {
        <div class="formats">
            <button class="ib" id="formats" title="Other formats" aria-label="Save in other formats"
                aria-haspopup="menu" aria-expanded=move || open.get().to_string()
                on:click=move |_| open.update(|o| *o = !*o)>{icon(Icon::More)}</button>
            <Show when=move || open.get()>
                <div class="menu" role="menu" aria-label="Other formats" node_ref=menu on:keydown=key>
                    {Format::ALL.into_iter().enumerate().map(format).collect_view()}
                    {picture} {command}
                </div>
                <button class="shade clear" tabindex="-1" aria-hidden="true" on:click=move |_| shut()></button>
            </Show>
        </div>
    }
}

/// The number of an item's id.
fn number(id: &str) -> Option<usize> {
    id.strip_prefix("format-")?.parse().ok()
}
