//! Controls that an event came upon.

use leptos::ev::Event;
use wasm_bindgen::JsCast;

/// The id of the element that an event is of.
pub fn id_of(event: &Event) -> String {
    let element = event.target().and_then(|t| t.dyn_into::<web_sys::Element>().ok());
    element.map(|e| e.id()).unwrap_or_default()
}
