//! The Run screen: what was measured, and why it differs from what was predicted.

mod chart;
pub mod model;
#[cfg(feature = "page")]
pub mod state;
#[cfg(feature = "page")]
pub mod view;
