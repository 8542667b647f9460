//! Tests of the kernels: golden vectors from PyTorch, finite differences, slow twins, equal bits for
//! every number of threads, no allocations.
//!
//! Every suite takes the launch function it tests, so that another device runs the same ones.

mod blocks;
mod by_hand;
mod case;
mod differences;
mod experts;
mod golden;
mod no_alloc;
mod nodes;
mod threads;
mod training;
mod vector;
mod vocabulary;

use pipewright_kernels::cpu;

#[test]
fn golden_vectors_on_the_cpu() {
    golden::suite(&mut |call, operands| cpu::launch(call, operands));
}

#[test]
fn finite_differences_on_the_cpu() {
    differences::suite(&mut |call, operands| cpu::launch(call, operands));
}

#[test]
fn finite_differences_of_every_operation_on_the_cpu() {
    differences::every_operation(&mut |call, operands| cpu::launch(call, operands));
}

#[test]
fn cases_by_hand_on_the_cpu() {
    by_hand::suite(&mut |call, operands| cpu::launch(call, operands));
}

#[test]
fn convolutions_in_blocks_on_the_cpu() {
    blocks::suite(&mut |call, operands| cpu::launch(call, operands));
}
