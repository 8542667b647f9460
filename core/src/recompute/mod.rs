//! Recomputation (rematerialisation): less memory for more time.
//!
//! A [`Problem`] says what is to be computed; a sequence computes it, some values more than once, so
//! that they need not be kept in between.

pub mod contract;
pub mod fastsa;
mod problem;
mod sequence;
mod tree;

pub use problem::{MOST_BYTES, MOST_EDGES, MOST_NODES, Node, Problem, ProblemError};
pub use sequence::{Cost, SequenceError, check, cost, last_uses, memory, without_recomputation};
