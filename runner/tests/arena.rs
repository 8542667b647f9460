//! Memory is planned, not discovered: what a rank allocates is what the simulation says, to the
//! byte, and training allocates nothing more.
//!
//! A counting allocator watches the thread of the rank. `gemm` makes a packing buffer (aligned to
//! two cache lines) and a list of flags (single bytes, zeroed) in every call; they are told by
//! their layout and left out, as in `no_alloc.rs`.

mod common;

use common::draft;
use pipewright_core::graph::presets::{PRESETS, Preset};
use pipewright_core::plan::{Plan, Program};
use pipewright_core::predict::Prediction;
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::local;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Allocations of this thread that are not `gemm`'s.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread has allocated and not freed.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn taken(bytes: usize, ours: bool) {
    COUNT.set(COUNT.get() + u64::from(ours));
    HELD.set(HELD.get() + bytes as i64);
}

// SAFETY: all work is `System`'s; counting does not allocate (`const` thread-locals without drop).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size(), layout.align() < 128);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size(), layout.align() > 1);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        taken(size, true);
        HELD.set(HELD.get() - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a rank may hold besides tensors: the record of its last 8 steps, 112 bytes an instruction
/// and step, and some lists.
fn overhead(program: &Program) -> u64 {
    8 * 112 * program.train.len() as u64 + 4096
}

fn plan(
    preset: Preset,
    stages: u32,
    schedule: ScheduleKind,
    mini_batch: u64,
) -> (Plan, Prediction) {
    let mut draft = draft(preset, stages);
    draft.schedule = schedule;
    (draft.mini_batch, draft.micro_batches) = (mini_batch, 4);
    draft.plan().unwrap()
}

fn data(plan: &Plan, prediction: &Prediction) -> DataSet {
    open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap()
}

/// Numbers of stages that the layers of a model suffice for.
fn stage_counts(preset: Preset) -> impl Iterator<Item = u32> {
    let layers = preset.graph().unwrap().layers().len() as u32;
    [1, 2, 4, 8].into_iter().filter(move |stages| *stages <= layers)
}

/// Makes every rank of a plan, one after the other.
fn ranks_hold_what_is_predicted(preset: Preset, stages: u32, schedule: ScheduleKind) {
    let (plan, prediction) = plan(preset, stages, schedule, 4);
    let data = data(&plan, &prediction);
    let handles = prediction.programs.iter().map(|p| p.handles).max().unwrap();
    let transports = local(plan.ranks(), handles as usize);
    for (index, transport) in transports.into_iter().enumerate() {
        let what = format!("{preset}, {stages} stages, {schedule}, rank {index}");
        let program = &prediction.programs[index];
        let predicted = prediction.timeline.lanes[index].arena.0;
        let before = HELD.get();
        let rank = Rank::new((&plan, &prediction.graph, program), &data, transport, 1);
        let grown = (HELD.get() - before) as u64;
        assert_eq!(rank.arena_bytes(), predicted, "{what}");
        assert_eq!(plan.prediction.arena[index].0, predicted, "{what}");
        assert!(grown >= predicted, "{what}: {grown} bytes of {predicted}");
        let most = predicted + overhead(program);
        assert!(grown <= most, "{what}: {grown} bytes, at most {most}");
        drop(rank);
        assert!(HELD.get() <= before, "{what}: memory stays behind");
    }
}

fn all_splits(preset: Preset) {
    for stages in stage_counts(preset) {
        for schedule in ScheduleKind::STRAIGHT {
            ranks_hold_what_is_predicted(preset, stages, schedule);
        }
    }
}

#[test]
fn large_networks() {
    // VGG16 needs 1.7 GB for its parameters alone: one after the other.
    all_splits(Preset::Vgg16);
    all_splits(Preset::Resnet50);
}

#[test]
fn small_networks() {
    for preset in PRESETS {
        match preset {
            // At the paper's width it needs 9 GB.
            Preset::Fc32 { .. } => all_splits(Preset::Fc32 { width: 200 }),
            Preset::Mlp4 | Preset::DigitsCnn => all_splits(preset),
            // Large, as those above, or without kernels here.
            _ => {}
        }
    }
}

/// What `rank` allocates in later steps.
fn later_steps<T: Transport>(mut rank: Rank<T>) -> u64 {
    for step in 0..2 {
        rank.step(step).unwrap();
    }
    let before = COUNT.get();
    for step in 2..5 {
        rank.step(step).unwrap();
    }
    COUNT.get() - before
}

#[test]
fn steps_allocate_nothing() {
    for preset in [Preset::DigitsCnn, Preset::Fc32 { width: 64 }] {
        for (stages, schedule) in
            [1, 2, 4].into_iter().flat_map(|s| ScheduleKind::STRAIGHT.map(|kind| (s, kind)))
        {
            let (plan, prediction) = plan(preset, stages, schedule, 16);
            let data = data(&plan, &prediction);
            let handles = prediction.programs.iter().map(|p| p.handles).max().unwrap();
            std::thread::scope(|scope| {
                let ranks = local(plan.ranks(), handles as usize).into_iter();
                for (transport, program) in ranks.zip(&prediction.programs) {
                    let (plan, graph, data) = (&plan, &prediction.graph, &data);
                    scope.spawn(move || {
                        let rank = Rank::new((plan, graph, program), data, transport, 1);
                        let count = later_steps(rank);
                        assert_eq!(count, 0, "{preset}, {stages} stages, {schedule}");
                    });
                }
            });
        }
    }
}

#[test]
fn the_counter_counts() {
    let (count, held) = (COUNT.get(), HELD.get());
    let block = std::hint::black_box(vec![1.0f32; 9]);
    assert_eq!((COUNT.get() - count, HELD.get() - held), (1, 36));
    drop(block);
    assert_eq!(HELD.get(), held);
}
