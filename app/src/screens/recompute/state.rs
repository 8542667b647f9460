//! State of the Recompute screen, set even before it is seen.

use leptos::prelude::*;

/// What it works on.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A stage of the plan.
    Stage(u32),
    /// A file of a graph.
    File(web_sys::File),
}

/// All of it.
#[derive(Clone, Copy)]
pub struct RecomputeState {
    pub source: RwSignal<Source, LocalStorage>,
    /// The share of its memory that a graph may keep.
    pub keep: RwSignal<f64>,
}

impl RecomputeState {
    /// The first stage, with a share of its memory.
    pub fn new(keep: f64) -> Self {
        Self { source: RwSignal::new_local(Source::Stage(0)), keep: RwSignal::new(keep) }
    }
}
