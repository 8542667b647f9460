//! Recomputation (rematerialisation): less memory for more time.
//!
//! A [`Problem`] says what is to be computed; a sequence computes it, some values more than once, so
//! that they need not be kept in between.

mod problem;
mod sequence;

pub use problem::{MOST_BYTES, MOST_EDGES, MOST_NODES, Node, Problem, ProblemError};
pub use sequence::{Cost, SequenceError, check, cost, last_uses, memory, without_recomputation};
