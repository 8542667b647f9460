//! State of the Playground, set even before it is seen.

use leptos::prelude::*;

/// All of it.
#[derive(Clone, Copy)]
pub struct PlaygroundState {
    /// Its choices, as their word in links.
    pub play: RwSignal<String>,
}

impl PlaygroundState {
    /// The usual choices.
    pub fn new() -> Self {
        Self { play: RwSignal::new(String::new()) }
    }
}
