//! The Model screen: layers, their costs, and where the plan cuts them.

mod anatomy;
mod chart;
#[cfg(feature = "page")]
pub mod view;
