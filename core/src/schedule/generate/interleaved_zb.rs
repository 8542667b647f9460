//! Interleaved zero bubble: ZB-H1 on the loop of interleaved 1F1B, as PyTorch's
//! `ScheduleInterleavedZeroBubble`. With even chunks and two of them a lane, the step takes
//! `m (F + I + W) + (p - 1) (F + I - W) / 2`, where F, I and W are those of a whole lane.

use super::interleaved::round;
use super::zb_h1::delayed;
use super::{GenerateError, Order, Pipe};
use crate::schedule::Action;

pub(super) fn order(pipe: Pipe) -> Result<Order, GenerateError> {
    let round = round(pipe)?;
    Ok(pipe.each(|r| lane(r, pipe.lanes, pipe.chunks(), round, pipe.micro_batches)))
}

/// The order of `lane`: `chunks` stages a lane, `round` micro-batches through one chunk before
/// the next; `round` divides `micro_batches`.
pub(super) fn lane(
    lane: u32,
    lanes: u32,
    chunks: u32,
    round: u32,
    micro_batches: u32,
) -> Vec<Action> {
    let warm_up = (chunks - 1) * round + lanes - 1 - lane;
    let place =
        |op: u32, chunk: u32| (chunk * lanes + lane, op / (round * chunks) * round + op % round);
    let forward = |op: u32| place(op, op / round % chunks);
    let backward = |op: u32| place(op, chunks - 1 - op / round % chunks);
    delayed(chunks * micro_batches, warm_up, lane, forward, backward)
}
