//! Kernels: what computes a training graph's steps on the processor, and the words in which every
//! device is told what to compute.
//!
//! [`Call`], [`Operands`], [`Rule`] and their parts belong to no device. [`cpu`] is the processor's
//! answer to them, and the reference that every other device is tested against.

mod call;
pub mod cpu;
mod geometry;
mod mask;
mod update;

pub use call::{Call, Draw, Operands, Phase, Shard, Turn};
pub use geometry::Geometry;
pub use mask::Mask;
pub use update::{Parameter, Rule, Update, decimal};
