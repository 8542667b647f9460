//! The Elastic screen: what becomes of a job when nodes come and go.

mod chart;
pub mod model;
#[cfg(feature = "page")]
pub mod state;
#[cfg(feature = "page")]
pub mod view;
