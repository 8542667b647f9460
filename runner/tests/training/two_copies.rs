//! DualPipe and Chimera hold two copies of every stage, each of which adds up the gradients of its
//! own micro-batches before the two are added. So their weights are not those of one stage to the
//! last bit: after ten steps no weight is further off than two millionths of its tensor's largest. The
//! furthest is a bias of a norm, 1.4 off where vectors of AVX2 add up, less than one on other processors.
//!
//! That depends on the training: where a gradient is nearly zero, or one step decides the next, any
//! rounding grows. These are PyTorch's own networks, first weights, data and optimizers
//! (tests/data/golden/train).

use crate::common::bits::Trained;
use crate::common::golden::{Golden, NAMES, is_key_bias};
use crate::common::scratch;
use pipewright_core::plan::Plan;
use pipewright_core::schedule::{Placement, ScheduleKind};
use std::path::Path;

const MICRO_BATCHES: u32 = 4;
const STEPS: u64 = 10;

/// Largest difference of a weight, as a share of its tensor's largest.
const TOLERANCE: f64 = 2e-6;

fn trained(dir: &Path, mut plan: Plan) -> Trained {
    plan.steps = STEPS;
    Trained::over_threads(dir, &plan)
}

/// The largest difference of a weight as a share of its tensor's largest, and where it is. Running
/// statistics are left out: each copy of a stage has seen its own micro-batches.
fn worst<'a>(golden: &'a Golden, found: &Trained, expected: &Trained) -> (f64, &'a str) {
    let float = |bits: &u32| f64::from(f32::from_bits(*bits));
    let mut worst = (0.0, "");
    for param in golden.graph.params().iter().filter(|param| param.trainable) {
        let (found, expected) = (&found.tensors[&param.name], &expected.tensors[&param.name]);
        let most = expected.iter().map(|w| float(w).abs()).fold(0.0, f64::max);
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            let off = (float(found) - float(expected)).abs() / most;
            assert!(off.is_finite(), "{}: {off}", param.name);
            if off > worst.0 && !is_key_bias(&param.name, index, param.elements() as usize) {
                worst = (off, &param.name);
            }
        }
    }
    worst
}

#[test]
fn weights_are_two_millionths_apart() {
    let dir = scratch("two-copies");
    let mut tried = 0;
    for name in NAMES {
        let golden = Golden::open(name);
        let plan = |kind, stages| golden.plan(kind, stages, MICRO_BATCHES, 1);
        let expected = trained(&dir, plan(ScheduleKind::GPipe, 1));
        let two_way = |kind: &ScheduleKind| kind.placement() == Placement::TwoWay;
        for kind in ScheduleKind::ALL.into_iter().filter(two_way) {
            for lanes in [2, 4] {
                if kind.generate(lanes, MICRO_BATCHES).is_err() {
                    continue;
                }
                let found = trained(&dir, plan(kind, lanes));
                let what = format!("{name}, {kind} on {lanes} lanes");
                let (off, tensor) = worst(&golden, &found, &expected);
                println!("{what}: {off:.1e} in {tensor}");
                assert!(off > 0.0, "{what}: sums in another order that no bit shows");
                assert!(off <= TOLERANCE, "{what}: {tensor} is {off:e} off");
                tried += 1;
            }
        }
    }
    assert!(tried >= 3 * NAMES.len(), "{tried}");
    std::fs::remove_dir_all(dir).ok();
}
