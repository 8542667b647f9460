//! Schedules: who does what in which order, actions on lanes without times.
//!
//! ```
//! use pipewright_core::schedule::{Schedule, ScheduleKind, check};
//!
//! // Stages and micro-batches.
//! let schedule = ScheduleKind::OneFOneB.generate(2, 4)?;
//! assert_eq!(schedule.lines()[0], "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3");
//! // One's own, by the same text.
//! let lanes = ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"];
//! check(&Schedule::parse(&lanes)?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod action;
mod check;
mod csv;
mod generate;
mod kind;
mod messages;
mod outbox;
mod placement;
mod text;
mod updates;

pub use action::{Action, ActionKind};
pub use check::{Blocked, CheckError, check};
pub use csv::CsvError;
pub use generate::{Automatic, AutomaticError, Found, GenerateError, StageLoad, automatic};
pub use kind::{ScheduleKind, UnknownSchedule};
pub use outbox::{Hands, Outboxes};
pub use placement::Placement;
pub use text::ParseError;
pub use updates::Updates;

use crate::ids::{LaneId, MicroBatch, StageId};

/// The order of actions on every lane.
///
/// A *route* says on which lane each stage runs. Most schedules have one; bidirectional ones
/// (DualPipe, Chimera) have two, and stages with replicas as many as there are combinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// By lane.
    pub lanes: Vec<Vec<Action>>,
    /// By lane: ascending positions of actions that overlap with the one behind them, a forward
    /// and a backward that start together and take as long as both (`(4F0;3B1)OVERLAP_F_B`).
    pub overlaps: Vec<Vec<u32>>,
    /// By route, by stage: the lane. In the order of the first micro-batch that takes them.
    pub routes: Vec<Vec<LaneId>>,
    /// By micro-batch: its route.
    pub route_of: Vec<u32>,
    /// Micro-batches of a step.
    pub micro_batches: u32,
    /// When parameters change.
    pub updates: Updates,
}

impl Schedule {
    /// Number of stages.
    pub fn stages(&self) -> u32 {
        self.routes[0].len() as u32
    }

    /// The lane that executes `stage` for `micro_batch`.
    pub fn lane_of(&self, stage: StageId, micro_batch: MicroBatch) -> LaneId {
        self.routes[self.route_of[micro_batch.index()] as usize][stage.index()]
    }

    /// The lane of each stage, when every stage is on one lane.
    pub fn placement(&self) -> Option<&[LaneId]> {
        match self.routes.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The stages whose parameters `lane` holds, ascending. O(routes x stages).
    pub fn stages_of(&self, lane: LaneId) -> Vec<StageId> {
        let on_lane = |s: &StageId| self.routes.iter().any(|route| route[s.index()] == lane);
        (0..self.stages()).map(StageId).filter(on_lane).collect()
    }

    /// Whether backward passes are split into I and W.
    pub fn splits_backward(&self) -> bool {
        let split =
            |a: &Action| matches!(a.kind, ActionKind::BackwardInput | ActionKind::BackwardWeight);
        self.lanes.iter().flatten().any(split)
    }

    /// Whether the action at `position` of `lane` overlaps with the next one.
    pub fn overlaps(&self, lane: LaneId, position: usize) -> bool {
        self.overlaps[lane.index()].binary_search(&(position as u32)).is_ok()
    }
}
