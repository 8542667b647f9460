//! Findings of the Run screen: why a measured step differs from the predicted one, times that fit,
//! and how a training went.

pub mod drift;
pub mod fit;
pub mod metrics;
pub mod tune;
