//! Yardsticks: published methods and closed forms that core's own search and prices are measured against.
//!
//! For tests and benches only: no product depends on this package. [`fastsa`] anneals a sequence
//! (Imanishi et al. 2023), [`contract`] makes groups of nodes one (Kadono 2023), [`graph`] makes
//! graphs of any size to try them on. Chen's segments and the exact search for small graphs are part
//! of the product, in `pipewright_core::recompute`. [`transformer`] is the closed form of iterations of
//! GPT-like models (Narayanan et al. 2021, Korthikanti et al. 2022).

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod contract;
pub mod fastsa;
pub mod graph;
pub mod transformer;
