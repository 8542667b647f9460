//! The focus of the keyboard.

use leptos::prelude::document;
use wasm_bindgen::JsCast;

/// Gives the focus to the element with that id.
pub fn focus(id: &str) {
    let found = document().get_element_by_id(id);
    if let Some(element) = found.and_then(|e| e.dyn_into::<web_sys::HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// Gives the focus to the box with that id, its text selected, so that typing replaces it.
pub fn rewrite(id: &str) {
    focus(id);
    let found = document().get_element_by_id(id);
    if let Some(input) = found.and_then(|e| e.dyn_into::<web_sys::HtmlInputElement>().ok()) {
        input.select();
    }
}

/// Whether the focus is where typed letters belong to the control.
pub fn typing() -> bool {
    let Some(element) = document().active_element() else { return false };
    match element.dyn_ref::<web_sys::HtmlInputElement>() {
        Some(input) => !matches!(input.type_().as_str(), "range" | "checkbox" | "file"),
        None => matches!(element.tag_name().as_str(), "SELECT" | "TEXTAREA"),
    }
}
