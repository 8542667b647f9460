//! From the third step on, a training step allocates nothing but the scratch of libraries, and that
//! is bounded whatever the micro-batch.
//!
//! `arena.rs` shows that the rank's own code allocates nothing at all. Here everything counts, on
//! every thread: packing buffers of `gemm`, made and freed in each product, and the blocks of
//! rayon's queues.
//! - No step allocates more than another, and none leaves anything behind, but for a buffer that
//!   each helping thread gets once.
//! - What is held at one time, beyond what is held between steps, is at most what one product packs
//!   for each thread that computes: a weight or the columns of a convolution, or [`DEPTH`] terms of a
//!   weight's gradient. The bound knows of parameters and not of micro-batches, and is held to with
//!   micro-batches of very different sizes.

use crate::allocator::of_all;
use crate::common::{draft, draft_of, networks, own_process};
use pipewright_core::graph::Param;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{BatchNorm, DataParallel, Draft, Plan, Precision};
use pipewright_core::predict::Prediction;
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::local::{LocalTransport, local};
use std::sync::Barrier;

/// What a product may pack besides a weight.
const BLOCK: u64 = 256 << 10;

/// Terms of each sum that `gemm` packs at one time, at most. It takes them from the ways of the first-level
/// cache, 512 where there are 8 and 1,024 up to 16: the sums over tokens and positions that make a
/// weight's gradient are longer.
const DEPTH: u64 = 1024;

/// What rayon's queues may take in a step when several threads compute: they grow by a block of
/// 1.5 KB now and then.
const QUEUES: u64 = 64 << 10;

/// What `gemm` keeps for each thread that multiplies: a buffer as large as the second-level cache.
/// A helping thread has it from its first product on, which may be in any step.
const KEPT: u64 = 4 << 20;

/// Steps before the steady state, and in it.
const STEPS: (u64, usize) = (2, 4);

/// What one step of all ranks took, in bytes.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// All allocations together.
    total: u64,
    /// Most at one time, beyond what was held before.
    most: u64,
    /// Held before.
    before: u64,
    /// Held after.
    after: u64,
}

/// Runs one rank; the one with a list fills it, while the others wait.
fn run_rank(
    (plan, prediction, data): (&Plan, &Prediction, &DataSet),
    (index, transport): (usize, LocalTransport),
    (threads, barrier): (usize, &Barrier),
    mut list: Option<&mut [Taken]>,
) {
    let (lane, _) = plan.mesh().place(index as u32);
    let program = &prediction.programs[lane.index()];
    let parts = (plan, &prediction.graph, program);
    let mut rank = Rank::new(parts, data, transport, threads);
    rank.connect(&prediction.groups).unwrap();
    for step in 0..STEPS.0 {
        rank.step(step).unwrap();
    }
    for i in 0..STEPS.1 {
        barrier.wait();
        let (before, total) = (of_all::held(), of_all::total());
        if list.is_some() {
            of_all::watch_most(before);
        }
        barrier.wait();
        rank.step(STEPS.0 + i as u64).unwrap();
        barrier.wait();
        if let Some(list) = &mut list {
            let (total, most) = (of_all::total() - total, of_all::most() - before);
            list[i] = Taken { total, most, before, after: of_all::held() };
        }
        barrier.wait();
    }
}

/// The steady steps of a plan, and the arenas of its ranks together.
fn steps(draft: Draft, threads: usize) -> ([Taken; STEPS.1], u64) {
    let (plan, prediction) = draft.plan().unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let handles = prediction.programs.iter().map(|p| p.handles).max().unwrap();
    let mut list = [Taken::default(); STEPS.1];
    let barrier = Barrier::new(plan.ranks() as usize);
    let all = (&plan, &prediction, &data);
    std::thread::scope(|scope| {
        let mut first = Some(&mut list[..]);
        for numbered in local(plan.ranks(), handles as usize).into_iter().enumerate() {
            let (list, barrier) = (first.take(), &barrier);
            scope.spawn(move || run_rank(all, numbered, (threads, barrier), list));
        }
    });
    (list, plan.prediction.arena.iter().map(|bytes| bytes.0).sum())
}

