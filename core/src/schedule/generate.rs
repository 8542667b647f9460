//! From a name to actions: one generator a file.

use super::{Action, ActionKind, Schedule, ScheduleKind};
use thiserror::Error;

mod automatic;
mod chimera;
mod dual_pipe;
mod gpipe;
mod greedy;
mod hanayo;
mod interleaved;
mod interleaved_zb;
mod looped_bfs;
mod naive;
mod one_f_one_b;
mod replicated;
mod v_half;
mod v_min;
mod v_pattern;
mod zb_h1;
mod zb_h2;
mod zb_v;

pub use automatic::{Automatic, AutomaticError, Found, StageLoad, automatic};

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
    /// Replicas of a stage that would have nothing to do, or none at all.
    #[error(
        "stage {stage} cannot have {count} replicas; it needs at least 1 and at most as many as \
         micro-batches, {micro_batches}"
    )]
    Replicas {
        /// The stage.
        stage: usize,
        /// Replicas asked for.
        count: u32,
        /// Micro-batches asked for.
        micro_batches: u32,
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
        Order::of((0..self.lanes).map(lane).collect())
    }
}

/// What a generator gives: see the fields of [`Schedule`].
struct Order {
    lanes: Vec<Vec<Action>>,
    overlaps: Vec<Vec<u32>>,
}

impl FromIterator<(Vec<Action>, Vec<u32>)> for Order {
    fn from_iter<I: IntoIterator<Item = (Vec<Action>, Vec<u32>)>>(lanes: I) -> Self {
        let (lanes, overlaps) = lanes.into_iter().unzip();
        Self { lanes, overlaps }
    }
}

impl Order {
    /// Without overlaps.
    fn of(lanes: Vec<Vec<Action>>) -> Self {
        Self { overlaps: vec![vec![]; lanes.len()], lanes }
    }
}

impl ScheduleKind {
    /// The schedule for `stages` stages; the number of lanes follows from
    /// [`ScheduleKind::placement`]. Linear in actions.
    ///
    /// # Errors
    /// Numbers that the schedule cannot have, and what it needs.
    pub fn generate(self, stages: u32, micro_batches: u32) -> Result<Schedule, GenerateError> {
        let pipe = self.pipe(stages, micro_batches)?;
        let m = micro_batches;
        let Order { lanes, overlaps } = match self {
            ScheduleKind::GPipe => pipe.each(|lane| gpipe::lane(lane, m)),
            ScheduleKind::OneFOneB | ScheduleKind::PipeDream => {
                pipe.each(|lane| one_f_one_b::lane(lane, stages, m))
            }
            ScheduleKind::PipeDream2Bw if m < stages => {
                return Err(pipe.micro_batches_must(format!(
                    "two versions of the weights are enough for {stages} or more"
                )));
            }
            ScheduleKind::PipeDream2Bw => pipe.each(|lane| one_f_one_b::lane(lane, stages, m)),
            ScheduleKind::Naive => pipe.each(|lane| naive::lane(lane, m)),
            ScheduleKind::Interleaved { .. } => interleaved::order(pipe)?,
            ScheduleKind::LoopedBfs { .. } => pipe.each(|lane| looped_bfs::lane(pipe, lane)),
            ScheduleKind::DualPipe => dual_pipe::two_way(pipe)?,
            ScheduleKind::DualPipeV => dual_pipe::v(pipe)?,
            ScheduleKind::Chimera => chimera::order(pipe)?,
            ScheduleKind::Hanayo { .. } => hanayo::order(pipe),
            ScheduleKind::ZbH1 => pipe.each(|lane| zb_h1::lane(lane, stages, m)),
            ScheduleKind::ZbH2 => pipe.each(|lane| zb_h2::lane(lane, stages, m)),
            ScheduleKind::InterleavedZb { .. } => interleaved_zb::order(pipe)?,
            ScheduleKind::ZbV => pipe.each(|lane| zb_v::lane(lane, pipe.lanes, m)),
            ScheduleKind::VHalf => Order::of(v_half::order(pipe.lanes, m)),
            ScheduleKind::VMin => Order::of(v_min::order(pipe.lanes, m)),
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

    /// Checks what every generator relies on.
    fn pipe(self, stages: u32, micro_batches: u32) -> Result<Pipe, GenerateError> {
        let lanes = self.lanes(stages)?;
        if u64::from(stages) * u64::from(micro_batches) > LIMIT {
            return Err(GenerateError::TooMany { stages, micro_batches });
        }
        let pipe = Pipe { kind: self, lanes, stages, micro_batches };
        match micro_batches {
            0 => Err(pipe.micro_batches_must("it needs at least one")),
            _ => Ok(pipe),
        }
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
