//! The yardsticks beside exhaustive search, and on graphs like those of training.

mod contract;
mod fastsa;
