//! The Compare screen: two plans on one time axis, and which others there are.

mod chart;
mod model;
#[cfg(feature = "page")]
pub mod view;
