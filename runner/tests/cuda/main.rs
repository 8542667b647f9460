//! Devices with a memory of their own: NVIDIA's kernels on an emulator of their grid of threads, which
//! compiles them for the processor (`emulator.h`), and on a GPU where there is one; devices that stand in
//! for GPUs where kernels do not matter.

#[path = "../../kernels/tests/kernels/by_hand.rs"]
mod by_hand;
#[path = "../../kernels/tests/kernels/case.rs"]
mod case;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod devices;
mod direct;
mod distant;
mod emulator;
mod engine;
mod graphs;
mod kernels;
mod nccl;
#[path = "../../kernels/tests/kernels/nodes.rs"]
mod nodes;
mod sums;
#[path = "../../kernels/tests/kernels/vector.rs"]
mod vector;
#[path = "../../kernels/tests/kernels/golden.rs"]
mod vectors;
