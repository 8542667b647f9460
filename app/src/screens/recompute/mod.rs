//! The Recompute screen: what less memory costs.

pub mod chart;
#[cfg(feature = "page")]
pub mod model;
#[cfg(feature = "page")]
pub mod state;
#[cfg(feature = "page")]
pub mod view;
