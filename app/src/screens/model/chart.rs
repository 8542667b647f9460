//! Markup of the chain of layers and of one layer.

pub mod chain;
pub mod layer;
