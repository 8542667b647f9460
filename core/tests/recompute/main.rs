//! Recomputation: searches on graphs of training, and the plans that are made with them.

mod plans;
