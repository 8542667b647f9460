//! Replicas that divide gradients (ZeRO-2): with one micro-batch they have the bits of replicas that keep everything,
//! with more of them, whose sums are made in another order, losses within [`TOLERANCE`].

use super::zero::{GPT, STEPS, TOLERANCE, base, file, run};
use crate::common::{draft, losses, mpirun_in, runner_in, scratch};
use pipewright_core::plan::{DataParallel, Draft, Plan, Precision};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use std::path::Path;

fn dividing(draft: &Draft, zero: u8) -> Draft {
    let mut draft = draft.clone();
    draft.data_parallel.zero = zero;
    draft
}

fn close(what: &str, found: &[String], expected: &[String]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let [found, expected] = [found, expected].map(|text| text.parse::<f64>().unwrap());
        assert!((found / expected - 1.0).abs() < TOLERANCE, "{what}: {found}, {expected}");
    }
}

/// Memory is less than with whole gradients; the losses of all steps.
fn nearly_the_same(dir: &Path, name: &str, draft: &Draft) {
    let [first, second] = [1, 2].map(|zero| dividing(draft, zero).plan().unwrap().0);
    let pairs = first.prediction.arena.iter().zip(&second.prediction.arena);
    let pairs: Vec<_> = pairs.collect();
    assert!(pairs.iter().all(|(first, second)| second <= first), "{name}: {pairs:?}");
    assert!(pairs.iter().any(|(first, second)| second < first), "{name}: {pairs:?}");
    let expected = run(dir, &format!("{name}-whole"), draft.clone()).0;
    let found = run(dir, &format!("{name}-zero"), dividing(draft, 2)).0;
    close(name, &found, &expected);
}

