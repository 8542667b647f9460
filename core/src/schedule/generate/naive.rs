//! Model parallelism without a pipeline: a micro-batch goes through all stages and back before the
//! next one starts, so one lane works at a time.
//!
//! ```text
//! lane 0  F0       B0 F1       B1
//! lane 1     F0 B0       F1 B1
//! ```
//! Makespan of even stages m p (F + B); every lane holds one micro-batch. That the next one waits
//! follows from the order on lane 0.

use super::{backward, forward};
use crate::schedule::Action;

/// The actions of the lane of `stage`.
pub(super) fn lane(stage: u32, micro_batches: u32) -> Vec<Action> {
    (0..micro_batches).flat_map(|i| [forward(stage, i), backward(stage, i)]).collect()
}
