//! Speed-up over m for several d (Takisawa 2022, Fig. 7): every point is a simulated plan.
//!
//! Speed-up is the step time of one process with an undivided mini-batch over that of the plan.
//! Splits are balanced. The curves do not depend on the cuts or on m, so dragging these costs
//! nothing here; anything else starts them anew (`curves`).

use crate::planner::choices::{ClusterChoice, ModelChoice};
use crate::planner::inputs::Inputs;
use pipewright_core::cost::takisawa::{FIG7, MeasuredSpeedup};
use pipewright_core::graph::presets::Preset;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Nanos;

/// The stages of the curves.
pub const STAGES: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Beyond this the curves only fall, and a point takes longest.
pub const MICRO_BATCHES_MAX: u64 = 600;

/// What the curves depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    model: ModelChoice,
    cluster: ClusterChoice,
    pub mini_batch: u64,
    pub schedule: ScheduleKind,
}

/// A simulated plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub m: u64,
    pub speedup: f64,
}

/// One d.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub d: u32,
    pub points: Vec<Point>,
}

/// All d, as far as they are computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    pub key: Option<Key>,
    /// One process, undivided.
    pub alone: Nanos,
    pub curves: Vec<Curve>,
    pub done: bool,
}

impl Key {
    pub fn of(inputs: &Inputs) -> Self {
        Self {
            model: inputs.model.clone(),
            cluster: inputs.cluster.clone(),
            mini_batch: inputs.mini_batch,
            schedule: inputs.schedule,
        }
    }
}

impl Curve {
    /// The m of the largest speed-up.
    pub fn best(&self) -> Option<Point> {
        self.points.iter().copied().reduce(|a, b| if b.speedup > a.speedup { b } else { a })
    }
}

/// The published points, where the plan is the published experiment.
pub fn published(inputs: &Inputs) -> &'static [MeasuredSpeedup] {
    let same = inputs.model == ModelChoice::Preset(Preset::Fc32 { width: 5000 })
        && inputs.cluster == ClusterChoice::Preset("reedbush-l")
        && inputs.mini_batch == 1200;
    if same { &FIG7 } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::EXAMPLES;

    #[test]
    fn published_points_belong_to_their_experiment_only() {
        assert_eq!(published(&EXAMPLES[1].inputs()).len(), 5);
        assert!(published(&EXAMPLES[0].inputs()).is_empty());
    }
}
