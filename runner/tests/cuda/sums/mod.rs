//! Gradients that stay on the device: sums of encoded ones, their lengths, and what is undone of a skipped
//! step. On the emulator of `cuda_kernels`, whose device has a memory of its own and counts what
//! travels.

#[path = "../direct/asked.rs"]
mod asked;
#[path = "../common/mod.rs"]
mod common;
mod emulated;
#[path = "../cuda_kernels/emulator.rs"]
#[allow(dead_code, reason = "sizes of arguments are compared elsewhere")]
mod emulator;
#[path = "../exchange_suite/mod.rs"]
#[allow(dead_code, reason = "its buckets and gradients alone")]
mod exchange_suite;
mod inside;
mod lengths;
#[path = "../common/ranks.rs"]
mod ranks;
mod sums;
mod training;
#[path = "../direct/wires.rs"]
#[allow(dead_code, reason = "what they are asked for is looked at elsewhere")]
mod wires;
#[path = "../direct/world.rs"]
#[allow(dead_code, reason = "endings of several kinds are tried elsewhere")]
mod world;
