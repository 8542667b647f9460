//! The explorer: choose model, cluster, split and schedule, see at once what follows.
//!
//! Reading order: `inputs` (what is chosen), `engine` (what follows), `state` (one signal and its
//! memos), `views/app` (the page), `charts` (the pictures).
//!
//! What needs a browser is behind the feature `page`; everything else is tested natively without
//! it: `cargo test -p pipewright-app`.

// Without the page nothing but the tests uses what is computed for it.
#![cfg_attr(not(feature = "page"), allow(dead_code))]

#[cfg(feature = "page")]
mod address;
#[cfg(feature = "page")]
mod advise;
mod charts;
mod communication;
mod compare;
mod content;
#[cfg(feature = "page")]
mod curves;
mod details;
mod elastic;
mod engine;
mod exports;
#[cfg(feature = "page")]
mod files;
mod format;
mod forms;
mod here;
mod history;
mod inputs;
mod keys;
#[cfg(feature = "page")]
mod language;
#[cfg(feature = "page")]
mod later;
mod link;
mod measured;
#[cfg(feature = "page")]
mod meter;
mod model;
mod networks;
#[cfg(feature = "page")]
mod opening;
mod palette;
#[cfg(feature = "page")]
mod panic;
mod plans;
mod playground;
mod presets;
mod program;
mod reason;
#[cfg(feature = "page")]
mod recompute;
mod repair;
mod run;
mod screen;
#[cfg(feature = "page")]
mod settings;
mod shared;
mod speedup;
#[cfg(feature = "page")]
mod state;
mod stops;
mod suggest;
mod texts;
#[cfg(feature = "page")]
mod theme;
mod times;
#[cfg(feature = "page")]
mod views;
#[cfg(feature = "page")]
mod wire;
mod words;

/// Shows the page.
#[cfg(feature = "page")]
pub fn run() {
    panic::install();
    leptos::mount::mount_to_body(views::app::App);
}
