//! The Model screen: layers, their costs, and where the plan cuts them.

pub mod anatomy;
pub mod chart;
#[cfg(feature = "page")]
pub mod view;
