//! Devices: what executes the computations of a stage's training graph.

pub mod cpu;
pub mod model;
