//! The explorer's worker: long searches, in a thread of the browser's.
//!
//! `worker.js` owns the thread's event loop and drives a [`Session`] through its `Door`; the page and
//! the session send each other [`protocol`] messages as JSON. Reading order: `protocol`, `session`,
//! `open` (what is worked on), `working`, `picture` and `grid` (what is shown of it); `plans` looks for
//! whole plans, `advising` for better ones than a given plan; `orders` simulates a plan under every
//! schedule, `making` makes the cuts and the order of one.

mod advising;
mod curve;
#[cfg(feature = "worker")]
mod door;
mod grid;
mod making;
mod open;
mod orders;
mod picture;
mod plans;
pub mod protocol;
mod session;
#[cfg(test)]
mod tests;
mod working;

pub use session::Session;
