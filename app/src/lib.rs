//! The explorer: choose model, cluster, split and schedule, see at once what follows.
//!
//! Rooms, the lowest first; each imports those below it, and no screen another:
//!
//! | room | what is in it |
//! |---|---|
//! | `base` | texts, numbers for people, keys, code that comes later |
//! | `planner` | what is chosen (`inputs`), what follows from it (`engine`), both as links and files |
//! | `draw` | canvas, axes, timelines |
//! | `state` | one signal of inputs, a memo for each arrow that follows, what all timelines look at |
//! | `widgets` | parts that several screens show |
//! | `screens` | a folder each: `model`, `chart`, `view`, `state` and `style.css` |
//! | `page` | header, help, palette, files, the address, the machine that serves the page |
//!
//! Reading order: `planner/inputs`, `planner/engine`, `state`, `screens/plan`, `page/app`.
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
