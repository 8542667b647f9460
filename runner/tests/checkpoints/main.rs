//! Checkpoints: a run that goes on from one trains what an uninterrupted run trains, to the bit,
//! and whatever ends a run leaves the checkpoint before as it was.

#[path = "../common/mod.rs"]
mod common;

mod bytes;
mod disk;
mod endings;
mod held;
mod killed;
mod mutated;
mod refused;
mod resized;
mod resume;
mod run;
