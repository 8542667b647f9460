//! V-min (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): the V of ZB-V with the
//! least activation memory that keeps all lanes busy when F = I = W, about a third of 1F1B's while
//! held to I; uneven times cost it more than the other V schedules.

use super::v_pattern::{Pattern, unroll};
use crate::schedule::Action;

/// The orders of all lanes.
pub(super) fn order(lanes: u32, micro_batches: u32) -> Vec<Vec<Action>> {
    unroll(lanes, micro_batches, block(lanes))
}

/// Lane r's repeating block: every pass follows its predecessor at once; p divisible by 3 need 2
/// slots more to keep a lane's passes clear of each other modulo 6.
fn block(lanes: u32) -> Pattern {
    let gap = if lanes.is_multiple_of(3) { 2 } else { 0 };
    let of = |r| [r, 2 * lanes - r - 1, 2 * lanes + gap + r, 4 * lanes + gap - r - 1];
    (0..lanes).map(of).collect()
}
