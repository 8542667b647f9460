//! Signals of the machine that serves the page, for parts that are there before its chunk.

use leptos::prelude::*;

/// What the first load knows of it: a signal of each is code that the page has anyway.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Whether runs are offered.
    pub offered: RwSignal<bool>,
    /// Whether the panel is open.
    pub open: RwSignal<bool>,
    /// How far a run is, where one goes on.
    pub progress: RwSignal<String>,
}

impl Seen {
    /// Nothing, as on other servers.
    pub fn new(offered: RwSignal<bool>) -> Self {
        Self { offered, open: RwSignal::new(false), progress: RwSignal::new(String::new()) }
    }
}
