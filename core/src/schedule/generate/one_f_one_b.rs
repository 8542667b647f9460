//! 1F1B with a flush at the end of the step (Narayanan et al. 2021, "PipeDream-Flush").
//!
//! ```text
//! lane 0  F0 F1                B0 F2    B1 F3    B2    B3
//! lane 1     F0 B0    F1    B1    F2 B2    F3 B3
//! ```
//! Makespan of even stages as GPipe's; lane r of p holds min(m, p - r) micro-batches at the peak.

use super::{backward, forward};
use crate::schedule::Action;

/// The actions of the lane of `stage`: `p - r` forwards ahead, then one backward, one forward.
pub(super) fn lane(stage: u32, stages: u32, micro_batches: u32) -> Vec<Action> {
    let ahead = micro_batches.min(stages - stage);
    let mut actions: Vec<Action> = (0..ahead).map(|i| forward(stage, i)).collect();
    for i in 0..micro_batches {
        actions.push(backward(stage, i));
        if ahead + i < micro_batches {
            actions.push(forward(stage, ahead + i));
        }
    }
    actions
}
