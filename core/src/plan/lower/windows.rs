//! Shared places of buckets whose ranks keep parts of their sums (ZeRO-2; Rajbhandari et al. 2020).
//!
//! A bucket is there from the kernel that first adds to it until its sum has begun and the next bucket is complete: so
//! a sum has as long as the next bucket takes. Others lie in its place before and afterwards.

use super::lane::LaneStage;
use crate::graph::autodiff::ComputationKind;
use crate::plan::layout::{Block, aligned, pack};
use crate::plan::{DataParallel, DividedGradient, Region, StageProgram};
use crate::units::Bytes;

/// Buckets of a stage that share places hold at most this share of its gradients: else little is shared.
const MOST: u64 = 16;

/// How large the buckets of a stage become whose gradients are `all` bytes.
pub(super) fn bucket(data_parallel: DataParallel, all: Bytes) -> Bytes {
    match data_parallel.divides_gradients() {
        true => data_parallel.bucket.min(Bytes(all.0.div_ceil(MOST))),
        false => data_parallel.bucket,
    }
}

/// Places of a stage's buckets among its windows.
pub(super) struct Places {
    offsets: Vec<Bytes>,
    windows: Bytes,
    /// The first kernel that adds to each.
    first: Vec<u32>,
    /// Parts of all buckets.
    parts: Bytes,
}

/// Where the buckets of a stage could lie; none, where ranks divide none.
pub(super) fn share(program: &StageProgram) -> Option<Places> {
    let parts = program.buckets.iter().filter_map(|bucket| bucket.divided);
    let parts: Bytes = parts.map(|divided| aligned(divided.bytes())).sum();
    if parts == Bytes::ZERO {
        return None;
    }
    let first: Vec<u32> =
        (0..program.buckets.len()).map(|bucket| first_kernel(program, bucket)).collect();
    // Sums begin in the order of buckets.
    let begun = program.buckets.iter().scan(0, |begun, bucket| {
        *begun = bucket.ready.max(*begun);
        Some(*begun)
    });
    let begun: Vec<u32> = begun.collect();
    let block = |at: usize| Block {
        bytes: program.buckets[at].region.bytes,
        first: first[at].min(begun[at]),
        last: begun[(at + 1).min(begun.len() - 1)],
    };
    let blocks: Vec<Block> = (0..begun.len()).map(block).collect();
    let (offsets, windows) = pack(&blocks);
    Some(Places { offsets, windows, first, parts })
}

impl Places {
    /// All that lies somewhere: windows and parts.
    pub fn bytes(&self) -> Bytes {
        self.windows + self.parts
    }

    /// Gives the buckets these places, from 0 on, and each a part; `take` hands out memory.
    pub fn take(self, program: &mut StageProgram, mut take: impl FnMut(Bytes) -> Region) {
        program.windows = Region { offset: Bytes::ZERO, bytes: self.windows };
        for ((at, offset), first) in self.offsets.into_iter().enumerate().zip(self.first) {
            move_bucket(program, at, |_| offset);
            if let Some(divided) = &mut program.buckets[at].divided {
                divided.gradient = Some(DividedGradient { part: take(divided.bytes()), first });
            }
        }
    }
}

/// Has the buckets of a stage begin at `offset` that lie one behind the other from 0 on.
pub(super) fn begin_at(program: &mut StageProgram, offset: Bytes) {
    (0..program.buckets.len()).for_each(|at| move_bucket(program, at, |old| old + offset));
}

/// The first kernel that adds to a bucket; 0 where one of its gradients has no kernel.
fn first_kernel(program: &StageProgram, bucket: usize) -> u32 {
    let Some(divided) = program.buckets[bucket].divided else { return 0 };
    let adds_to = |param: usize| {
        let adds = |kernel: &crate::plan::Kernel| {
            kernel.kind == ComputationKind::WeightGradient
                && kernel.params.contains(&(param as u32))
        };
        program.kernels.iter().position(adds)
    };
    let of_bucket =
        (0..program.params.len()).filter(|param| divided.holds(&program.params[*param]));
    of_bucket.map(|param| adds_to(param).unwrap_or(0) as u32).min().unwrap_or(0)
}

/// Has a bucket and its gradients begin elsewhere.
fn move_bucket(program: &mut StageProgram, at: usize, to: impl Fn(Bytes) -> Bytes) {
    let bucket = &mut program.buckets[at];
    let (old, Some(divided)) = (bucket.region.offset, bucket.divided) else { return };
    bucket.region.offset = to(old);
    let new = bucket.region.offset;
    for place in program.params.iter_mut().filter(|place| divided.holds(place)) {
        if let Some(gradient) = &mut place.gradient {
            gradient.offset = new + (gradient.offset - old);
        }
    }
}

/// Has the windows of all stages of a lane begin at one place of the arena; `take` hands out so many bytes of it.
pub(super) fn place(stages: &mut [LaneStage], take: impl FnOnce(Bytes) -> Bytes) {
    let largest = stages.iter().map(|stage| stage.program.windows.bytes).max().unwrap_or_default();
    if largest == Bytes::ZERO {
        return;
    }
    let offset = take(largest);
    for program in stages.iter_mut().map(|stage| &mut stage.program) {
        if program.windows.bytes > Bytes::ZERO {
            program.windows.offset = offset;
            begin_at(program, offset);
        }
    }
}
