//! The Model screen: layers, their costs, and where the plan cuts them. What it knows is in `anatomy`.

mod anatomy;
mod chart;
#[cfg(feature = "page")]
pub mod view;
