//! Yardsticks of recomputation: published methods that core's own search is measured against.
//!
//! For tests and benches only: no product depends on this package. [`fastsa`] anneals a sequence
//! (Imanishi et al. 2023), [`contract`] makes groups of nodes one (Kadono 2023), [`graph`] makes
//! graphs of any size to try them on. Chen's segments and the exact search for small graphs are part
//! of the product, in `pipewright_core::recompute`.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod contract;
pub mod fastsa;
pub mod graph;
