//! Who does what in which order: actions on lanes, no times.

mod action;
mod check;
mod generate;
mod text;

pub use action::{Action, ActionKind};
pub use check::{Blocked, CheckError, check};
pub use generate::ScheduleKind;
pub use text::ParseError;

use crate::ids::{LaneId, StageId};

/// The order of actions on every lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// By lane.
    pub lanes: Vec<Vec<Action>>,
    /// Lane of each stage.
    pub placement: Vec<LaneId>,
    /// Micro-batches of a step.
    pub micro_batches: u32,
}

impl Schedule {
    /// Number of stages.
    pub fn stages(&self) -> u32 {
        self.placement.len() as u32
    }

    /// The lane that executes `stage`.
    pub fn lane_of(&self, stage: StageId) -> LaneId {
        self.placement[stage.index()]
    }

    /// Whether backward passes are split into I and W.
    pub fn splits_backward(&self) -> bool {
        let split =
            |a: &Action| matches!(a.kind, ActionKind::BackwardInput | ActionKind::BackwardWeight);
        self.lanes.iter().flatten().any(split)
    }
}
