//! What becomes matrix products: linear layers, products, convolutions and transposed ones.
//!
//! A convolution is unfolded (im2col) a group of some samples at a time, see the processor's; with one
//! channel a group it is computed directly.

use super::axes::elements;
use super::channels::channel_sums;
use super::elementwise::Wanted;
use super::{
    Broadcast, Buffers, ColumnSums, Combine, Depthwise, DevicePtr, Plan, Product, Source, Unfold,
    rows,
};
use crate::device::cpu::{Call, Geometry};
use pipewright_core::graph::Op;

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
    plan.product_and(args, bias);
}

/// `gx = gy W`
pub fn linear_input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (rows, inputs, outputs) = linear_shape(call);
    let gy = Matrix::new(buffers.reads[0], outputs);
    let weight = Matrix::new(buffers.params[0], inputs);
    let gx = Matrix::new(buffers.writes[0], inputs);
    plan.product(product(gy, weight, gx, [rows, inputs, outputs]), false);
}

/// `gW += gyᵀ x`, `gb += ` column sums of `gy`
pub fn linear_weight_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (rows, inputs, outputs) = linear_shape(call);
    let [x, gy] = *buffers.reads else { unreachable!("a linear layer's gradient reads x and gy") };
    let weight = Matrix::new(buffers.gradients[0], inputs);
    let gradient = Matrix::new(gy, outputs).transposed();
    let args = product(gradient, Matrix::new(x, inputs), weight, [outputs, inputs, rows]);
    plan.product(Product { accumulate: 1, ..args }, true);
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

fn pair(sizes: [usize; 2]) -> [u32; 2] {
    sizes.map(|size| size as u32)
}

/// Bytes of unfolded images at a time.
const UNFOLDED: u64 = 256 << 20;

/// A convolution's sizes with what follows from them. `large` is the image that windows slide over,
/// `small` the one with an element a window.
struct Shape {
    geometry: Geometry,
    /// Elements of a group of a sample.
    large: u64,
    small: u64,
    /// Rows of the unfolded form, and its columns.
    rows: u64,
    positions: u64,
    /// Rows of a group's weights.
    outputs: u64,
    /// Samples that are unfolded at a time.
    together: u64,
}

impl Shape {
    fn new(call: &Call, plan: &Plan) -> Self {
        let geometry = Geometry::new(call);
        let (large, small) = geometry.group_len();
        let (rows, positions) = (geometry.unfolded_rows() as u64, geometry.positions() as u64);
        let together = (UNFOLDED / (rows * positions * plan.bytes()).max(1)).clamp(1, call.samples);
        let (large, small, outputs) = (large as u64, small as u64, geometry.out_channels as u64);
        Self { geometry, large, small, rows, positions, outputs, together }
    }

    fn groups(&self) -> u64 {
        self.geometry.groups as u64
    }

    /// Scratch for the unfolded form; none where an image is its own.
    fn scratch(&self, plan: &mut Plan) -> DevicePtr {
        if self.geometry.is_pointwise() {
            return DevicePtr::NULL;
        }
        plan.scratch(self.together * self.rows * self.positions * plan.bytes())
    }

    /// Places of a group of samples from `sample` on, in the large images and in the small ones.
    fn places(&self, sample: u64, group: u64, plan: &Plan) -> [u64; 2] {
        let place = sample * self.groups() + group;
        [place * self.large * plan.bytes(), place * self.small * plan.bytes()]
    }

    /// A group's weights.
    fn weight(&self, weight: DevicePtr, group: u64, bytes: u64) -> Matrix {
        let place = group * self.outputs * self.rows * bytes;
        Matrix::new(weight.after(place), self.rows)
    }

    /// Steps of samples and groups: (first sample, samples, group).
    fn parts(&self, samples: u64) -> Vec<(u64, u64, u64)> {
        let starts = (0..samples).step_by(self.together as usize);
        let part = |from: u64| (from, self.together.min(samples - from));
        starts
            .flat_map(|from| (0..self.groups()).map(move |group| (part(from), group)))
            .map(|((from, count), group)| (from, count, group))
            .collect()
    }

