//! A bug must not leave a dead page: it says what happened and hands out the link.

use leptos::prelude::{document, window};
use std::panic::PanicHookInfo;

/// Shows the message over the page and in the console.
pub fn install() {
    std::panic::set_hook(Box::new(|info| {
        console_error_panic_hook::hook(info);
        show(info);
    }));
}

fn show(info: &PanicHookInfo) {
    let Some(body) = document().body() else { return };
    let Ok(panel) = document().create_element("div") else { return };
    let _ = panel.set_attribute("role", "alert");
    let _ = panel.set_attribute("class", "crash");
    let address = window().location().href().unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let report = format!("Pipewright {version}\n{info}\n{address}");
    // Text only: the message may quote a file.
    panel.set_text_content(Some(&format!(
        "Pipewright stopped: this is a bug in the page, not in your plan. Reload to go on; \
         your settings are in the address. To report it, copy this:\n\n{report}"
    )));
    let _ = body.append_child(&panel);
}
