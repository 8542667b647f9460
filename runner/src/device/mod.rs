//! Devices: what executes the computations of a stage's training graph.
//!
//! The processor computes in the rank's own memory. A device with memory of its own is an
//! [`Accelerator`]: it has a copy of the arena, and whoever needs bytes that the other side wrote gets
//! them copied (`execute/arena`). Where ranks' devices can talk to each other, a [`Fabric`] takes what they
//! send and sum from one to the other.

mod accelerator;
mod coder;
pub mod cuda;
mod fabric;
mod fused_group;
pub mod model;

pub use accelerator::{
    Accelerator, DeviceError, DeviceReport, Graphs, Image, ParameterPlaces, Place, Places,
};
pub use coder::{Coded, Coder, DevicePtr, Piece};
pub use fabric::{Fabric, Mark, Rooted};
pub use fused_group::{FusedKind, FusedOp, can_join, worthwhile};