    fn columns(&self, x: DevicePtr, out: DevicePtr, samples: u64) -> Unfold {
        let g = &self.geometry;
        Unfold {
            x,
            out,
            samples,
            sample_stride: self.groups() * self.large,
            channels: g.channels as u32,
            size: pair(g.size),
            out_size: pair(g.out),
            kernel: pair(g.kernel),
            stride: pair(g.stride),
            padding: pair(g.padding),
            dilation: pair(g.dilation),
        }
    }

    /// The unfolded form of samples at `image`, and elements from one sample to the next.
    fn unfold(
        &self,
        image: DevicePtr,
        scratch: DevicePtr,
        samples: u64,
        plan: &mut Plan,
    ) -> (Matrix, u64) {
        if self.geometry.is_pointwise() {
            return (Matrix::new(image, self.positions), self.groups() * self.large);
        }
        let items = samples * self.rows * self.positions;
        plan.over(Source::Layout, "unfold", items, self.columns(image, scratch, samples));
        (Matrix::new(scratch, self.positions), self.rows * self.positions)
    }

    /// `small = W U(large)`
    fn gather(
        &self,
        call: &Call,
        plan: &mut Plan,
        weight: DevicePtr,
        large: DevicePtr,
        small: DevicePtr,
    ) {
        let scratch = self.scratch(plan);
        for (sample, samples, group) in self.parts(call.samples) {
            let [at_large, at_small] = self.places(sample, group, plan);
            let (columns, step) = self.unfold(large.after(at_large), scratch, samples, plan);
            let weight = self.weight(weight, group, plan.bytes());
            let out = Matrix::new(small.after(at_small), self.positions);
            let args = product(weight, columns, out, [self.outputs, self.positions, self.rows]);
            let args = Product {
                batch: [1, samples as u32],
                b_batch: [0, step],
                c_batch: [0, self.groups() * self.small],
                ..args
            };
            plan.product(args, false);
        }
    }

    /// `large = fold(Wᵀ small)`
    fn scatter(
        &self,
        call: &Call,
        plan: &mut Plan,
        weight: DevicePtr,
        small: DevicePtr,
        large: DevicePtr,
    ) {
        let scratch = self.scratch(plan);
        for (sample, samples, group) in self.parts(call.samples) {
            let [at_large, at_small] = self.places(sample, group, plan);
            let large = large.after(at_large);
            let (columns, step) = match self.geometry.is_pointwise() {
                true => (large, self.groups() * self.large),
                false => (scratch, self.rows * self.positions),
            };
            let weight = self.weight(weight, group, plan.bytes()).transposed();
            let from = Matrix::new(small.after(at_small), self.positions);
            let out = Matrix::new(columns, self.positions);
            let args = product(weight, from, out, [self.rows, self.positions, self.outputs]);
            let args = Product {
                batch: [1, samples as u32],
                b_batch: [0, self.groups() * self.small],
                c_batch: [0, step],
                ..args
            };
            plan.product(args, false);
            if !self.geometry.is_pointwise() {
                let args = self.columns(scratch, large, samples);
                plan.over(Source::Layout, "fold", samples * self.large, args);
            }
        }
    }

    /// `gW += small U(large)ᵀ`, sample after sample.
    fn weights(
        &self,
        call: &Call,
        plan: &mut Plan,
        [large, small]: [DevicePtr; 2],
        gradient: DevicePtr,
    ) {
        let scratch = self.scratch(plan);
        for (sample, samples, group) in self.parts(call.samples) {
            let [at_large, at_small] = self.places(sample, group, plan);
            let (columns, step) = self.unfold(large.after(at_large), scratch, samples, plan);
            let gradient = self.weight(gradient, group, 4);
            for i in 0..samples {
                let columns = Matrix(columns.0.after(i * step * plan.bytes()), columns.1);
                let place = at_small + i * self.groups() * self.small * plan.bytes();
                let from = Matrix::new(small.after(place), self.positions);
                let sizes = [self.outputs, self.rows, self.positions];
                let args = product(from, columns.transposed(), gradient, sizes);
                plan.product(Product { accumulate: 1, ..args }, true);
            }
        }
    }
}

