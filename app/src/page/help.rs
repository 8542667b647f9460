//! The keys, from the one table; and what the page is about.

use super::state::Page;
use crate::base::focus::focus;
use crate::base::keys::{KEYS, Scope};
use crate::base::later::{self, Missing};
use crate::base::settings;
use crate::base::terms::TERMS;
use crate::base::texts::t;
use crate::widgets::icons::{Icon, icon};
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;

#[component]
pub fn Help(page: Page) -> impl IntoView {
    view! { <Show when=move || page.help.get()>{move || later::view(dialog(page))}</Show> }
}

/// The dialog, open.
#[wasm_split(menus, wasm_split_path = ::leptos::wasm_split, fallible)]
fn dialog(page: Page) -> Result<AnyView, Missing> {
    let close: NodeRef<leptos::html::Button> = NodeRef::new();
    // Whoever opens the list by key wants to be able to close it by key.
    Effect::new(move |_| {
        if let Some(button) = close.get() {
            let _ = button.focus();
        }
    });
    let shut = move |_| {
        page.help.set(false);
        focus("help");
    };
    let switch = move |event: web_sys::Event| {
        let on = event_target_checked(&event);
        settings::keep_number_keys(on);
        page.number_keys.set(on);
    };
    let shown = view! {
        <section class="help" role="dialog" aria-label=t("Keys and help")>
            <div class="sec">
                <h2>{t("Keys")}</h2>
                <button class="ib" node_ref=close aria-label=t("Close") on:click=shut>{icon(Icon::Close)}</button>
            </div>
            <div class="help-cols">
                {Scope::ALL.map(|scope| view! { <Keys scope /> }).collect_view()}
            </div>
            <div class="sec"><h2>{t("Terms")}</h2></div>
            <dl class="terms">
                {TERMS.map(|(term, meaning)| view! { <div><dt>{t(term)}</dt><dd>{t(meaning)}</dd></div> }).collect_view()}
            </dl>
            <p><label><input id="number-keys" type="checkbox"
                prop:checked=move || page.number_keys.get() on:change=switch />" "{t("Number keys change the screen")}</label></p>
            <p class="mut">
                {t("Every slider: arrows one step, Shift ten, Page up and down double and halve, double click \
                the usual value. Drop a plan.json or the runner's trace.json anywhere on the page. \
                Nothing leaves your browser.")}
            </p>
        </section>
    };
    Ok(shown.into_any())
}

#[component]
fn Keys(scope: Scope) -> impl IntoView {
    let rows = KEYS.iter().filter(|b| b.scope == scope).map(|b| {
        view! { <tr><td><kbd>{b.shown}</kbd></td><td>{t(b.what)}</td></tr> }
    });
    view! {
        <div>
            <h3>{t(scope.title())}</h3>
            <table><tbody>{rows.collect_view()}</tbody></table>
        </div>
    }
}
