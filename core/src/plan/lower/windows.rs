//! Shared places of buckets whose ranks keep parts of their sums (ZeRO-2; Rajbhandari et al. 2020).
//!
//! A bucket is there from the kernel that first adds to it until its sum has begun and the next bucket is complete: so
//! a sum has as long as the next bucket takes. Others lie in its place before and afterwards.

use super::lane::LaneStage;
use crate::plan::layout::{Block, aligned, pack};
use crate::plan::{DataParallel, Region, StageProgram};
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

/// Gives the buckets of a stage, which lie one behind the other in `whole` bytes from 0 on, their places: among windows
/// from 0 on, and each a part; or, where that is no less, one behind the other. `take` hands out memory.
pub(super) fn share(
    program: &mut StageProgram,
    whole: Bytes,
    take: &mut dyn FnMut(Bytes) -> Region,
) {
    let (mut blocks, mut parts, mut begun) = (Vec::<Block>::new(), Bytes::ZERO, 0);
    for bucket in &program.buckets {
        // Sums begin in the order of buckets.
        begun = bucket.ready.max(begun);
        if let Some(before) = blocks.last_mut() {
            before.last = begun;
        }
        let first = bucket.first.min(begun);
        blocks.push(Block { bytes: bucket.region.bytes, first, last: begun });
        parts += bucket.divided.map_or(Bytes::ZERO, |divided| aligned(divided.bytes()));
    }
    let (offsets, windows) = pack(&blocks);
    if windows + parts >= whole {
        let offset = take(whole).offset;
        return shift(program, offset);
    }
    program.windows = Region { offset: Bytes::ZERO, bytes: windows };
    for (at, offset) in offsets.into_iter().enumerate() {
        move_bucket(program, at, offset);
        if let Some(divided) = &mut program.buckets[at].divided {
            divided.gradient = Some(take(divided.bytes()));
        }
    }
}

/// Has all buckets of a stage begin so many bytes later.
fn shift(program: &mut StageProgram, by: Bytes) {
    for at in 0..program.buckets.len() {
        let offset = program.buckets[at].region.offset + by;
        move_bucket(program, at, offset);
    }
}

/// Has a bucket and its gradients begin elsewhere.
fn move_bucket(program: &mut StageProgram, at: usize, to: Bytes) {
    let bucket = &mut program.buckets[at];
    let (old, Some(divided)) = (bucket.region.offset, bucket.divided) else { return };
    bucket.region.offset = to;
    for place in program.params.iter_mut().filter(|place| divided.holds(place)) {
        if let Some(gradient) = &mut place.gradient {
            gradient.offset = to + (gradient.offset - old);
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
            shift(program, offset);
        }
    }
}
