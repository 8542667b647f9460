//! State of the Run screen alone, set even before it is seen.

use super::model::metrics::Run;
use super::model::tune::TuneHistory;
use leptos::prelude::*;

/// All of it.
#[derive(Clone, Copy)]
pub struct RunState {
    /// Metrics of runs, in the order in which they were opened.
    pub runs: RwSignal<Vec<Run>>,
    /// What `runner tune` tried.
    pub tuned: RwSignal<Option<TuneHistory>>,
    /// Whether the machine that serves the page offers runs.
    pub offered: RwSignal<bool>,
}

impl RunState {
    /// Before a file was opened.
    pub fn new() -> Self {
        Self {
            runs: RwSignal::new(vec![]),
            tuned: RwSignal::new(None),
            offered: RwSignal::new(false),
        }
    }
}
