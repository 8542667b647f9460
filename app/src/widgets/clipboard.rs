//! The clipboard.

use crate::base::texts::tr;
use crate::state::State;
use leptos::prelude::window;
use leptos::task::spawn_local;
use wasm_bindgen_futures::JsFuture;

/// Puts a command on the clipboard, or says it where the browser refuses.
pub fn copy(state: State, command: String) {
    spawn_local(async move {
        match JsFuture::from(window().navigator().clipboard().write_text(&command)).await {
            Ok(_) => state.say(tr!("Copied: {command}", command)),
            Err(_) => state.say(tr!("In a shell: {command}", command)),
        }
    });
}
