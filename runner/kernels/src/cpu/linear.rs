//! Linear layers: `y = x Wᵀ + b` over the last axis.
//!
//! `x [rows, in]`, `W [out, in]`, `b [out]`, `y [rows, out]`; every axis before the last one,
//! samples included, is a row. In fp8 all three products take rounded factors; biases are not rounded.

use super::chunks;
use super::fp8::factors;
use super::matmul::{Matrix, MatrixMut, Product, matmul};
use super::vector::vectorised;
use crate::{Call, Operands};
use pipewright_core::compress::narrow::{E4m3, E5m2};

/// Columns of a gradient that one thread sums.
const COLUMNS: usize = 256;

vectorised! {
    /// Adds columns of rows that lie `stride` apart, in the order of the rows.
    fn add_columns(sums: &mut [f32], rows: &[f32], stride: usize) {
        for row in rows.chunks(stride) {
            for (sum, g) in sums.iter_mut().zip(row) {
                *sum += g;
            }
        }
    }
}

struct LinearShape {
    rows: usize,
    inputs: usize,
    outputs: usize,
}

impl LinearShape {
    fn new(call: &Call) -> Self {
        let inputs = call.inputs[0].shape.last().copied().unwrap_or(1);
        let outputs = call.output.shape.last().copied().unwrap_or(1);
        let rows = call.samples * (call.inputs[0].elements() / inputs);
        Self { rows: rows as usize, inputs: inputs as usize, outputs: outputs as usize }
    }
}

pub fn forward(call: &Call, operands: Operands) {
    let LinearShape { rows, inputs, outputs } = LinearShape::new(call);
    let Operands { reads, writes, params, .. } = operands;
    let y = &mut *writes[0];
    let mut product = Product::Overwrite;
    if let Some(bias) = params.get(1) {
        let threads = chunks::worth(call.threads, y.len());
        chunks::for_each(threads, y, outputs, |_, row| row.copy_from_slice(bias));
        product = Product::Add;
    }
    factors::<E4m3, E4m3>(call, (reads[0], params[0]), |x, weight| {
        let x = Matrix::new(x, (rows, inputs), inputs);
        let weight = Matrix::new(weight, (outputs, inputs), inputs);
        let y = MatrixMut::new(y, (rows, outputs), outputs);
        matmul(y, x, weight.transposed(), product, call.threads);
    });
}

/// `gx = gy W`
pub fn input_gradient(call: &Call, operands: Operands) {
    let LinearShape { rows, inputs, outputs } = LinearShape::new(call);
    let Operands { reads, writes, params, .. } = operands;
    factors::<E5m2, E4m3>(call, (reads[0], params[0]), |gy, weight| {
        let gy = Matrix::new(gy, (rows, outputs), outputs);
        let weight = Matrix::new(weight, (outputs, inputs), inputs);
        let gx = MatrixMut::new(writes[0], (rows, inputs), inputs);
        matmul(gx, gy, weight, Product::Overwrite, call.threads);
    });
}

/// `gW += gyᵀ x`, `gb += ` column sums of `gy`
pub fn weight_gradient(call: &Call, operands: Operands) {
    let LinearShape { rows, inputs, outputs } = LinearShape::new(call);
    let Operands { reads, gradients, .. } = operands;
    factors::<E5m2, E4m3>(call, (reads[1], reads[0]), |gy, x| {
        let x = Matrix::new(x, (rows, inputs), inputs);
        let gy = Matrix::new(gy, (rows, outputs), outputs);
        let weight = MatrixMut::new(gradients[0], (outputs, inputs), inputs);
        matmul(weight, gy.transposed(), x, Product::Add, call.threads);
    });
    if let Some(bias) = gradients.get_mut(1) {
        let threads = chunks::worth(call.threads, reads[1].len());
        chunks::for_each(threads, bias, COLUMNS, |i, bias| {
            add_columns(bias, &reads[1][i * COLUMNS..], outputs);
        });
    }
}
