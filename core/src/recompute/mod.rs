//! Recomputation (rematerialisation): less memory for more time.
//!
//! A [`Problem`] says what is to be computed; a sequence computes it, some values more than once, so
//! that they need not be kept in between. [`Search`] finds sequences, [`least_peak`] and
//! [`least_time`] say what none can do better.
//!
//! ```
//! use pipewright_core::recompute::{Goal, Node, Problem, Search, cost, without_recomputation};
//!
//! // A chain of twelve forward values that the backward pass reads from the last to the first.
//! let mut nodes: Vec<Node> = vec![];
//! for at in 0..24u32 {
//!     let mut inputs: Vec<u32> = at.checked_sub(1).into_iter().collect();
//!     if at >= 12 {
//!         inputs.push(23 - at);
//!         inputs.dedup();
//!     }
//!     nodes.push(Node { bytes: 100, time: 1.0, inputs, output: at == 23, ..Node::default() });
//! }
//! let problem = Problem::new(nodes)?;
//! let all_kept = cost(&problem, &without_recomputation(&problem));
//! let mut search = Search::new(&problem, Goal::Budget(all_kept.peak * 6 / 10), 1);
//! search.advance(100_000);
//! let best = search.best();
//! problem.check(&best.sequence)?;
//! assert!(best.cost.peak <= all_kept.peak * 6 / 10 && best.cost.time < 2.0 * all_kept.time);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
pub use sequence::{Cost, SequenceError, cost, last_uses, memory, without_recomputation};
