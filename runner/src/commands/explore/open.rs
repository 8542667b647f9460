//! Opens the browser, where there is one.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Opens `address`. That there is no browser is no error: the address has been printed.
pub fn browser(address: &str) {
    // Without a screen xdg-open would start a browser for terminals, in this one.
    let screen = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"].map(std::env::var_os);
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false if screen.iter().any(Option::is_some) => "xdg-open",
        false => return,
    };
    let mut command = Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C here must not close somebody's browser.
    let Ok(mut child) = command.process_group(0).spawn() else { return };
    std::thread::spawn(move || child.wait());
}
