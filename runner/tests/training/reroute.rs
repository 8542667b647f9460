//! Plans that go on without some ranks train what the whole plan trains.
//!
//! A sample sees the same, so before the first update losses differ by rounding in f64 alone. Hosts
//! add up their guests' gradients with their own, so later ones differ by what rounding in f32 becomes. To
//! the last bit the same is the training by threads and by processes where two ranks sum at most: more of
//! them add up in an order of their transport's own.

use crate::common::bits::Trained;
use crate::common::{digits, draft, draft_of, networks, result, scratch};
use pipewright_core::compress::{CodecKind, Reduction};
use pipewright_core::elastic::{Place, Rerouted};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{BatchNorm, DataParallel, Draft, Plan};
use pipewright_core::predict::predict;
use pipewright_core::schedule::ScheduleKind;
use std::path::Path;

/// Largest relative difference of a loss to that of the whole plan.
const TOLERANCE: f64 = 1e-5;

/// `lanes` x `replicas`, trained slowly enough that rounding does not grow.
fn digits_on(schedule: ScheduleKind, lanes: u32, replicas: u32) -> Draft {
    let mut draft = draft(Preset::DigitsCnn, schedule.placement().stages(lanes));
    (draft.data, draft.schedule, draft.steps) = (digits(), schedule, 8);
    draft.micro_batches = 2 * lanes;
    draft.mini_batch = u64::from(draft.micro_batches * replicas) * 4;
    draft.data_parallel = DataParallel::ddp(replicas);
    draft.optimizer = "sgd:lr=0.003,momentum=0.9".parse().unwrap();
    draft
}

fn without(plan: &Plan, lost: &[u32]) -> Rerouted {
    let place = |rank: &u32| {
        let (lane, replica) = plan.mesh().place(*rank);
        Place { lane, replica }
    };
    let lost: Vec<Place> = lost.iter().map(place).collect();
    Rerouted::of(plan, &predict(plan).unwrap(), &lost).unwrap_or_else(|e| panic!("{lost:?}: {e}"))
}

/// What `whole` trained, and a plan that goes on without some of its ranks.
#[track_caller]
fn trains_alike(dir: &Path, what: &str, whole: &Trained, plan: &Plan, tolerance: f64) -> Trained {
    let found = Trained::over_threads(dir, plan);
    found.is_near(what, whole, tolerance);
    let first = |trained: &Trained| trained.losses[0].parse::<f64>().unwrap();
    let off = (first(&found) / first(whole) - 1.0).abs();
    assert!(off < 1e-14, "{what}, before the first update: {off:e}");
    let planned: Vec<u64> = plan.prediction.arena.iter().map(|bytes| bytes.0).collect();
    assert_eq!(result(&dir.join("trained"))["arena"], serde_json::json!(planned), "{what}");
    found
}

/// Trains a plan whole, and without each of some sets of ranks.
#[track_caller]
fn check(name: &str, draft: Draft, all: &[&[u32]], tolerance: f64) {
    let dir = scratch(&format!("reroute-{name}"));
    let plan = draft.plan().unwrap().0;
    let whole = Trained::over_threads(&dir, &plan);
    for lost in all {
        let what = format!("{name} without {lost:?}");
        trains_alike(&dir, &what, &whole, &without(&plan, lost).plan, tolerance);
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn each_rank_of_two_by_two_by_threads_and_processes() {
    let dir = scratch("reroute-2x2");
    let plan = digits_on(ScheduleKind::OneFOneB, 2, 2).plan().unwrap().0;
    let whole = Trained::over_threads(&dir, &plan);
    for lost in [&[0][..], &[1], &[2], &[3], &[0, 3], &[1, 3]] {
        let what = format!("without {lost:?}");
        let rerouted = without(&plan, lost).plan;
        let found = trains_alike(&dir, &what, &whole, &rerouted, TOLERANCE);
        if let Some(processes) = Trained::over_mpi(&dir, &rerouted) {
            processes.is(&format!("{what}, mpirun"), &found);
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn several_ranks_of_more_replicas_and_stages() {
    let draft = digits_on(ScheduleKind::OneFOneB, 2, 3);
    check("2x3", draft, &[&[0], &[4], &[1, 5], &[3, 4], &[0, 1, 3, 5]], TOLERANCE);
    let draft = digits_on(ScheduleKind::GPipe, 4, 2);
    check("4x2", draft, &[&[0], &[3], &[5], &[6], &[1, 2, 5, 6]], TOLERANCE);
}

#[test]
fn schedules_with_split_passes_chunks_and_two_directions() {
    for kind in [
        ScheduleKind::ZbH1,
        ScheduleKind::Interleaved { chunks: 2 },
        ScheduleKind::ZbV,
        ScheduleKind::Hanayo { waves: 1 },
        ScheduleKind::Chimera,
    ] {
        let name = kind.to_string().replace([':', '=', ','], "-");
        check(&name, digits_on(kind, 2, 2), &[&[1], &[2]], TOLERANCE);
    }
}

/// Dropout, statistics of batches, clipping, a table that two stages share, running statistics of its own
/// on each rank.
#[test]
fn features_that_look_at_samples_or_at_all_ranks() {
    for graph in [networks::images(), networks::sequence()] {
        let name = graph.name().to_owned();
        let mut draft = draft_of(graph, 2);
        (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 2, 6);
        draft.schedule = ScheduleKind::OneFOneB;
        draft.data_parallel = DataParallel::ddp(2);
        draft.optimizer = "sgd:lr=0.01,momentum=0.9,weight_decay=0.001".parse().unwrap();
        draft.training.clip_norm = Some(0.5);
        draft.training.batch_norm = BatchNorm::Deferred;
        check(&name, draft, &[&[0], &[3]], TOLERANCE);
    }
}

/// What codecs round depends on who adds up what.
#[test]
fn encoded_gradients() {
    let mut draft = digits_on(ScheduleKind::OneFOneB, 2, 3);
    draft.communication.gradients = Reduction::of(CodecKind::Bf16).with_feedback();
    check("encoded", draft, &[&[2], &[3, 4]], 1e-3);
}
