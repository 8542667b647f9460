//! The Recompute screen: what less memory costs.

mod chart;
#[cfg(feature = "page")]
mod model;
#[cfg(feature = "page")]
pub mod state;
#[cfg(feature = "page")]
pub mod view;
