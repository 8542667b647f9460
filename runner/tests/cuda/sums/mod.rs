//! Gradients that stay on the device: sums of encoded ones, their lengths, and what is undone of a skipped
//! step. On the emulator of kernels, whose device has a memory of its own and counts what
//! travels.

mod divided;
mod emulated;
mod encoded;
mod intra_node;
mod lengths;
mod training;
