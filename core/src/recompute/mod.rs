//! Recomputation (rematerialisation): less memory for more time.
//!
//! A [`Problem`] says what is to be computed; a sequence computes it, some values more than once, so
//! that they need not be kept in between. [`Search`] finds sequences, [`least_peak`] and
//! [`least_time`] say what none can do better.

mod bound;
pub mod chen;
mod closure;
mod cut;
mod edit;
pub mod exact;
pub mod file;
mod flow;
mod front;
mod nest;
mod problem;
mod repeat;
mod search;
mod sequence;
mod state;
#[cfg(test)]
mod tests;
mod tree;

pub use bound::{least_peak, least_time};
pub use front::Answer;
pub use problem::{Node, Problem, ProblemError};
pub use repeat::{Layers, layers};
pub use search::{Goal, Search};
pub use sequence::{Cost, SequenceError, check, cost, last_uses, memory, without_recomputation};
