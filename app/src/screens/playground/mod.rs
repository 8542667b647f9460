//! The Playground: a small network, trained while one looks.

pub mod chart;
pub mod model;
#[cfg(feature = "page")]
pub mod state;
#[cfg(feature = "page")]
pub mod view;
