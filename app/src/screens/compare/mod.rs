//! The Compare screen: two plans on one time axis, and which others there are.

pub mod chart;
pub mod model;
#[cfg(feature = "page")]
pub mod view;
