//! Replicas of a pipeline train what one pipeline trains: by all-reduce, through the first replica,
//! of one lane and of several, as threads and as processes.

use crate::common::{Ended, draft, losses, mpirun_in, result, runner_in, scratch, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{DataParallel, DataParallelMode, Draft};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use std::path::Path;

fn base(preset: Preset, stages: u32, micro_batches: u32) -> Draft {
    let mut draft = draft(preset, stages);
    draft.schedule = ScheduleKind::OneFOneB;
    (draft.mini_batch, draft.micro_batches, draft.steps) = (32, micro_batches, 8);
    draft
}

fn run(dir: &Path, name: &str, draft: Draft) -> Vec<f64> {
    let plan = draft.plan().unwrap().0;
    let file = format!("{name}.json");
    write(dir, &file, plan.to_json());
    let done = |ended: Ended, out: &str| -> Vec<f64> {
        ended.done();
        let found = result(&dir.join(out));
        assert_eq!(found["arena"].as_array().unwrap().len(), plan.ranks() as usize);
        losses(&dir.join(out)).iter().map(|loss| loss.parse().unwrap()).collect()
    };
    let threads = done(runner_in(dir, &[&file, "--out", name]), name);
    let out = format!("{name}-mpi");
    if let Some(ended) = mpirun_in(dir, plan.ranks(), &[&file, "--out", &out]) {
        close(&format!("{name}, mpirun"), &done(ended, &out), &threads);
    }
    threads
}

/// Sums over replicas are in another order than sums over micro-batches.
fn close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found / expected - 1.0).abs();
        assert!(off < 1e-5, "{what}, step {step}: {found} instead of {expected}");
    }
}

#[test]
fn replicas_train_what_one_pipeline_trains() {
    let dir = scratch("replicas");
    let preset = Preset::Fc32 { width: 32 };
    let lone = run(&dir, "lone", base(preset, 1, 4));
    for (name, stages, m, data_parallel) in [
        ("ddp-2", 1, 2, DataParallel::ddp(2)),
        ("ddp-4", 1, 1, DataParallel::ddp(4)),
        ("hybrid-2x2", 2, 2, DataParallel::ddp(2)),
        // Many buckets under way at a time.
        ("small-buckets", 2, 2, DataParallel { bucket: Bytes(1), ..DataParallel::ddp(2) }),
        ("dp", 1, 2, DataParallel { mode: DataParallelMode::Dp, ..DataParallel::ddp(2) }),
    ] {
        let mut draft = base(preset, stages, m);
        draft.data_parallel = data_parallel;
        close(name, &run(&dir, name, draft), &lone);
    }
    let wrong = runner_in(&dir, &["check", "hybrid-2x2.json", "--ranks", "3"]);
    wrong.refused(4, "needs 2 lanes x 2 replicas = 4 ranks, --ranks gave 3");
    let mut clipped = base(preset, 1, 4);
    clipped.training.clip_norm = Some(0.5);
    let lone_clipped = run(&dir, "lone-clipped", clipped);
    assert!((lone_clipped[7] / lone[7] - 1.0).abs() > 1e-3, "clipping changes something");
    let mut draft = base(preset, 2, 2);
    draft.training.clip_norm = Some(0.5);
    draft.data_parallel = DataParallel::ddp(2);
    close("clipped", &run(&dir, "clipped", draft), &lone_clipped);
    std::fs::remove_dir_all(dir).ok();
}

/// A split backward pass, several stages a lane, two copies of every stage: each with replicas.
#[test]
fn schedules_have_replicas() {
    let dir = scratch("replicated-schedules");
    let preset = Preset::Fc32 { width: 32 };
    let lone = run(&dir, "lone", base(preset, 1, 8));
    for (kind, stages) in [
        (ScheduleKind::ZbH1, 2),
        (ScheduleKind::Interleaved { chunks: 2 }, 4),
        (ScheduleKind::ZbV, 4),
        (ScheduleKind::Chimera, 2),
    ] {
        let mut draft = base(preset, stages, 4);
        draft.schedule = kind;
        draft.data_parallel = DataParallel::ddp(2);
        let name = kind.to_string().replace(':', "-");
        close(&name, &run(&dir, &name, draft), &lone);
    }
    std::fs::remove_dir_all(dir).ok();
}
