//! V-half (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): the V of ZB-V with
//! about half of its activation memory, p/2 + 1 micro-batches (p + 2 half-stages) counted until
//! their W, and about half of 1F1B's bubble.

use super::v_pattern::{Pattern, unroll};
use crate::schedule::Action;

/// The orders of all lanes.
pub(super) fn order(lanes: u32, micro_batches: u32) -> Vec<Vec<Action>> {
    unroll(lanes, micro_batches, block(lanes))
}

/// Lane r's repeating block: the forward runs down the V at half speed, so that the offsets of a
/// lane's four passes stay clear of each other modulo 6; even p need 3 slots more for that.
fn block(lanes: u32) -> Pattern {
    let gap = if lanes.is_multiple_of(2) { 3 } else { 0 };
    let of = |r| [2 * r, 3 * lanes - r - 2, 3 * lanes + gap + 2 * r - 1, 6 * lanes + gap - r - 2];
    (0..lanes).map(of).collect()
}
