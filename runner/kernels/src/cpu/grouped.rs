//! Linear layers of experts: `y [e] = x [e] W [e]ᵀ` for each expert.
//!
//! `x [samples, experts, rows, in]`, `W [experts, out, in]`, `y [samples, experts, rows, out]`.

use super::chunks;
use super::matmul::{Matrix, MatrixMut, Product, matmul};
use super::product::each;
use crate::{Call, Operands};

struct GroupedShape {
    experts: usize,
    rows: usize,
    inputs: usize,
    outputs: usize,
}

impl GroupedShape {
    fn new(call: &Call) -> Self {
        let [experts, rows, inputs] = call.inputs[0].shape[..] else {
            unreachable!("experts have rows of features");
        };
        let outputs = call.output.shape.last().copied().unwrap_or(1);
        let [experts, rows, inputs] = [experts, rows, inputs].map(|size| size as usize);
        Self { experts, rows, inputs, outputs: outputs as usize }
    }

    /// The weight of the expert whose rows are block `i` of all samples'.
    fn weight<'a>(&self, data: &'a [f32], i: usize) -> Matrix<'a> {
        let weight = &data[i % self.experts * self.outputs * self.inputs..];
        Matrix::new(weight, (self.outputs, self.inputs), self.inputs)
    }

    /// Block `i` of rows of so many features.
    fn block<'a>(&self, data: &'a [f32], i: usize, features: usize) -> Matrix<'a> {
        Matrix::new(&data[i * self.rows * features..], (self.rows, features), features)
    }
}

pub fn forward(call: &Call, operands: Operands) {
    let shape = GroupedShape::new(call);
    let (x, weight) = (operands.reads[0], &*operands.params[0]);
    each(call, operands.writes[0], (shape.rows, shape.outputs), |i, y, threads| {
        let (x, weight) = (shape.block(x, i, shape.inputs), shape.weight(weight, i));
        matmul(y, x, weight.transposed(), Product::Overwrite, threads);
    });
}

/// `gx [e] = gy [e] W [e]`
pub fn input_gradient(call: &Call, operands: Operands) {
    let shape = GroupedShape::new(call);
    let (gy, weight) = (operands.reads[0], &*operands.params[0]);
    each(call, operands.writes[0], (shape.rows, shape.inputs), |i, gx, threads| {
        let (gy, weight) = (shape.block(gy, i, shape.outputs), shape.weight(weight, i));
        matmul(gx, gy, weight, Product::Overwrite, threads);
    });
}

/// `gW [e] += gy [e]ᵀ x [e]`, sample by sample.
pub fn weight_gradient(call: &Call, operands: Operands) {
    let shape = GroupedShape::new(call);
    let Operands { reads, gradients, .. } = operands;
    let (x, gy) = (reads[0], reads[1]);
    let len = shape.outputs * shape.inputs;
    let threads = chunks::worth(call.threads, gradients[0].len());
    let (lanes, inside) = if shape.experts >= threads { (threads, 1) } else { (1, threads) };
    chunks::for_each(lanes, gradients[0], len, |expert, gradient| {
        for sample in 0..call.samples as usize {
            let i = sample * shape.experts + expert;
            let (x, gy) = (shape.block(x, i, shape.inputs), shape.block(gy, i, shape.outputs));
            let into = MatrixMut::new(gradient, (shape.outputs, shape.inputs), shape.inputs);
            matmul(into, gy.transposed(), x, Product::Add, inside);
        }
    });
}
