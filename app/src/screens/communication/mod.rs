//! The Communication screen: how gradients travel.

pub mod chart;
pub mod model;
#[cfg(feature = "page")]
pub mod view;
