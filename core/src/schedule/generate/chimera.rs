//! Chimera: two pipelines through the same lanes in opposite directions, each with half of the
//! micro-batches (Li and Hoefler, SC 2021).
//!
//! ```text
//! 4 lanes, 4 micro-batches; 0 and 1 travel down, 2 and 3 up; F and B of one length
//! lane 0  0F0 0F1  .  3F2 3B2 3F3 3B3 0B0  .  0B1
//! lane 1   .  1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1  .
//! lane 2   .  1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3  .
//! lane 3  0F2 0F3  .  3F0 3B0 3F1 3B1 0B2  .  0B3
//! ```
//! Even stages with F = B, m a multiple of p: 2 m + p - 2 times F, a bubble of
//! (p-2)/(2m+p-2). Lane r holds p/2 + 1 (ends) to p (middle) micro-batches, and two stages' weights.

use super::greedy::{self, Limits};
use super::{GenerateError, Order, Pipe};
use crate::ids::StageId;

pub(super) fn order(pipe: Pipe) -> Result<Order, GenerateError> {
    let Pipe { lanes: p, micro_batches: m, .. } = pipe;
    if !m.is_multiple_of(2) {
        return Err(pipe.micro_batches_must("half of them go each way, so it needs an even number"));
    }
    // Of one direction a stage takes no more than 1F1B would, and no more than a unit of p
    // micro-batches has.
    let in_flight = |stage: StageId| (p - stage.0).min((p / 2).max(1));
    let limits = Limits { in_flight: &in_flight, backward: 1 };
    Ok(Order::of(greedy::lanes(pipe, &limits)))
}
