//! The Communication screen: how gradients travel.

mod chart;
mod model;
#[cfg(feature = "page")]
pub mod view;
