//! The processor: one safe function per computation of the training graph, the reference that
//! every other device is tested against.
//!
//! Tensors are row-major with the sample axis first. A kernel reads and writes what the table at
//! [`Computation`](pipewright_core::graph::autodiff::Computation) says, allocates nothing, and
//! gives the same bits whatever the number of threads: work is split only where no sum is.

mod activation;
mod attention;
mod batch_norm;
mod broadcast;
mod chunks;
mod conv;
mod dropout;
mod elementwise;
mod embedding;
mod experts;
mod fp8;
mod gelu;
mod group_norm;
mod grouped;
mod launch;
mod layer_norm;
mod layout;
mod linear;
mod local_response;
mod loss;
mod math;
mod matmul;
mod optimizer;
pub mod packed;
mod philox;
mod planes;
mod pool;
mod product;
mod rope;
mod softmax;
mod strides;
mod sums;
pub mod thread_pool;
mod transpose;
mod upsample;
mod vector;

pub use launch::{launch, without_kernel};
pub use matmul::{Matrix, MatrixMut, Product, matmul};
pub use sums::squares;