/// A convolution with one channel a group; none of the others.
fn depthwise(call: &Call) -> Option<Depthwise> {
    let g = Geometry::new(call);
    let transposed = matches!(call.op, Op::ConvTranspose2d { .. });
    (g.channels == 1 && g.groups > 1 && !transposed).then(|| Depthwise {
        samples: call.samples,
        channels: g.groups as u64,
        multiplier: g.out_channels as u32,
        size: pair(g.size),
        out_size: pair(g.out),
        kernel: pair(g.kernel),
        stride: pair(g.stride),
        padding: pair(g.padding),
        dilation: pair(g.dilation),
        ..Depthwise::default()
    })
}

/// Adds a bias per channel to the output.
fn add_bias(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let Some(bias) = buffers.params.get(1) else { return };
    let [channels, rows, columns] = call.output.shape[..] else {
        unreachable!("an image has three axes");
    };
    let (out, plane) = (buffers.writes[0], rows * columns);
    let mut axes = super::axes::Axes::<2>::new();
    axes.push(0, call.samples, [channels * plane, 0]);
    axes.push(0, channels, [plane, 1]);
    axes.push(0, plane, [1, 0]);
    let args = Broadcast {
        a: out,
        b: *bias,
        out,
        count: call.samples * channels * plane,
        a_strides: axes.strides[0],
        b_strides: axes.strides[1],
        sizes: axes.sizes,
        rank: axes.rank as u32,
        op: Combine::Sum as u32,
    };
    plan.over(Source::Layout, "broadcast", args.count, args);
}

pub fn forward(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (x, y, weight) = (buffers.reads[0], buffers.writes[0], buffers.params[0]);
    if let Some(args) = depthwise(call) {
        let bias = buffers.params.get(1).copied().unwrap_or_default();
        let items = call.samples * call.output.elements();
        let args = Depthwise { x, out: y, weight, bias, ..args };
        return plan.over(Source::Channels, "depthwise", items, args);
    }
    Shape::new(call, plan).gather(call, plan, weight, x, y);
    add_bias(call, buffers, plan);
}

pub fn input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (gy, gx, weight) = (buffers.reads[0], buffers.writes[0], buffers.params[0]);
    if let Some(args) = depthwise(call) {
        let items = call.samples * call.inputs[0].elements();
        let args = Depthwise { gy, out: gx, weight, ..args };
        return plan.over(Source::Channels, "depthwise_gradient", items, args);
    }
    Shape::new(call, plan).scatter(call, plan, weight, gy, gx);
}

pub fn weight_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, gy] = *buffers.reads else { unreachable!("a convolution's gradient reads x and gy") };
    let out = buffers.gradients[0];
    if let Some(args) = depthwise(call) {
        let elements = args.channels * u64::from(args.multiplier * args.kernel[0] * args.kernel[1]);
        let args = Depthwise { x, gy, out, ..args };
        plan.blocks(Source::Channels, "depthwise_weights", elements, args);
    } else {
        Shape::new(call, plan).weights(call, plan, [x, gy], out);
    }
    if let Some(bias) = buffers.gradients.get(1) {
        channel_sums(call, gy, *bias, plan);
    }
}

/// A transposed convolution is the input gradient of another one.
pub fn transposed_forward(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (x, y) = (buffers.reads[0], buffers.writes[0]);
    Shape::new(call, plan).scatter(call, plan, buffers.params[0], x, y);
    add_bias(call, buffers, plan);
}

pub fn transposed_input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (gy, gx) = (buffers.reads[0], buffers.writes[0]);
    Shape::new(call, plan).gather(call, plan, buffers.params[0], gy, gx);
}

pub fn transposed_weight_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, gy] = *buffers.reads else { unreachable!("a convolution's gradient reads x and gy") };
    Shape::new(call, plan).weights(call, plan, [gy, x], buffers.gradients[0]);
    if let Some(bias) = buffers.gradients.get(1) {
        channel_sums(call, gy, *bias, plan);
    }
}
