//! The view of a timeline: the part of the step, the selected action, how both are drawn, and what is told of them.

use crate::draw::layout::View;
use crate::draw::palette::ColourBy;
use crate::planner::measured::Measured;
use leptos::prelude::*;
use pipewright_core::schedule::Action;

/// What all timelines share.
#[derive(Clone, Copy)]
pub struct Look {
    /// The visible part of the step; `None` for all of it.
    pub view: RwSignal<Option<View>>,
    /// A stretch of time measured by dragging.
    pub range: RwSignal<Option<(f64, f64)>>,
    pub selected: RwSignal<Option<Action>>,
    pub colour_by: RwSignal<ColourBy>,
    pub critical: RwSignal<bool>,
    /// The height of lanes, in that in which all fit.
    pub lane_height: RwSignal<f64>,
    pub measured: RwSignal<Option<Measured>>,
    pub show_measured: RwSignal<bool>,
    /// The block of stages that the split editor shows.
    pub split_block: RwSignal<usize>,
    /// Cuts that the worker made, so that they can be called what they are.
    pub best_cuts: RwSignal<Vec<u32>>,
    /// The name of the story that is told; empty for none.
    pub story: RwSignal<String>,
    /// Whether the gallery of stories is open.
    pub gallery: RwSignal<bool>,
}

impl Look {
    /// At everything, with the critical path.
    pub fn new() -> Self {
        Self {
            view: RwSignal::new(None),
            range: RwSignal::new(None),
            selected: RwSignal::new(None),
            colour_by: RwSignal::new(ColourBy::Kind),
            critical: RwSignal::new(true),
            lane_height: RwSignal::new(1.0),
            measured: RwSignal::new(None),
            show_measured: RwSignal::new(false),
            split_block: RwSignal::new(0),
            best_cuts: RwSignal::new(vec![]),
            story: RwSignal::new(String::new()),
            gallery: RwSignal::new(false),
        }
    }
}
