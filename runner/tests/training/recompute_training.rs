//! Recomputation changes what is kept and nothing else: losses and all tensors of the checkpoint,
//! weights, running statistics and the optimizer's state, have the bits of the same plan without it,
//! and arenas have the planned size (which `allocations/arena.rs` holds for the plans of this file too).

use crate::common::bits::Trained;
use crate::common::recompute::{at_random, just_in_time, recomputing};
use crate::common::{draft, draft_of, networks, result, scratch};
use pipewright_core::graph::Graph;
use pipewright_core::graph::autodiff::TrainingGraph;
use pipewright_core::graph::presets::Preset;
use pipewright_core::ids::StageId;
use pipewright_core::plan::{BatchNorm, DataParallel, Draft, Plan, Precision};
use pipewright_core::predict::{fit, predict};
use pipewright_core::schedule::{ScheduleKind, Updates};
use pipewright_core::units::Bytes;
use std::path::Path;

const STEPS: u64 = 4;

fn small(mut draft: Draft, schedule: ScheduleKind) -> Draft {
    (draft.schedule, draft.steps) = (schedule, STEPS);
    (draft.mini_batch, draft.micro_batches) = (16, 8);
    draft.optimizer = "sgd:lr=0.02,momentum=0.9".parse().unwrap();
    draft
}

fn of(graph: fn() -> Graph, kind: ScheduleKind, change: fn(&mut Draft)) -> Plan {
    let chunks = kind.placement().stages(1);
    let stages = if chunks > 1 { 2 * chunks } else { 4 };
    let mut draft = small(draft_of(graph(), stages), kind);
    change(&mut draft);
    draft.plan().unwrap_or_else(|e| panic!("{kind}: {e}")).0
}

/// The plan with each way to recompute against the plan without.
fn changes_nothing(dir: &Path, what: &str, plan: &Plan) {
    let expected = Trained::over_threads(dir, plan);
    let least = recomputing(plan, just_in_time);
    for (name, plan) in [("just in time", least), ("at random", recomputing(plan, at_random(7)))] {
        let what = format!("{what}, {name}");
        Trained::over_threads(dir, &plan).is(&what, &expected);
        if plan.lanes() == 2
            && let Some(found) = Trained::over_mpi(dir, &plan)
        {
            found.is(&format!("{what}, mpirun"), &expected);
        }
    }
}

