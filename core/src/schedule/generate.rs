//! The schedules that have a name.

use super::{Action, ActionKind, Schedule};
use crate::ids::LaneId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

mod gpipe;
mod one_f_one_b;

/// A schedule by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ScheduleKind {
    /// All forwards, then all backwards (Huang et al. 2019).
    #[serde(rename = "gpipe")]
    GPipe,
    /// One forward, one backward, flushed every step (Narayanan et al. 2021, "PipeDream-Flush").
    #[serde(rename = "1f1b")]
    OneFOneB,
}

impl ScheduleKind {
    /// All of them, in the order in which they are offered.
    pub const ALL: [ScheduleKind; 2] = [ScheduleKind::OneFOneB, ScheduleKind::GPipe];

    /// The schedule for `stages` stages, one a lane.
    pub fn generate(self, stages: u32, micro_batches: u32) -> Schedule {
        let lane = |stage| match self {
            ScheduleKind::GPipe => gpipe::lane(stage, micro_batches),
            ScheduleKind::OneFOneB => one_f_one_b::lane(stage, stages, micro_batches),
        };
        Schedule {
            lanes: (0..stages).map(lane).collect(),
            placement: (0..stages).map(LaneId).collect(),
            micro_batches,
        }
    }

    /// The name for people.
    pub fn title(self) -> &'static str {
        match self {
            ScheduleKind::GPipe => "GPipe",
            ScheduleKind::OneFOneB => "1F1B",
        }
    }
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScheduleKind::GPipe => "gpipe",
            ScheduleKind::OneFOneB => "1f1b",
        })
    }
}

impl FromStr for ScheduleKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ScheduleKind::ALL
            .into_iter()
            .find(|kind| kind.to_string() == text)
            .ok_or_else(|| format!("no schedule is called `{text}`; known: gpipe, 1f1b"))
    }
}

fn forward(stage: u32, micro_batch: u32) -> Action {
    Action::new(stage, ActionKind::Forward, micro_batch)
}

fn backward(stage: u32, micro_batch: u32) -> Action {
    Action::new(stage, ActionKind::Backward, micro_batch)
}
