//! Interleaved 1F1B: several stages a lane (Narayanan et al., "Efficient Large-Scale Language Model
//! Training on GPU Clusters", SC 2021), in PyTorch's form, which also takes numbers of
//! micro-batches that p does not divide.
//!
//! ```text
//! 2 lanes, 2 chunks, 2 micro-batches
//! lane 0  0F0 0F1 2F0 2F1     2B0     2B1 0B0     0B1
//! lane 1      1F0 1F1 3F0 3B0 3F1 3B1 1B0     1B1
//! ```
//! | symbol | meaning |
//! |---|---|
//! | p, v, m | lanes, chunks of a lane, micro-batches |
//! | rounds | max(1, m div p); has to divide m |
//! | k | m / rounds: micro-batches that pass a chunk before the lane turns to the next one |
//!
//! Makespan of even stages, when p divides m: (m + (p-1)/v)(F + B). Lane r holds at most
//! (v-1) k + 2 (p-1-r) + 1 chunks, and no more than v m.

use super::{GenerateError, Order, Pipe, backward, forward};
use crate::schedule::Action;

pub(super) fn order(pipe: Pipe) -> Result<Order, GenerateError> {
    let rounds = (pipe.micro_batches / pipe.lanes).max(1);
    if !pipe.micro_batches.is_multiple_of(rounds) {
        return Err(pipe.micro_batches_must(format!(
            "it works in {rounds} rounds, so it needs a multiple of {rounds}; a multiple of {} \
             always fits",
            pipe.lanes
        )));
    }
    let wide = pipe.micro_batches / rounds;
    Ok(pipe.each(|r| lane(pipe, wide, r)))
}

/// The actions of lane `r`: forwards ahead, then one of each, then the remaining backwards.
fn lane(pipe: Pipe, wide: u32, r: u32) -> Vec<Action> {
    let chunks = pipe.chunks();
    let total = chunks * pipe.micro_batches;
    let ahead = ((chunks - 1) * wide + 2 * (pipe.lanes - 1 - r)).min(total);
    // The n-th pass of a direction: `wide` micro-batches through each chunk, round after round.
    let micro_batch = |n: u32| n / (chunks * wide) * wide + n % wide;
    let chunk = |n: u32| n / wide % chunks;
    let forward = |n: u32| forward(chunk(n) * pipe.lanes + r, micro_batch(n));
    let backward = |n: u32| backward((chunks - 1 - chunk(n)) * pipe.lanes + r, micro_batch(n));
    let mut actions = Vec::with_capacity(2 * total as usize);
    actions.extend((0..ahead).map(forward));
    for n in ahead..total {
        actions.extend([forward(n), backward(n - ahead)]);
    }
    actions.extend((total - ahead..total).map(backward));
    actions
}
