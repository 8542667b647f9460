//! Computations by matrix product: linear layers, products, convolutions and transposed ones.

mod reorder;
mod step;

use super::axes::elements;
use super::channels::channel_sums;
use super::elementwise::Wanted;
use super::fp8::{GRADIENTS, VALUES, multiply};
use super::{Buffers, ColumnSums, DevicePtr, Plan, Product, rows};
use pipewright_core::graph::Op;
use pipewright_kernels::Call;
pub use step::{ConvolutionPass, ConvolutionShape, ConvolutionStep};

/// Rows, inputs and outputs of a linear layer.
fn linear_shape(call: &Call) -> (u64, u64, u64) {
    let inputs = call.inputs[0].shape.last().copied().unwrap_or(1);
    let outputs = call.output.shape.last().copied().unwrap_or(1);
    (call.samples * call.inputs[0].elements() / inputs, inputs, outputs)
}

/// A matrix that lies row by row, or its transpose: place and strides.
#[derive(Clone, Copy)]
struct Matrix(DevicePtr, [u64; 2]);

impl Matrix {
    fn new(data: DevicePtr, columns: u64) -> Self {
        Self(data, [columns, 1])
    }

    fn transposed(self) -> Self {
        Self(self.0, [self.1[1], self.1[0]])
    }
}

/// `c = a b` of one batch, sizes `[m, n, k]`.
fn product(a: Matrix, b: Matrix, c: Matrix, [m, n, k]: [u64; 3]) -> Product {
    Product {
        a: a.0,
        b: b.0,
        c: c.0,
        a_strides: a.1,
        b_strides: b.1,
        c_strides: c.1,
        m: m as u32,
        n: n as u32,
        k: k as u32,
        batch: [1, 1],
        ..Product::default()
    }
}

/// `y = x Wᵀ + b`
pub fn linear(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (rows, inputs, outputs) = linear_shape(call);
    let x = Matrix::new(buffers.reads[0], inputs);
    let weight = Matrix::new(buffers.params[0], inputs).transposed();
    let y = Matrix::new(buffers.writes[0], outputs);
    let args = product(x, weight, y, [rows, outputs, inputs]);
    let bias = buffers.params.get(1).copied().unwrap_or_default();
    multiply(call, plan, (args, bias), false, [VALUES; 2], buffers.codes);
}

/// `gx = gy W`
pub fn linear_input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (rows, inputs, outputs) = linear_shape(call);
    let gy = Matrix::new(buffers.reads[0], outputs);
    let weight = Matrix::new(buffers.params[0], inputs);
    let gx = Matrix::new(buffers.writes[0], inputs);
    let args = product(gy, weight, gx, [rows, inputs, outputs]);
    multiply(call, plan, (args, DevicePtr::NULL), false, [GRADIENTS, VALUES], buffers.codes);
}

/// `gW += gyᵀ x`, `gb += ` column sums of `gy`
pub fn linear_weight_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (rows, inputs, outputs) = linear_shape(call);
    let [x, gy] = *buffers.reads else { unreachable!("a linear layer's gradient reads x and gy") };
    let weight = Matrix::new(buffers.gradients[0], inputs);
    let gradient = Matrix::new(gy, outputs).transposed();
    let args = product(gradient, Matrix::new(x, inputs), weight, [outputs, inputs, rows]);
    let args = Product { accumulate: 1, ..args };
    multiply(call, plan, (args, DevicePtr::NULL), true, [GRADIENTS, VALUES], DevicePtr::NULL);
    if let Some(plain) = buffers.gradients.get(1) {
        let sums = ColumnSums { gy, plain: *plain, rows, n: outputs, ..ColumnSums::default() };
        rows::column_sums(plan, sums);
    }
}

/// `m`, `n`, `k` of a product, and whether `b` is `[n, k]`.
fn matmul_shape(call: &Call) -> ([u64; 3], bool) {
    let Op::MatMul { transpose_b } = *call.op else {
        unreachable!("{} is no matrix product", call.op.name());
    };
    let last = |shape: &[u64]| [shape[shape.len() - 2], shape[shape.len() - 1]];
    let ([m, k], [_, n]) = (last(&call.inputs[0].shape), last(&call.output.shape));
    ([m, n, k], transpose_b)
}

