//! GPipe: fill, drain (Huang et al., "GPipe", NeurIPS 2019).
//!
//! ```text
//! lane 0  F0 F1 F2 F3                   B0 B1 B2 B3
//! lane 1     F0 F1 F2 F3             B0 B1 B2 B3
//! ```
//! Makespan of even stages (m + p - 1)(F + B); every lane holds m micro-batches at the peak.
//! Backwards run in the order of the forwards, as PyTorch's do.

use super::{backward, forward};
use crate::schedule::Action;

/// The actions of the lane of `stage`.
pub(super) fn lane(stage: u32, micro_batches: u32) -> Vec<Action> {
    let forwards = (0..micro_batches).map(|i| forward(stage, i));
    let backwards = (0..micro_batches).map(|i| backward(stage, i));
    forwards.chain(backwards).collect()
}
