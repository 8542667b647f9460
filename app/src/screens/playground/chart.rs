//! Pictures of the Playground: what networks say of the plane, their curves, gradients, the schedule's step.

mod boundary;
pub mod curves;
pub mod form;
mod histogram;
pub mod page;
pub mod step;
#[cfg(feature = "page")]
pub mod tile;