/// As many products as there are results of `m x n`, each of neighbouring matrices.
fn batched(call: &Call, args: Product, of: [u64; 3]) -> Product {
    let last: u64 = call.output.shape.iter().rev().take(2).product();
    let count = call.samples * elements(&call.output.shape) / last;
    let batch = [1, count as u32];
    let [a_batch, b_batch, c_batch] = of.map(|len| [0, len]);
    Product { batch, a_batch, b_batch, c_batch, ..args }
}

pub fn matmul(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let ([m, n, k], transposed) = matmul_shape(call);
    let a = Matrix::new(buffers.reads[0], k);
    let b = factor(buffers.reads[1], [n, k], transposed);
    let args = product(a, b, Matrix::new(buffers.writes[0], n), [m, n, k]);
    plan.product(batched(call, args, [m * k, k * n, m * n]), false);
}

/// `b` as `[k, n]`, however it lies.
fn factor(data: DevicePtr, [n, k]: [u64; 2], transposed: bool) -> Matrix {
    if transposed { Matrix::new(data, k).transposed() } else { Matrix::new(data, n) }
}

/// `ga = gy bᵀ`, `gb = aᵀ gy`
pub fn matmul_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let ([m, n, k], transposed) = matmul_shape(call);
    let [a, b, gy] = *buffers.reads else {
        unreachable!("a product's gradient reads both factors and gy");
    };
    let gy = Matrix::new(gy, n);
    let mut writes = buffers.writes.iter();
    if let Some(ga) = writes.next_if(call.wanted & 1 != 0) {
        let b = factor(b, [n, k], transposed).transposed();
        let args = product(gy, b, Matrix::new(ga, k), [m, k, n]);
        plan.product(batched(call, args, [m * n, k * n, m * k]), false);
    }
    if let Some(gb) = writes.next_if(call.wanted & 2 != 0) {
        let gb = factor(gb, [n, k], transposed);
        let args = product(Matrix::new(a, k).transposed(), gy, gb, [k, n, m]);
        plan.product(batched(call, args, [m * k, m * n, k * n]), false);
    }
}

/// Adds a convolution to a plan: its tensors, but for what [`ConvolutionStep::new`] knows.
fn convolve(call: &Call, buffers: &Buffers, plan: &mut Plan, [x, weight, y, bias]: [DevicePtr; 4]) {
    let step = ConvolutionStep::new(call, plan.storage());
    plan.convolution(ConvolutionStep {
        x,
        weight,
        y,
        bias,
        channels_last: buffers.channels_last,
        ..step
    });
}

/// The bias, if there is one.
fn bias(buffers: &Buffers) -> DevicePtr {
    buffers.params.get(1).copied().unwrap_or_default()
}

pub fn forward(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (x, y) = (buffers.reads[0], buffers.writes[0]);
    convolve(call, buffers, plan, [x, buffers.params[0], y, bias(buffers)]);
}

pub fn input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (gy, gx) = (buffers.reads[0], buffers.writes[0]);
    convolve(call, buffers, plan, [gx, buffers.params[0], gy, DevicePtr::NULL]);
}

pub fn weight_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, gy] = *buffers.reads else { unreachable!("a convolution's gradient reads x and gy") };
    convolve(call, buffers, plan, [x, buffers.gradients[0], gy, DevicePtr::NULL]);
    channel_sums(call, buffers, gy, plan);
}

/// A transposed convolution is the input gradient of another one.
pub fn transposed_forward(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (x, y) = (buffers.reads[0], buffers.writes[0]);
    convolve(call, buffers, plan, [y, buffers.params[0], x, bias(buffers)]);
}

pub fn transposed_input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (gy, gx) = (buffers.reads[0], buffers.writes[0]);
    convolve(call, buffers, plan, [gy, buffers.params[0], gx, DevicePtr::NULL]);
}

pub fn transposed_weight_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, gy] = *buffers.reads else { unreachable!("a convolution's gradient reads x and gy") };
    convolve(call, buffers, plan, [gy, buffers.gradients[0], x, DevicePtr::NULL]);
    channel_sums(call, buffers, gy, plan);
}
