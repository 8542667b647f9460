//! Every schedule that a plan can hold is executed: backward passes split in two, several stages a
//! rank. What is trained is what one stage trains.

mod common;

use common::{draft, losses, mpirun_in, runner_in, scratch, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::Optimizer;
use pipewright_core::schedule::{ActionKind, Schedule, ScheduleKind, Updates};
use std::path::Path;

const MICRO_BATCHES: u32 = 8;

/// Writes a plan on two or four ranks; `None` for a schedule that trains something else.
fn plan(dir: &Path, kind: ScheduleKind) -> Option<(String, Schedule)> {
    let chunks = kind.placement().stages(4) / 4;
    let stages = kind.placement().stages(if chunks > 1 { 2 } else { 4 });
    let schedule = kind.generate(stages, MICRO_BATCHES).ok()?;
    if schedule.updates != Updates::Synchronous {
        return None;
    }
    let mut draft = draft(Preset::Fc32 { width: 32 }, stages);
    (draft.schedule, draft.mini_batch, draft.micro_batches) = (kind, 32, MICRO_BATCHES);
    draft.steps = 10;
    draft.optimizer =
        Optimizer::Sgd { learning_rate: 0.002, momentum: 0.9, weight_decay: 0.0, nesterov: false };
    let name = format!("{}.json", kind.to_string().replace(':', "-"));
    write(dir, &name, draft.plan().unwrap().0.to_json());
    Some((name, schedule))
}

/// Whether every stage adds the gradients of the micro-batches in their order.
fn adds_in_order(schedule: &Schedule) -> bool {
    let adds = |kind| matches!(kind, ActionKind::Backward | ActionKind::BackwardWeight);
    schedule.lanes.iter().all(|lane| {
        (0..schedule.stages()).all(|stage| {
            let mine = lane.iter().filter(|a| a.stage.0 == stage && adds(a.kind));
            mine.map(|a| a.micro_batch).is_sorted()
        })
    })
}

#[test]
fn trains_what_one_stage_trains() {
    let dir = scratch("every-schedule");
    let mut lone = draft(Preset::Fc32 { width: 32 }, 1);
    (lone.mini_batch, lone.micro_batches, lone.steps) = (32, MICRO_BATCHES, 10);
    lone.optimizer =
        Optimizer::Sgd { learning_rate: 0.002, momentum: 0.9, weight_decay: 0.0, nesterov: false };
    write(&dir, "lone.json", lone.plan().unwrap().0.to_json());
    runner_in(&dir, &["lone.json", "--out", "lone"]).done();
    let expected = losses(&dir.join("lone"));
    let mut tried = 0;
    for kind in ScheduleKind::ALL {
        let Some((plan, schedule)) = plan(&dir, kind) else { continue };
        runner_in(&dir, &[&plan, "--out", "threads", "--overwrite"]).done();
        compare(kind, &schedule, &losses(&dir.join("threads")), &expected);
        let ranks = schedule.lanes.len() as u32;
        if let Some(ended) = mpirun_in(&dir, ranks, &[&plan, "--out", "mpi", "--overwrite"]) {
            ended.done();
            assert_eq!(losses(&dir.join("mpi")), losses(&dir.join("threads")), "{kind}");
        }
        tried += 1;
    }
    assert!(tried >= 14, "{tried}");
    std::fs::remove_dir_all(dir).ok();
}

/// The same text where sums are in the same order; else a rounding apart: two copies of a stage
/// each add their own micro-batches first.
fn compare(kind: ScheduleKind, schedule: &Schedule, found: &[String], expected: &[String]) {
    if schedule.placement().is_some() && adds_in_order(schedule) {
        assert_eq!(found, expected, "{kind}");
        return;
    }
    for (found, expected) in found.iter().zip(expected) {
        let (found, expected): (f64, f64) = (found.parse().unwrap(), expected.parse().unwrap());
        assert!((found / expected - 1.0).abs() < 1e-5, "{kind}: {found} instead of {expected}");
    }
}
