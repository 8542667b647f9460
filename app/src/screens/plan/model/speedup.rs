//! Speed-up over m for several d (Takisawa 2022, Fig. 7): every point is a simulated plan.
//!
//! Speed-up is the step time of one process with an undivided mini-batch over that of the plan.
//! Splits are balanced. The curves do not depend on the cuts or on m, so dragging these costs
//! nothing here; anything else starts them anew (`curves`).

use crate::planner::choices::{ClusterChoice, ModelChoice};
use crate::planner::inputs::{Inputs, Rest};
use pipewright_core::cost::takisawa::{FIG7, MeasuredSpeedup};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::DataParallel;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Nanos;

/// The stages of the curves.
pub const STAGES: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Beyond this the curves only fall, and a point takes longest.
pub const MICRO_BATCHES_MAX: u64 = 600;

/// What the curves depend on: everything but cuts, micro-batches, and what takes no time.
#[derive(Clone, Debug, PartialEq)]
pub struct Key(Inputs);

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
        let Rest { steps, seed, .. } = Rest::default();
        let rest = Rest { steps, seed, ..inputs.rest.clone() };
        let (cuts, recompute) = (vec![], None);
        Self(Inputs { rest, cuts, recompute, micro_batches: 1, own: None, ..inputs.alone() })
    }

    /// One process with an undivided mini-batch.
    pub fn alone(&self) -> Inputs {
        let (data_parallel, tensor) = (DataParallel::default(), 1);
        let rest = Rest { data_parallel, tensor, sequence_parallel: false, ..self.0.rest.clone() };
        Inputs { rest, schedule: ScheduleKind::GPipe, ..self.0.clone() }
    }

    /// With so many micro-batches, on one lane; none where they do not divide the mini-batch.
    pub fn divided(&self, m: u64) -> Option<Inputs> {
        let inputs = Inputs { micro_batches: u32::try_from(m).ok()?, ..self.0.clone() };
        inputs.samples().is_some().then_some(inputs)
    }

    /// Samples of a mini-batch.
    pub fn mini_batch(&self) -> u64 {
        self.0.mini_batch
    }

    /// Of the plan.
    pub fn schedule(&self) -> ScheduleKind {
        self.0.schedule
    }
}

impl Curves {
    /// Devices of each lane: a speed-up is a share of all of them.
    pub fn copies(&self) -> f64 {
        let of = |Key(i): &Key| f64::from(i.rest.data_parallel.replicas) * f64::from(i.rest.tensor);
        self.key.as_ref().map_or(1.0, of)
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
    fn whatever_takes_time_starts_the_curves_anew() {
        let inputs = EXAMPLES[0].inputs();
        let same = |change: &dyn Fn(&mut Inputs)| {
            let mut other = inputs.clone();
            change(&mut other);
            Key::of(&inputs) == Key::of(&other)
        };
        assert!(same(&|i| i.cuts[0] += 1) && same(&|i| i.micro_batches *= 2));
        assert!(same(&|i| i.rest.steps += 1) && same(&|i| i.rest.seed += 1));
        assert!(!same(&|i| i.rest.training.precision = pipewright_core::plan::Precision::Bf16));
        assert!(!same(&|i| i.rest.data_parallel = DataParallel::ddp(4)));
        assert!(!same(&|i| i.rest.tensor = 2) && !same(&|i| i.mini_batch *= 2));
    }

    /// A point is of the plan with these replicas, beside one process that has none.
    #[test]
    fn points_have_the_replicas_of_the_plan() {
        let mut inputs = EXAMPLES[0].inputs();
        inputs.rest.data_parallel = DataParallel::ddp(4);
        let key = Key::of(&inputs);
        assert_eq!(key.alone().ranks(), 1);
        let most = inputs.mini_batch / 4;
        assert_eq!(key.divided(most).unwrap().samples(), Some(1));
        assert_eq!(key.divided(2 * most), None);
        assert_eq!(key.divided(1).unwrap().ranks(), 4);
        let curves = Curves { key: Some(key), ..Curves::default() };
        assert_eq!(curves.copies(), 4.0);
    }

    #[test]
    fn published_points_belong_to_their_experiment_only() {
        assert_eq!(published(&EXAMPLES[1].inputs()).len(), 5);
        assert!(published(&EXAMPLES[0].inputs()).is_empty());
    }
}
