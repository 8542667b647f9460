//! ZB-H2 (Qi et al. 2024, section 3.2): twice the warm-up of ZB-H1, so that no lane ever waits
//! after its first forward when F = I = W, for the memory of `2p - 1` micro-batches on every lane.
//!
//! From a lane's first action to its last `m (F + I + W) + (p - 1) (F + I - 2W)` pass. A step that
//! ends on all lanes together has the start's bubble only; the paper validates the optimizer step
//! afterwards to begin the next one without it.

use super::zb_h1::delayed;
use crate::schedule::Action;

/// Lane r forwards 2 (p - 1 - r) micro-batches, then alternates F and I; its first W comes after
/// 2r + 1 of the I.
pub(super) fn lane(lane: u32, lanes: u32, micro_batches: u32) -> Vec<Action> {
    let one = |op| (lane, op);
    delayed(micro_batches, 2 * (lanes - 1 - lane), 2 * lane, one, one)
}
