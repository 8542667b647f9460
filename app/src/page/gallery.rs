//! The gallery of stories, and the line that tells the one that is open.

use super::address;
use super::state::Page;
use crate::base::focus::focus;
use crate::base::later::{self, Missing};
use crate::base::texts::{t, tr};
use crate::planner::stories::{ALL, Story};
use crate::widgets::icons::{Icon, icon};
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;

/// The two sentences of the story that is open.
#[component]
pub fn Told(page: Page) -> impl IntoView {
    let story = page.state.look.story;
    view! {
        <Show when=move || story.with(|s| !s.is_empty())>
            <aside class="story" aria-label=t("Story")>
                {move || later::view(line(page))}
            </aside>
        </Show>
    }
}

#[wasm_split(menus, wasm_split_path = ::leptos::wasm_split, fallible)]
fn line(page: Page) -> Result<AnyView, Missing> {
    let word = page.state.look.story;
    let story = move || word.with(|word| Story::named(word));
    Effect::new(move |_| {
        if story().is_none() && word.with(|word| !word.is_empty()) {
            let name = word.get_untracked();
            word.set(String::new());
            page.state.complain(tr!("There is no story `{name}`; the gallery has ten.", name));
        }
    });
    let next = move |_| {
        let at = ALL.iter().position(|s| s.word == word.get_untracked());
        address::go(page, &ALL[at.map_or(0, |at| (at + 1) % ALL.len())].link());
    };
    Ok(view! {
        <p>{move || story().map(|s| view! { <b>{t(s.title)}</b>" "{t(s.text)} })}</p>
        <button class="btn" id="next-story" on:click=next>{t("Next story")}</button>
        <button class="ib" aria-label=t("Close the story") on:click=move |_| word.set(String::new())>{icon(Icon::Close)}</button>
    }
    .into_any())
}

/// All stories, in a dialog.
#[component]
pub fn Gallery(page: Page) -> impl IntoView {
    view! { <Show when=move || page.state.look.gallery.get()>{move || later::view(dialog(page))}</Show> }
}

#[wasm_split(menus, wasm_split_path = ::leptos::wasm_split, fallible)]
fn dialog(page: Page) -> Result<AnyView, Missing> {
    let close: NodeRef<leptos::html::Button> = NodeRef::new();
    Effect::new(move |_| {
        if let Some(button) = close.get() {
            let _ = button.focus();
        }
    });
    let shut = move || {
        page.state.look.gallery.set(false);
        focus("stories");
    };
    let key = move |event: KeyboardEvent| {
        if event.key() == "Escape" {
            event.stop_propagation();
            shut();
        }
    };
    let rows = ALL.iter().map(|story| {
        let open = move |_| {
            shut();
            address::go(page, &story.link());
        };
        view! { <li><button on:click=open data-story=story.word><b>{t(story.title)}</b><span>{t(story.text)}</span></button></li> }
    });
    Ok(view! {
        <section class="help gallery" role="dialog" aria-label=t("Stories") on:keydown=key>
            <div class="sec">
                <h2>{t("Stories")}</h2>
                <button class="ib" node_ref=close aria-label=t("Close") on:click=move |_| shut()>{icon(Icon::Close)}</button>
            </div>
            <ol>{rows.collect_view()}</ol>
        </section>
    }
    .into_any())
}
