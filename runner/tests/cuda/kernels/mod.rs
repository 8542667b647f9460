//! Tests of the CUDA kernels without a GPU: they are compiled for the processor and run by an emulator
//! of a grid of threads (`emulator.h`), and must do what the processor's kernels do.

mod attention;
mod codecs;
mod fp8;
pub mod layers;
mod library;
pub(crate) mod like_the_processor;
pub(crate) mod memory;
mod nvrtc;
mod optimizer;
mod padding;
mod products;
mod rows;
mod shards;

use crate::{by_hand, emulator, vectors};
use memory::on_the_emulator;
use pipewright_runner::device::cuda::kernels::Storage;

#[test]
fn golden_vectors() {
    if emulator::is_there() {
        vectors::suite(&mut |call, operands| on_the_emulator(Storage::F32, call, operands));
    }
}

#[test]
fn cases_by_hand() {
    if emulator::is_there() {
        by_hand::suite(&mut |call, operands| on_the_emulator(Storage::F32, call, operands));
    }
}
