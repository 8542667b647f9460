//! The Plan screen: inputs, the timeline of one plan, and what it costs.

pub mod chart;
pub mod model;
#[cfg(feature = "page")]
pub mod state;
#[cfg(feature = "page")]
pub mod view;
