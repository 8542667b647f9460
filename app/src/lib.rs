//! The explorer: choose model, cluster, split and schedule, see at once what follows.
//!
//! Reading order: `inputs` (what is chosen), `engine` (what follows), `state` (one signal and its
//! memos), `views/app` (the page), `charts` (the pictures).
//!
//! What needs a browser is behind the feature `page`; everything else is tested natively without
//! it: `cargo test -p pipewright-app`.

// Without the page nothing but the tests uses what is computed for it.
#![cfg_attr(not(feature = "page"), allow(dead_code))]

mod base;
mod draw;
mod page;
mod planner;
mod screens;
#[cfg(feature = "page")]
mod state;
#[cfg(feature = "page")]
mod widgets;

/// Shows the page.
#[cfg(feature = "page")]
pub fn run() {
    base::panic::install();
    leptos::mount::mount_to_body(page::app::App);
}
