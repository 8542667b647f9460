//! State of the Plan screen alone.

use super::model::orders::Tile;
use super::model::speedup::Curves;
use crate::widgets::reel::Scroll;
use leptos::prelude::*;
use pipewright_core::schedule::Action;
use pipewright_worker::protocol::Advised;

/// Tabs of the bottom tray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Schedules,
    SpeedUp,
    Program,
}

/// All of it.
#[derive(Clone, Copy)]
pub struct PlanState {
    pub advice: RwSignal<Option<Advised>>,
    /// The end of the timeline of the plan that advice was asked for.
    pub asked: RwSignal<u64>,
    pub curves: RwSignal<Curves>,
    /// The plan under every schedule.
    pub orders: RwSignal<Vec<Tile>>,
    pub hovered: RwSignal<Option<Action>>,
    /// Where the pointer was when it came upon the hovered action, in the canvas.
    pub hovered_at: RwSignal<(f64, f64)>,
    /// How far the timeline is scrolled.
    pub scroll: Scroll,
    /// Whether an action is being looked for by name.
    pub finding: RwSignal<bool>,
    pub tab: RwSignal<Tab>,
    /// Scale of m in the speed-up chart.
    pub log_axis: RwSignal<bool>,
}

impl PlanState {
    /// Before anything was computed or pointed at.
    pub fn new() -> Self {
        Self {
            advice: RwSignal::new(None),
            asked: RwSignal::new(0),
            curves: RwSignal::new(Curves::default()),
            orders: RwSignal::new(vec![]),
            hovered: RwSignal::new(None),
            hovered_at: RwSignal::new((0.0, 0.0)),
            scroll: Scroll::new(),
            finding: RwSignal::new(false),
            tab: RwSignal::new(Tab::Schedules),
            log_axis: RwSignal::new(true),
        }
    }
}
