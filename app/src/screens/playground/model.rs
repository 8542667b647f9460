//! The Playground: a small network trained live under codecs, virtual ranks and schedules.
//!
//! | file | what it knows |
//! |---|---|
//! | `dice`, `data` | random numbers; points and their order |
//! | `network` | layers, passes, gradients |
//! | `pipeline` | a schedule as an order of actions |
//! | `sums` | gradients of all ranks, summed as the runner does |
//! | `trainer` | one training, step after step |
//! | `race` | several of them side by side, and their curves |
//! | `choice`, `link` | what a person chooses, what is wrong with it; the same as text |
//! | `presets` | four things to look at |
//!
//! Everything follows from the choices and the number of steps, with the same bits on every machine.

pub mod choice;
pub mod data;
mod dice;
mod link;
mod network;
pub mod pipeline;
pub mod presets;
pub mod race;
mod sums;
mod trainer;
