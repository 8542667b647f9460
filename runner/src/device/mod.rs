//! Devices: what executes the computations of a stage's training graph.
//!
//! The processor computes in the rank's own memory. A device with memory of its own is an
//! [`Accelerator`]: it has a copy of the arena, and whoever needs bytes that the other side wrote gets
//! them copied (`execute/arena`).

mod accelerator;
mod coder;
pub mod cpu;
pub mod cuda;
pub mod model;

pub use accelerator::{Accelerator, DeviceError, Graphs, ParameterPlaces, Place, Places};
pub use coder::{Coded, Coder, DevicePtr, Piece};
