//! Settings that the browser keeps between visits. Without storage, as in some private windows, everything
//! is as at the first visit.

use leptos::prelude::window;

/// The setting's name; `off` in it turns the keys off.
const NUMBER_KEYS: &str = "pipewright-number-keys";

fn storage() -> Option<web_sys::Storage> {
    window().local_storage().ok().flatten()
}

/// What was kept under `key`.
pub fn kept(key: &str) -> Option<String> {
    storage()?.get_item(key).ok().flatten()
}

/// Keeps `value`, or nothing, under `key`.
pub fn keep(key: &str, value: Option<&str>) {
    let Some(storage) = storage() else { return };
    let _ = match value {
        Some(value) => storage.set_item(key, value),
        None => storage.remove_item(key),
    };
}

/// Whether number keys change the screen.
pub fn number_keys() -> bool {
    kept(NUMBER_KEYS).is_none_or(|value| value != "off")
}

/// Turns them on or off.
pub fn keep_number_keys(on: bool) {
    keep(NUMBER_KEYS, (!on).then_some("off"));
}
