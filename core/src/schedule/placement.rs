//! Placement: the stages that a lane holds.
//!
//! ```text
//! Loop, 2 chunks     lane 0: 0 4   lane 1: 1 5   lane 2: 2 6   lane 3: 3 7
//! Wave, 2 chunks     lane 0: 0 7   lane 1: 1 6   lane 2: 2 5   lane 3: 3 4     ("V")
//! TwoWay             lane 0: 0 3   lane 1: 1 2   lane 2: 2 1   lane 3: 3 0
//! ```

use crate::ids::LaneId;

/// How stages are placed on lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Stage s on lane s mod p; with one chunk a straight pipeline.
    Loop {
        /// Stages of a lane.
        chunks: u32,
    },
    /// Forth and back: every second chunk runs through the lanes in reverse, so that its first
    /// stage is on the lane of the stage before.
    Wave {
        /// Stages of a lane; with 2 it is a V.
        chunks: u32,
    },
    /// Every stage on two lanes: the first half of the micro-batches runs from lane 0 to lane
    /// p - 1, the second half from lane p - 1 to lane 0.
    TwoWay,
}

impl Placement {
    /// The number of lanes for `stages` stages, if they divide.
    pub fn lanes(self, stages: u32) -> Option<u32> {
        match self {
            Placement::Loop { chunks } | Placement::Wave { chunks } => {
                let even = chunks > 0 && stages.is_multiple_of(chunks);
                even.then(|| stages / chunks)
            }
            Placement::TwoWay => stages.is_multiple_of(2).then_some(stages),
        }
    }

    /// The number of stages on so many lanes.
    pub fn stages(self, lanes: u32) -> u32 {
        match self {
            Placement::Loop { chunks } | Placement::Wave { chunks } => lanes.saturating_mul(chunks),
            Placement::TwoWay => lanes,
        }
    }

    /// The lane of each stage, by route.
    pub fn routes(self, lanes: u32) -> Vec<Vec<LaneId>> {
        let straight = |chunks: u32| (0..chunks).flat_map(|_| (0..lanes).map(LaneId)).collect();
        let wave = |chunk: u32| {
            let lane = move |i| LaneId(if chunk.is_multiple_of(2) { i } else { lanes - 1 - i });
            (0..lanes).map(lane)
        };
        match self {
            Placement::Loop { chunks } => vec![straight(chunks)],
            Placement::Wave { chunks } => vec![(0..chunks).flat_map(wave).collect()],
            Placement::TwoWay => vec![wave(0).collect(), wave(1).collect()],
        }
    }

    /// The route of each micro-batch.
    pub fn route_of(self, micro_batches: u32) -> Vec<u32> {
        let up = |i| u32::from(i >= micro_batches / 2);
        match self {
            Placement::Loop { .. } | Placement::Wave { .. } => vec![0; micro_batches as usize],
            Placement::TwoWay => (0..micro_batches).map(up).collect(),
        }
    }
}
