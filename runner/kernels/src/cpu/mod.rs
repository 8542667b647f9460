//! The processor: one safe function per computation of the training graph, the reference that
//! every other device is tested against.
//!
//! Tensors are row-major with the sample axis first. A kernel reads and writes what the table at
//! [`Computation`](pipewright_core::graph::autodiff::Computation) says, allocates nothing, and
//! gives the same bits whatever the number of threads: work is split only where no sum is.

mod activation;
mod attention;
mod broadcast;
mod chunks;
mod conv;
mod dropout;
mod eight;
mod elementwise;
mod embedding;
mod launch;
mod layout;
mod linear;
mod local_response;
mod loss;
mod math;
mod matmul;
mod norm;
mod optimizer;
pub mod packed;
mod philox;
mod planes;
mod pool;
mod product;
mod rope;
mod rows;
mod softmax;
mod strides;
mod sums;
pub mod team;
mod upsample;
mod vector;

pub use launch::{launch, without_kernel};
pub use matmul::{Matrix, MatrixMut, Product, matmul};
pub use sums::squares;
