//! The list of states that the browser keeps, beside the button that opens files.

use super::keeping::{self, Kept};
use super::state::Page;
use crate::base::focus::focus;
use crate::base::later::{self, Missing};
use crate::base::texts::t;
use crate::widgets::icons::{Icon, icon};
use js_sys::Date;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_split::wasm_split;
use wasm_bindgen::JsValue;

#[component]
pub fn Recent(page: Page) -> impl IntoView {
    let open = RwSignal::new(false);
    let key = move |event: KeyboardEvent| {
        if open.get_untracked() && event.key() == "Escape" {
            event.stop_propagation();
            open.set(false);
            focus("recent");
        }
    };
    view! {
        <div class="formats kept" on:keydown=key>
            <button class="ib" id="recent" title=t("Recent states, kept in this browser") aria-label=t("Recent states")
                aria-expanded=move || open.get().to_string()
                on:click=move |_| open.update(|o| *o = !*o)>{icon(Icon::Recent)}</button>
            <Show when=move || open.get()>{move || later::view(menu(page, open))}</Show>
        </div>
    }
}

#[wasm_split(keeping, wasm_split_path = ::leptos::wasm_split, fallible)]
fn menu(page: Page, open: RwSignal<bool>) -> Result<AnyView, Missing> {
    let states: RwSignal<Option<Vec<Kept>>> = RwSignal::new(None);
    let look = move || {
        spawn_local(async move {
            if let Ok(list) = keeping::list().await {
                states.set(Some(list.await));
            }
        });
    };
    look();
    let shut = move || {
        open.set(false);
        focus("recent");
    };
    let forget = move |visit: Option<String>| {
        spawn_local(async move {
            if let Ok(done) = keeping::forget(visit).await {
                done.await;
            }
            look();
        });
    };
    let none = move || states.with(|s| s.as_ref().is_some_and(Vec::is_empty));
    let row = move |kept: Kept| {
        let (visit, gone) = (kept.visit.clone(), kept.visit.clone());
        let take = move |_| {
            let visit = visit.clone();
            shut();
            spawn_local(async move {
                if let Ok(done) = keeping::open(page, visit).await {
                    done.await;
                }
            });
        };
        view! {
            <div class="line">
                <button class="state" on:click=take><b>{kept.title}</b><small>{kept.note}</small><small>{when(kept.when)}</small></button>
                <button class="ib" aria-label=t("Delete this state") title=t("Delete this state")
                    on:click=move |_| forget(Some(gone.clone()))>"×"</button>
            </div>
        }
    };
    Ok(view! {
        <div class="menu recent" role="dialog" aria-label=t("Recent states")>
            <p class="note wide">{t("Kept in this browser only: the newest state of each visit, with its files.")}</p>
            {move || states.get().unwrap_or_default().into_iter().map(row).collect_view()}
            <Show when=none><p>{t("None yet: change something, and it is kept.")}</p></Show>
            <button class="btn" class:none=move || states.with(|s| s.as_ref().is_none_or(Vec::is_empty))
                on:click=move |_| forget(None)>{t("Delete all")}</button>
        </div>
        <button class="shade clear" tabindex="-1" aria-hidden="true" on:click=move |_| shut()></button>
    }
    .into_any())
}

/// A moment as the browser's language writes it.
fn when(milliseconds: f64) -> String {
    let language = document().document_element().and_then(|e| e.get_attribute("lang"));
    let date = Date::new(&JsValue::from_f64(milliseconds));
    date.to_locale_string(&language.unwrap_or_default(), &JsValue::UNDEFINED).into()
}