#[test]
fn one_micro_batch_has_the_bits_of_whole_replicas() {
    let dir = scratch("zero2-bits");
    let adamw = "adamw:lr=0.003,weight_decay=0.1";
    for (name, optimizer, replicas, bucket) in [
        ("momentum", "sgd:lr=0.05,weight_decay=0.01", 2, 25 << 20),
        ("nothing", "sgd:lr=0.05,momentum=0", 2, 5000),
        ("adamw", adamw, 2, 9000),
        ("adamw-4", adamw, 4, 5000),
        ("adamw-8", adamw, 8, 1),
    ] {
        let mut draft = base(1, replicas, ScheduleKind::OneFOneB);
        (draft.optimizer, draft.micro_batches) = (optimizer.parse().unwrap(), 1);
        draft.data_parallel.bucket = Bytes(bucket);
        let expected = run(&dir, &format!("{name}-whole"), draft.clone());
        let found = run(&dir, &format!("{name}-zero"), dividing(&draft, 2));
        assert_eq!(found.0, expected.0, "{name}: losses");
        assert!(found.1 == expected.1, "{name}: a checkpoint of other bits");
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Split backward passes, several stages a lane, updates under way.
#[test]
fn schedules_sum_every_micro_batch() {
    let dir = scratch("zero2-schedules");
    for (kind, stages, replicas) in [
        (ScheduleKind::OneFOneB, 1, 2),
        (ScheduleKind::OneFOneB, 2, 4),
        (ScheduleKind::GPipe, 2, 2),
        (ScheduleKind::ZbH1, 2, 2),
        (ScheduleKind::Interleaved { chunks: 2 }, 4, 2),
        (ScheduleKind::ZbV, 4, 2),
        (ScheduleKind::PipeDream, 2, 2),
        (ScheduleKind::PipeDream2Bw, 2, 2),
    ] {
        let mut draft = base(stages, replicas, kind);
        draft.optimizer = "adamw:lr=0.003".parse().unwrap();
        draft.data_parallel.bucket = Bytes(6000);
        nearly_the_same(&dir, &format!("{kind}-{stages}").replace(':', "-"), &draft);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Norms of parts, skipped steps, activations that are computed again, tied tables, tensor groups.
#[test]
fn training_features_go_with_divided_gradients() {
    let dir = scratch("zero2-features");
    let mut clipped = base(2, 2, ScheduleKind::OneFOneB);
    clipped.optimizer = "adamw:lr=0.003".parse().unwrap();
    clipped.data_parallel.bucket = Bytes(6000);
    clipped.training.clip_norm = Some(0.05);
    clipped.training.skip_nonfinite = Some(3);
    nearly_the_same(&dir, "clipped", &clipped);
    clipped.training.precision = Precision::Bf16;
    nearly_the_same(&dir, "bf16", &clipped);
    for (name, tensor, stages, replicas) in [("t1p2d2", 1, 2, 2), ("t2p1d4", 2, 1, 4)] {
        let mut draft = draft(GPT.parse().unwrap(), stages);
        (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 2, STEPS);
        (draft.tensor, draft.data_parallel) = (tensor, DataParallel::ddp(replicas));
        draft.data_parallel.bucket = Bytes(40_000);
        draft.optimizer = "adamw:lr=0.003".parse().unwrap();
        draft.training.clip_norm = Some(1.0);
        nearly_the_same(&dir, name, &draft);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// In f16 a step whose gradients overflow is skipped, and leaves nothing in any part.
#[test]
fn skipped_steps_leave_no_gradients() {
    let dir = scratch("zero2-skipped");
    let mut draft = base(1, 2, ScheduleKind::OneFOneB);
    (draft.optimizer, draft.micro_batches) = ("adamw:lr=0.003".parse().unwrap(), 1);
    draft.training.precision = Precision::F16;
    let expected = run(&dir, "whole", draft.clone());
    let found = run(&dir, "zero", dividing(&draft, 2));
    assert_eq!(found.0, expected.0);
    assert!(found.1 == expected.1, "a checkpoint of other bits");
    std::fs::remove_dir_all(dir).ok();
}

/// Where a layer is most of the parameters nothing is saved, and that is said.
#[test]
fn whole_gradients_are_said() {
    let dir = scratch("zero2-whole");
    let says = |model: &str, stages: &str| {
        let args = ["plan", "--model", model, "--cluster", "laptop", "--mini-batch", "8"];
        let more = ["--stages", stages, "--schedule", "1f1b", "--micro-batches", "2"];
        let rest = ["--replicas", "2", "--optimizer", "adamw", "--zero", "2", "-o", "plan.json"];
        runner_in(&dir, &[&args[..], &more, &rest].concat()).done();
        runner_in(&dir, &["show", "plan.json"]).done().stdout.clone()
    };
    let whole = says("digits-cnn", "1");
    assert!(whole.contains("zero 2: gradients stay whole, ") && whole.contains("; a rank keeps "));
    assert!(says("fc32:64", "1").contains("zero 2: a rank keeps "));
    std::fs::remove_dir_all(dir).ok();
}

/// Processes train what threads train, and what they save every other division goes on from.
#[test]
fn processes_and_checkpoints() {
    let dir = scratch("zero2-mpi");
    let mut draft = base(2, 2, ScheduleKind::ZbH1);
    draft.optimizer = "adamw:lr=0.003".parse().unwrap();
    draft.data_parallel.bucket = Bytes(6000);
    let (whole, plan): (String, Plan) = file(&dir, "whole", draft.clone());
    let (zero, _) = file(&dir, "zero", dividing(&draft, 2));
    runner_in(&dir, &[&whole, "--out", "expected"]).done();
    let expected = losses(&dir.join("expected"));
    for (at, then) in [&whole, &zero].into_iter().enumerate() {
        let out = format!("mpi-{at}");
        let args = ["--save-every", "100", "--check-replicas", "2", "--out", &out];
        let first = [&[zero.as_str(), "--steps", "3"][..], &args].concat();
        let Some(ended) = mpirun_in(&dir, plan.ranks(), &first) else { return };
        ended.done();
        runner_in(&dir, &[then, "--save-every", "100", "--out", &out, "--resume", "latest"]).done();
        close(then, &losses(&dir.join(&out)), &expected);
    }
    std::fs::remove_dir_all(dir).ok();
}
