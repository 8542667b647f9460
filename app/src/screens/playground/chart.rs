//! Pictures of the Playground: what networks say of the plane, their curves, gradients, the schedule's step.

pub mod boundary;
pub mod curves;
pub mod form;
pub mod histogram;
pub mod page;
pub mod step;
#[cfg(feature = "page")]
pub mod tile;
