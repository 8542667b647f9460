//! CUDA graphs, without a GPU: the emulator of `cuda_kernels` computes, once as it is asked to, once with
//! commands collected, captured and replayed on a device that does everything as late as it may. Both train
//! to the same bits.

#[path = "../common/mod.rs"]
mod common;
mod emulated;
#[path = "../cuda_kernels/emulator.rs"]
#[allow(dead_code, reason = "sizes of arguments are compared elsewhere")]
mod emulator;
mod fusion;
mod launches;
mod lazy;
mod sequences;
mod training;
