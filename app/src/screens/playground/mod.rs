//! The Playground: a small network, trained while one looks.

mod chart;
mod model;
#[cfg(feature = "page")]
pub mod state;
#[cfg(feature = "page")]
pub mod view;
