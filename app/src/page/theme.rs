//! Light, dark or as the system has it; the choice is kept.

use crate::base::settings;
use crate::base::texts::t;
use crate::state::State;
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::Closure;

const KEY: &str = "pipewright-theme";

fn set(theme: Option<&str>) {
    settings::keep(KEY, theme);
    let Some(root) = document().document_element() else { return };
    match theme {
        Some(theme) => {
            let _ = root.set_attribute("data-theme", theme);
        }
        None => {
            let _ = root.remove_attribute("data-theme");
        }
    }
}

fn system_dark() -> bool {
    window().match_media("(prefers-color-scheme: dark)").ok().flatten().is_some_and(|m| m.matches())
}

/// Takes the kept choice and follows the system's changes.
pub fn start(state: State) {
    let kept = settings::kept(KEY);
    if let Some(theme) = kept.as_deref().filter(|t| matches!(*t, "light" | "dark")) {
        set(Some(theme));
    }
    if let Ok(Some(media)) = window().match_media("(prefers-color-scheme: dark)") {
        let changed = Closure::<dyn Fn()>::new(move || state.theme.update(|t| *t += 1));
        let _ = media.add_event_listener_with_callback("change", changed.as_ref().unchecked_ref());
        // Lives as long as the page.
        changed.forget();
    }
}

/// From the system's theme to the other one, then to its own, then back to following it.
pub fn toggle(state: State) {
    let (system, says_system) =
        if system_dark() { ("dark", t("Theme: dark.")) } else { ("light", t("Theme: light.")) };
    let (other, says_other) =
        if system_dark() { ("light", t("Theme: light.")) } else { ("dark", t("Theme: dark.")) };
    let now = document().document_element().and_then(|root| root.get_attribute("data-theme"));
    let (next, says) = match now.as_deref() {
        None => (Some(other), says_other),
        Some(theme) if theme == other => (Some(system), says_system),
        Some(_) => (None, t("Theme: as the system.")),
    };
    set(next);
    state.say(says);
    state.theme.update(|t| *t += 1);
}
