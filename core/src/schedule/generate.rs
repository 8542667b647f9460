//! From a name to actions: one generator a file.

use super::{Action, ActionKind, Schedule, ScheduleKind};
use thiserror::Error;

mod gpipe;
mod interleaved;
mod looped_bfs;
mod naive;
mod one_f_one_b;

/// Why there is no such schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GenerateError {
    /// Stages that do not fill the lanes.
    #[error("{kind} cannot have {stages} stages: {must}")]
    Stages {
        /// The schedule.
        kind: ScheduleKind,
        /// Stages asked for.
        stages: u32,
        /// What it needs.
        must: String,
    },
    /// Micro-batches that do not fit its pattern.
    #[error("{kind} on {lanes} lanes cannot have {micro_batches} micro-batches: {must}")]
    MicroBatches {
        /// The schedule.
        kind: ScheduleKind,
        /// Lanes.
        lanes: u32,
        /// Micro-batches asked for.
        micro_batches: u32,
        /// What it needs.
        must: String,
    },
    /// More than a computer could hold.
    #[error(
        "{stages} stages x {micro_batches} micro-batches are more than the {LIMIT} pairs that a \
         schedule may have; use fewer micro-batches"
    )]
    TooMany {
        /// Stages asked for.
        stages: u32,
        /// Micro-batches asked for.
        micro_batches: u32,
    },
}

/// Most pairs of stage and micro-batch: 16 times the largest pipeline known.
const LIMIT: u64 = 1 << 26;

/// What a generator is asked for: at least one of each, and stages that divide into lanes.
#[derive(Clone, Copy)]
struct Pipe {
    kind: ScheduleKind,
    lanes: u32,
    stages: u32,
    micro_batches: u32,
}

impl Pipe {
    /// Stages of a lane.
    fn chunks(self) -> u32 {
        self.stages / self.lanes
    }

    fn micro_batches_must(self, must: impl Into<String>) -> GenerateError {
        let Pipe { kind, lanes, micro_batches, .. } = self;
        GenerateError::MicroBatches { kind, lanes, micro_batches, must: must.into() }
    }

    /// Generates lane by lane.
    fn each(self, lane: impl Fn(u32) -> Vec<Action>) -> Order {
        let lanes: Vec<Vec<Action>> = (0..self.lanes).map(lane).collect();
        Order { overlaps: vec![vec![]; lanes.len()], lanes }
    }
}

/// What a generator gives: see the fields of [`Schedule`].
struct Order {
    lanes: Vec<Vec<Action>>,
    overlaps: Vec<Vec<u32>>,
}

impl ScheduleKind {
    /// The schedule for `stages` stages; the number of lanes follows from
    /// [`ScheduleKind::placement`]. Linear in actions.
    ///
    /// # Errors
    /// Numbers that the schedule cannot have, and what it needs.
    pub fn generate(self, stages: u32, micro_batches: u32) -> Result<Schedule, GenerateError> {
        let kind = self;
        let lanes = self.lanes(stages)?;
        if u64::from(stages) * u64::from(micro_batches) > LIMIT {
            return Err(GenerateError::TooMany { stages, micro_batches });
        }
        let pipe = Pipe { kind, lanes, stages, micro_batches };
        if micro_batches == 0 {
            return Err(pipe.micro_batches_must("it needs at least one"));
        }
        let m = micro_batches;
        let Order { lanes, overlaps } = match self {
            ScheduleKind::GPipe => pipe.each(|lane| gpipe::lane(lane, m)),
            ScheduleKind::OneFOneB => pipe.each(|lane| one_f_one_b::lane(lane, stages, m)),
            ScheduleKind::Naive => pipe.each(|lane| naive::lane(lane, m)),
            ScheduleKind::Interleaved { .. } => interleaved::order(pipe)?,
            ScheduleKind::LoopedBfs { .. } => pipe.each(|lane| looped_bfs::lane(pipe, lane)),
        };
        let placement = self.placement();
        Ok(Schedule {
            routes: placement.routes(lanes.len() as u32),
            route_of: placement.route_of(micro_batches),
            lanes,
            overlaps,
            micro_batches,
            updates: self.updates(),
        })
    }

    /// The number of lanes for `stages` stages.
    ///
    /// # Errors
    /// When the stages do not divide.
    pub fn lanes(self, stages: u32) -> Result<u32, GenerateError> {
        let lanes = self.placement().lanes(stages).filter(|lanes| *lanes > 0);
        lanes.ok_or_else(|| {
            let must = match self.placement() {
                super::Placement::Loop { chunks: 1 } => "it needs at least one".into(),
                super::Placement::Loop { chunks } | super::Placement::Wave { chunks } => {
                    format!("every lane has {chunks}, so it needs a multiple of {chunks}")
                }
                super::Placement::TwoWay => "it needs an even number".into(),
            };
            GenerateError::Stages { kind: self, stages, must }
        })
    }
}

fn forward(stage: u32, micro_batch: u32) -> Action {
    Action::new(stage, ActionKind::Forward, micro_batch)
}

fn backward(stage: u32, micro_batch: u32) -> Action {
    Action::new(stage, ActionKind::Backward, micro_batch)
}
