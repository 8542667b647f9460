//! Clipping of gradients by their common length (Pascanu et al. 2013), as PyTorch's
//! `clip_grad_norm_` does it: `scale = min(1, limit / (norm + 1e-6))`.
//!
//! Each parameter's sum of squares is made by the rank that holds it; the sums are brought together
//! and every rank adds them in the order of parameters. The norm is thus the same to the last bit
//! however the network is split.

use crate::device::cpu::squares;
use crate::transport::{REDUCE_MAX, ReduceOp, Transport, TransportError};
use pipewright_core::graph::Graph;
use pipewright_core::ids::ParamId;

/// Keeps the division finite for a gradient of length zero, as PyTorch does.
const EPS: f64 = 1e-6;

/// The gradient's length and what follows from it.
#[derive(Debug)]
pub struct Clip {
    limit: Option<f64>,
    /// Sum of squares of each parameter of the network; empty without a limit.
    squares: Vec<f64>,
    norm: f64,
}

impl Clip {
    /// Clipping to `limit`, or none.
    pub fn new(limit: Option<f32>, graph: &Graph) -> Self {
        let count = if limit.is_some() { graph.params().len() } else { 0 };
        Self { limit: limit.map(crate::device::cpu::decimal), squares: vec![0.0; count], norm: 0.0 }
    }

    /// Notes the gradient of a parameter that this rank holds.
    pub fn add(&mut self, param: ParamId, gradient: &[f32], threads: usize) {
        self.squares[param.index()] = squares(threads, gradient);
    }

    /// Brings the sums of all ranks together.
    ///
    /// # Errors
    /// When the ranks cannot talk.
    pub fn meet(&mut self, transport: &mut impl Transport) -> Result<(), TransportError> {
        for sums in self.squares.chunks_mut(REDUCE_MAX) {
            // One rank holds the parameter, the others add zeros: nothing is rounded.
            transport.all_reduce(sums, ReduceOp::Sum)?;
        }
        self.norm = self.squares.iter().sum::<f64>().sqrt();
        self.squares.fill(0.0);
        Ok(())
    }

    /// Length of the gradient at the last [`Self::meet`].
    pub fn norm(&self) -> f64 {
        self.norm
    }

    /// Factor of every gradient.
    pub fn scale(&self) -> f32 {
        self.limit.map_or(1.0, |limit| (limit / (self.norm + EPS)).min(1.0) as f32)
    }
}