/// Under every schedule that a plan can hold.
fn under_every_schedule(name: &str, graph: fn() -> Graph, change: fn(&mut Draft)) {
    let dir = scratch(&format!("recompute-{name}"));
    let tied = graph().nodes().iter().any(|node| node.op.name() == "tied_linear");
    for kind in ScheduleKind::ALL {
        if tied && kind.updates() != Updates::Synchronous {
            // No such plan exists.
            continue;
        }
        changes_nothing(&dir, &format!("{name}, {kind}"), &of(graph, kind, change));
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Convolutions, every normalisation, dropout, values with readers in several stages.
#[test]
fn images() {
    under_every_schedule("images", networks::images, |_| {});
}

/// A transformer with dropout whose first and last stage share a table.
#[test]
fn sequence() {
    under_every_schedule("sequence", networks::sequence, |_| {});
}

/// Learnt tensors and gradients of several inputs.
#[test]
fn values() {
    under_every_schedule("values", networks::values, |draft| {
        draft.optimizer = "sgd:lr=0.001".parse().unwrap();
    });
}

/// Running statistics of the mini-batch, half the bytes, clipping.
#[test]
fn features() {
    let change = |draft: &mut Draft| {
        draft.training.batch_norm = BatchNorm::Deferred;
        draft.training.precision = Precision::Bf16;
        draft.training.clip_norm = Some(0.5);
    };
    let dir = scratch("recompute-features");
    for kind in ScheduleKind::ALL {
        if kind.updates() == Updates::Synchronous {
            changes_nothing(
                &dir,
                &format!("features, {kind}"),
                &of(networks::images, kind, change),
            );
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Small buckets, so that gradients are summed in several pieces while later kernels run.
#[test]
fn replicas() {
    let change = |draft: &mut Draft| {
        draft.data_parallel = DataParallel::ddp(2);
        draft.data_parallel.bucket.0 = 512;
        draft.mini_batch = 32;
    };
    let dir = scratch("recompute-replicas");
    for kind in [ScheduleKind::OneFOneB, ScheduleKind::ZbH1, ScheduleKind::DualPipe] {
        changes_nothing(&dir, &format!("replicas, {kind}"), &of(networks::images, kind, change));
    }
    std::fs::remove_dir_all(dir).ok();
}

/// A network of the presets, deep enough that its stages have several layers each.
#[test]
fn digits() {
    let dir = scratch("recompute-digits");
    for kind in [ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
        let plan = small(draft(Preset::DigitsCnn, 4), kind).plan().unwrap().0;
        changes_nothing(&dir, &format!("digits, {kind}"), &plan);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Random sequences of small networks, more of them than whole runs would allow.
#[test]
fn every_random_sequence() {
    let dir = scratch("recompute-random");
    let graphs: [fn() -> Graph; 4] =
        [networks::images, networks::sequence, networks::values, networks::pixels];
    for graph in graphs {
        for kind in [ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
            let plan = small(draft_of(graph(), 2), kind).plan().unwrap().0;
            let expected = Trained::over_threads(&dir, &plan);
            for seed in 0..6 {
                let other = recomputing(&plan, at_random(seed));
                let what = format!("{}, {kind}, seed {seed}", graph().name());
                Trained::over_threads(&dir, &other).is(&what, &expected);
            }
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Every lane of a transformer in half of the memory that the first one would take, by processes as
/// well: the fewer micro-batches 1F1B has in flight on a lane, the more it can keep of each.
#[test]
fn a_plan_made_to_fit_trains_the_same() {
    let dir = scratch("recompute-fitted");
    let network = "transformer:layers=8,hidden=32,heads=2,sequence=32,vocabulary=60";
    let mut plan =
        small(draft(network.parse().unwrap(), 4), ScheduleKind::OneFOneB).plan().unwrap().0;
    let most = *plan.prediction.arena.iter().max().unwrap();
    plan.cluster.device.memory = Bytes(most.0 / 2);
    let (fitted, prediction) = fit(&plan, 200).unwrap();
    assert!(plan.prediction.arena.iter().any(|bytes| *bytes > plan.cluster.device.memory));
    assert!(prediction.programs.iter().all(|program| program.arena.0 <= most.0 / 2));
    let kept = prediction.programs.iter().map(|program| program.stages[0].slots.bytes);
    let kept: Vec<Bytes> = kept.collect();
    // Equal stages, three and two micro-batches in flight.
    assert!(kept[1] < kept[2], "{kept:?}");
    let again: Vec<usize> = (0..4).map(|stage| prediction.again(StageId(stage)).0).collect();
    assert!(again[0] > 0 && again[1] > 0 && again[3] == 0, "{again:?}");
    let expected = Trained::over_threads(&dir, &plan);
    Trained::over_threads(&dir, &fitted).is("fitted", &expected);
    let planned: Vec<u64> = fitted.prediction.arena.iter().map(|bytes| bytes.0).collect();
    assert_eq!(result(&dir.join("trained"))["arena"], serde_json::json!(planned));
    if let Some(found) = Trained::over_mpi(&dir, &fitted) {
        found.is("fitted, mpirun", &expected);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Kernels that run again, and bytes of all slots.
fn repeated(plan: &Plan) -> (usize, u64) {
    let programs = predict(plan).unwrap().programs;
    let stages = || programs.iter().flat_map(|program| &program.stages);
    let again = stages().flat_map(|stage| &stage.kernels).filter(|kernel| kernel.again);
    (again.count(), stages().map(|stage| stage.slots.total().0).sum())
}

/// What the tests above compare is not the same program twice.
#[test]
fn less_is_kept_and_more_is_computed() {
    for kind in [ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
        let plan = of(networks::images, kind, |_| {});
        let least = recomputing(&plan, just_in_time);
        let of_graph =
            |_: usize, graph: &TrainingGraph| (0..graph.computations.len() as u32).collect();
        let same = recomputing(&plan, of_graph);
        let length = |plan: &Plan| plan.recompute.iter().map(|s| s.0.len()).sum::<usize>();
        let (none, kept) = repeated(&plan);
        assert_eq!((none, repeated(&same)), (0, (0, kept)), "{kind}");
        let (again, rest) = repeated(&least);
        assert_eq!(again, length(&least) - length(&same), "{kind}");
        assert!(again > 20 && (rest as f64) < 0.8 * kept as f64, "{kind}: {rest} of {kept}");
        assert!(least.prediction.step_ns > plan.prediction.step_ns, "{kind}");
    }
}
