//! The Plan screen: inputs, the timeline of one plan, and what it costs.

mod chart;
pub mod model;
#[cfg(feature = "page")]
pub mod state;
#[cfg(feature = "page")]
pub mod view;
