//! CUDA graphs, without a GPU: the emulator of kernels computes, once as it is asked to, once with
//! commands collected, captured and replayed on a device that does everything as late as it may. Both train
//! to the same bits.

pub mod emulated;
mod fusion;
mod launches;
mod lazy;
mod sequences;
mod training;
