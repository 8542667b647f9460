//! Pictures of drift and of metrics.

pub mod drift;
pub mod metrics;