/// Most bytes that products with a parameter, or for its gradient, pack.
fn most_packed(param: &Param) -> u64 {
    let rows = param.shape[0];
    let columns = param.elements() / rows;
    // Vectors are in no product.
    let deep = if param.shape.len() > 1 { DEPTH * (rows + columns) } else { 0 };
    4 * deep.max(param.elements())
}

/// A network whose micro-batches grow, on so many ranks.
fn check(what: &str, micro_batches: &[u64], threads: usize, draft: impl Fn() -> Draft) {
    for &samples in micro_batches {
        let mut draft = draft();
        (draft.micro_batches, draft.schedule) = (2, ScheduleKind::OneFOneB);
        draft.mini_batch = samples * 2 * u64::from(draft.data_parallel.replicas);
        let graph = draft.model.graph().unwrap();
        let packed = graph.params().iter().map(most_packed).max().unwrap();
        let ranks = (draft.cuts.len() as u64 + 1) * u64::from(draft.data_parallel.replicas);
        let bound = ranks * threads as u64 * (packed + BLOCK);
        let (list, arenas) = steps(draft, threads);
        let kept = |step: &Taken| step.after.saturating_sub(step.before);
        let scratch = list.iter().map(|step| step.most - kept(step)).max().unwrap();
        let what = format!("{what}, {samples} samples, {threads} threads");
        println!(
            "{what}: arenas {arenas}, scratch {scratch} of {bound} allowed, {} a step",
            list[0].total
        );
        assert!(scratch <= bound, "{what}: {scratch} bytes at one time, {bound} allowed");
        let slack = if threads > 1 { QUEUES } else { 0 };
        let passing = list.map(|step| step.total - kept(&step));
        let more = passing.iter().max().unwrap() - passing.iter().min().unwrap();
        assert!(more <= slack, "{what}: steps differ by {more} bytes");
        let left = list[STEPS.1 - 1].after.saturating_sub(list[0].before);
        let helping = ranks * (threads as u64 - 1);
        assert!(left <= slack + helping * KEPT, "{what}: {left} bytes stay behind");
    }
}

/// The counters are of the whole process.
#[test]
fn steps_take_bounded_scratch_and_leave_nothing() {
    if !own_process::is_own([]) {
        return;
    }
    for threads in [1, 2] {
        for graph in networks::all() {
            check(graph.name(), &[2, 8, 32, 64], threads, || draft_of(graph.clone(), 2));
        }
        for (name, micro_batches) in [
            ("digits-cnn", &[2, 16, 64][..]),
            ("fc32:64", &[2, 16, 128]),
            ("resnet18:32", &[1, 4]),
            ("transformer:layers=2,hidden=64,heads=4,sequence=64,vocabulary=200,tied", &[1, 8, 64]),
            (
                "transformer:layers=2,hidden=64,heads=4,kv=2,sequence=64,vocabulary=200,gated",
                &[1, 16],
            ),
        ] {
            let preset: Preset = name.parse().unwrap();
            check(name, micro_batches, threads, || draft(preset, 2));
        }
        for graph in [networks::images(), networks::sequence()] {
            let what = format!("{}, replicas, clipped, deferred, bf16", graph.name());
            check(&what, &[2, 16], threads, || {
                let mut draft = draft_of(graph.clone(), 2);
                draft.data_parallel = DataParallel::ddp(2);
                draft.training.clip_norm = Some(1.0);
                draft.training.batch_norm = BatchNorm::Deferred;
                draft.training.precision = Precision::Bf16;
                draft
            });
        }
    }
}

#[test]
fn the_counter_counts() {
    let before = of_all::total();
    drop(std::hint::black_box(vec![1.0f32; 9]));
    assert!(of_all::total() - before >= 36);
}
