//! Looped breadth first: GPipe with several stages a lane (Lamy-Poirier, "Breadth-First Pipeline
//! Parallelism", MLSys 2023). All micro-batches pass a chunk before the lane turns to its next one.
//!
//! ```text
//! 2 lanes, 2 chunks, 2 micro-batches (stage, kind, micro-batch)
//! lane 0  0F0 0F1 2F0 2F1     .   .  2B1 2B0 0B1 0B0
//! lane 1   .  1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0
//! ```
//! Makespan of even stages (m + (p-1)/v)(F + B) per lane's work for m >= p; every lane holds all
//! v m chunks. Backwards run from the last micro-batch to the first, as PyTorch's do.

use super::{Pipe, backward, forward};
use crate::schedule::Action;

/// The actions of `lane`.
pub(super) fn lane(pipe: Pipe, lane: u32) -> Vec<Action> {
    let stage = |chunk: u32| chunk * pipe.lanes + lane;
    let (chunks, m) = (pipe.chunks(), pipe.micro_batches);
    let forwards = (0..chunks).flat_map(|c| (0..m).map(move |i| forward(stage(c), i)));
    let backwards =
        (0..chunks).rev().flat_map(|c| (0..m).rev().map(move |i| backward(stage(c), i)));
    forwards.chain(backwards).collect()
}
