//! Comparison of trained runs to the last bit, and the schedules that can have the same bits.

use super::{losses, mpirun_in, runner_in, tensors, write};
use pipewright_core::plan::Plan;
use pipewright_core::schedule::{Action, ActionKind, Schedule};
use std::collections::BTreeMap;
use std::path::Path;

const ARGS: [&str; 6] = ["plan.json", "--out", "trained", "--overwrite", "--save-every", "0"];

/// The losses of a run, and what is in the checkpoint that it saved at its end.
#[derive(Clone, PartialEq)]
pub struct Trained {
    /// Of each step, as text: equal texts are equal bits.
    pub losses: Vec<String>,
    /// Weights, running statistics and the optimizer's state: bits by name.
    pub tensors: BTreeMap<String, Vec<u32>>,
}

impl Trained {
    /// By a plan with threads.
    #[track_caller]
    pub fn over_threads(dir: &Path, plan: &Plan) -> Self {
        write(dir, "plan.json", plan.to_json());
        runner_in(dir, &ARGS).done();
        Self::read(&dir.join("trained"))
    }

    /// By a plan with processes; `None` where there is no MPI.
    #[track_caller]
    pub fn over_mpi(dir: &Path, plan: &Plan) -> Option<Self> {
        write(dir, "plan.json", plan.to_json());
        mpirun_in(dir, plan.ranks(), &ARGS)?.done();
        Some(Self::read(&dir.join("trained")))
    }

    fn read(out: &Path) -> Self {
        let losses = losses(out);
        let tensors = tensors(&out.join(format!("checkpoints/step-{}", losses.len())));
        Self { losses, tensors }
    }

    /// The same text of every loss, the same bits of every tensor.
    #[track_caller]
    pub fn is(&self, what: &str, expected: &Self) {
        assert_eq!(self.losses, expected.losses, "{what}");
        self.has_tensors_of(what, expected);
    }

    /// The same bits of every tensor.
    #[track_caller]
    pub fn has_tensors_of(&self, what: &str, expected: &Self) {
        assert!(
            self.tensors.keys().eq(expected.tensors.keys()),
            "{what}: {:?}",
            self.tensors.keys()
        );
        for (name, bits) in &self.tensors {
            let off = bits.iter().zip(&expected.tensors[name]).filter(|(a, b)| a != b).count();
            assert_eq!(off, 0, "{what}: so many of {} elements of {name} differ", bits.len());
        }
    }

    /// All losses within `most`, relatively.
    #[track_caller]
    pub fn is_near(&self, what: &str, expected: &Self, most: f64) {
        assert_eq!(self.losses.len(), expected.losses.len(), "{what}");
        for (step, (found, expected)) in self.losses.iter().zip(&expected.losses).enumerate() {
            let (found, expected): (f64, f64) = (found.parse().unwrap(), expected.parse().unwrap());
            let off = (found / expected - 1.0).abs();
            assert!(off <= most, "{what}, step {step}: {found} instead of {expected}");
        }
    }
}

/// In which order a stage adds the gradients of micro-batches, if all stages do in the same one.
pub fn order_of_sums(schedule: &Schedule) -> Option<Vec<u32>> {
    let adds = |a: &&Action| matches!(a.kind, ActionKind::Backward | ActionKind::BackwardWeight);
    let of_stage = |stage: u32| -> Vec<Vec<u32>> {
        let of_lane = |lane: &Vec<Action>| -> Vec<u32> {
            let mine = lane.iter().filter(adds).filter(|a| a.stage.0 == stage);
            mine.map(|a| a.micro_batch.0).collect()
        };
        schedule.lanes.iter().map(of_lane).filter(|order| !order.is_empty()).collect()
    };
    let mut orders: Vec<Vec<u32>> = (0..schedule.stages()).flat_map(of_stage).collect();
    orders.dedup();
    match &orders[..] {
        [_] => orders.pop(),
        _ => None,
    }
}
