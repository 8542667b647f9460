//! DualPipe and Chimera hold two copies of every stage, each of which adds up the gradients of its
//! own micro-batches before the two are added. So their weights are not those of one stage, but to the
//! last bit those of two replicas of one stage, which divide the mini-batch alike.
//!
//! On PyTorch's own networks, first weights, data and optimizers (tests/data/golden/train).

use crate::common::bits::Trained;
use crate::common::golden::{Golden, NAMES};
use crate::common::scratch;
use pipewright_core::plan::Plan;
use pipewright_core::schedule::{Placement, ScheduleKind};
use std::path::Path;

const MICRO_BATCHES: u32 = 4;
const STEPS: u64 = 10;

/// The bits of all weights after so many steps. Running statistics are left out: each copy of a stage has
/// seen its own micro-batches.
fn weights(dir: &Path, golden: &Golden, mut plan: Plan) -> Vec<(String, Vec<u32>)> {
    plan.steps = STEPS;
    let trained = Trained::over_threads(dir, &plan);
    let weights = golden.graph.params().iter().filter(|param| param.trainable);
    weights.map(|param| (param.name.clone(), trained.tensors[&param.name].clone())).collect()
}

#[test]
fn weights_are_those_of_two_replicas() {
    let dir = scratch("two-copies");
    let mut tried = 0;
    for name in NAMES {
        let golden = Golden::open(name);
        let train = |kind, stages, micro_batches, replicas| {
            weights(&dir, &golden, golden.plan(kind, stages, micro_batches, replicas))
        };
        let expected = train(ScheduleKind::GPipe, 1, MICRO_BATCHES / 2, 2);
        let in_one_order = train(ScheduleKind::GPipe, 1, MICRO_BATCHES, 1);
        assert_ne!(expected, in_one_order, "{name}: sums in another order that no bit shows");
        let two_way = |kind: &ScheduleKind| kind.placement() == Placement::TwoWay;
        for kind in ScheduleKind::ALL.into_iter().filter(two_way) {
            for lanes in [2, 4] {
                if kind.generate(lanes, MICRO_BATCHES).is_err() {
                    continue;
                }
                let found = train(kind, lanes, MICRO_BATCHES, 1);
                for ((tensor, found), (_, expected)) in found.iter().zip(&expected) {
                    assert_eq!(found, expected, "{name}, {kind} on {lanes} lanes: {tensor}");
                }
                tried += 1;
            }
        }
    }
    assert!(tried >= 3 * NAMES.len(), "{tried}");
    std::fs::remove_dir_all(dir).ok();
}
