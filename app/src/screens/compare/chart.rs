//! Pictures of differences and of trade-offs.

pub mod differences;
pub mod pareto;
pub mod sizes;
