//! Convolutions as matrix products, one group of one sample at a time.
//!
//! `x [samples, C, H, W]`, weight `[O, C / groups, kernel..]`, `y [samples, O, rows, columns]`.
//! With `U` the unfolded image (see [`unfold`](super::unfold)) and all else seen as matrices:
//!
//! ```text
//! forward          y [O, P]  =  W [O, K]  U [K, P]
//! input gradient   gU [K, P] =  Wᵀ        gy [O, P]     then folded back and added up
//! weight gradient  gW [O, K] += gy        Uᵀ
//! ```
//!
//! The workspace would hold all `P` positions of `U`; unfolding some output rows at a time keeps
//! them in the second-level cache, where the product finds them again.

use super::chunks;
use super::matmul::{Matrix, MatrixMut, Product, matmul};
use super::sums::sum;
use super::unfold::{Geometry, fold_add, unfold};
use super::{Call, Operands};
use std::ops::Range;

/// Words of unfolded image that stay in the second-level cache beside the weights: 512 KiB.
const UNFOLDED_WORDS: usize = 1 << 17;

/// Least number of positions for which reading the weights once more is worth it.
const LEAST_POSITIONS: usize = 256;

/// How one convolution is cut into products; depends on its shape only, never on threads, so that
/// sums over positions always break at the same places.
struct Blocks {
    geometry: Geometry,
    /// Output rows in one product.
    rows: usize,
}

impl Blocks {
    fn new(call: &Call) -> Self {
        let geometry = Geometry::new(call);
        let all = geometry.out[0];
        if geometry.is_pointwise() {
            return Self { geometry, rows: all };
        }
        let positions = (UNFOLDED_WORDS / geometry.unfolded_rows()).max(LEAST_POSITIONS);
        let rows = positions.div_ceil(geometry.out[1]).min(all);
        // Blocks of equal height: a thin last one would waste a pass over the weights.
        Self { geometry, rows: all.div_ceil(all.div_ceil(rows)) }
    }

    /// Workspace of one thread in words.
    fn scratch(&self) -> usize {
        if self.geometry.is_pointwise() {
            return 0;
        }
        self.geometry.unfolded_rows() * self.rows * self.geometry.out[1]
    }

    /// Threads that work on different samples, and threads inside each product. Samples are
    /// shared out when there is scratch for it: products of one sample are small.
    fn threads(&self, call: &Call, workspace: usize) -> (usize, usize) {
        let room = workspace.checked_div(self.scratch()).unwrap_or(usize::MAX);
        let lanes = call.threads.min(call.samples as usize).min(room);
        if lanes > 1 { (lanes, 1) } else { (1, call.threads) }
    }

    fn each(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (all, rows) = (self.geometry.out[0], self.rows);
        (0..all).step_by(rows).map(move |first| first..(first + rows).min(all))
    }

    /// Runs `work(group, block of output rows)` for all of them.
    fn for_each_group(&self, mut work: impl FnMut(usize, Range<usize>)) {
        for group in 0..self.geometry.groups {
            self.each().for_each(|rows| work(group, rows));
        }
    }
}

pub fn forward(call: &Call, operands: Operands) {
    let Operands { reads, writes, params, workspace, .. } = operands;
    let blocks = Blocks::new(call);
    let g = blocks.geometry;
    let (x_group, y_group) = g.group_len();
    let (weight, bias) = (&*params[0], params.get(1).map(|bias| &**bias));
    let product = if bias.is_some() { Product::Add } else { Product::Overwrite };
    let (lanes, threads) = blocks.threads(call, workspace.len());
    let len = (g.groups * y_group, blocks.scratch());
    for_each_sample(lanes, (writes[0], workspace), len, |sample, y, scratch| {
        if let Some(bias) = bias {
            let planes = y.chunks_exact_mut(g.positions()).zip(bias);
            planes.for_each(|(plane, bias)| plane.fill(*bias));
        }
        blocks.for_each_group(|group, rows| {
            let x = &reads[0][(sample * g.groups + group) * x_group..][..x_group];
            let image = unfolded(&g, x, rows.clone(), scratch);
            let y = &mut y[group * y_group..][..y_group][rows.start * g.out[1]..];
            let shape = (g.out_channels, rows.len() * g.out[1]);
            let y = MatrixMut::new(y, shape, g.positions());
            matmul(y, group_weight(&g, weight, group), image, product, threads);
        });
    });
}

pub fn input_gradient(call: &Call, operands: Operands) {
    let Operands { reads, writes, params, workspace, .. } = operands;
    let blocks = Blocks::new(call);
    let g = blocks.geometry;
    let (x_group, y_group) = g.group_len();
    let weight = &*params[0];
    let (lanes, threads) = blocks.threads(call, workspace.len());
    let len = (g.groups * x_group, blocks.scratch());
    for_each_sample(lanes, (writes[0], workspace), len, |sample, gx, scratch| {
        if !g.is_pointwise() {
            gx.fill(0.0);
        }
        blocks.for_each_group(|group, rows| {
            let gy = &reads[0][(sample * g.groups + group) * y_group..][..y_group];
            let gy = output_rows(&g, gy, rows.clone());
            let weight = group_weight(&g, weight, group).transposed();
            let gx = &mut gx[group * x_group..][..x_group];
            let shape = (g.unfolded_rows(), rows.len() * g.out[1]);
            if g.is_pointwise() {
                let gx = MatrixMut::new(gx, shape, shape.1);
                return matmul(gx, weight, gy, Product::Overwrite, threads);
            }
            let unfolded = &mut scratch[..shape.0 * shape.1];
            let image = MatrixMut::new(unfolded, shape, shape.1);
            matmul(image, weight, gy, Product::Overwrite, threads);
            fold_add(&g, unfolded, rows, gx);
        });
    });
}

/// Samples add to one gradient, so they come one after the other and only the products are split.
pub fn weight_gradient(call: &Call, operands: Operands) {
    let Operands { reads, gradients, workspace, .. } = operands;
    let blocks = Blocks::new(call);
    let g = blocks.geometry;
    let (x_group, y_group) = g.group_len();
    let w_group = g.out_channels * g.unfolded_rows();
    for sample in 0..call.samples as usize {
        blocks.for_each_group(|group, rows| {
            let at = sample * g.groups + group;
            let image = unfolded(&g, &reads[0][at * x_group..][..x_group], rows.clone(), workspace);
            let gy = output_rows(&g, &reads[1][at * y_group..][..y_group], rows);
            let gradient = &mut gradients[0][group * w_group..][..w_group];
            let shape = (g.out_channels, g.unfolded_rows());
            let gradient = MatrixMut::new(gradient, shape, shape.1);
            matmul(gradient, gy, image.transposed(), Product::Add, call.threads);
        });
    }
    if let Some(bias) = gradients.get_mut(1) {
        for sample in reads[1].chunks_exact(g.groups * y_group) {
            let planes = sample.chunks_exact(g.positions());
            bias.iter_mut().zip(planes).for_each(|(bias, plane)| *bias += sum(plane));
        }
    }
}

/// Runs `work(sample, its part of the data, scratch)`.
fn for_each_sample(
    lanes: usize,
    (data, workspace): (&mut [f32], &mut [f32]),
    len: (usize, usize),
    work: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    if len.1 == 0 {
        chunks::for_each(lanes, data, len.0, |sample, data| work(sample, data, &mut []));
    } else {
        chunks::for_each_with_scratch(lanes, (data, workspace), len, work);
    }
}

/// The weight of one group: `[out_channels, unfolded_rows]`.
fn group_weight<'a>(g: &Geometry, weight: &'a [f32], group: usize) -> Matrix<'a> {
    let shape = (g.out_channels, g.unfolded_rows());
    Matrix::new(&weight[group * shape.0 * shape.1..], shape, shape.1)
}

/// The output rows `rows` of one group of one sample: `[out_channels, positions]`.
fn output_rows<'a>(g: &Geometry, y: &'a [f32], rows: Range<usize>) -> Matrix<'a> {
    let shape = (g.out_channels, rows.len() * g.out[1]);
    Matrix::new(&y[rows.start * g.out[1]..], shape, g.positions())
}

/// The unfolded form of output rows `rows`, made in `scratch` unless the image is it already.
fn unfolded<'a>(
    g: &Geometry,
    image: &'a [f32],
    rows: Range<usize>,
    scratch: &'a mut [f32],
) -> Matrix<'a> {
    let shape = (g.unfolded_rows(), rows.len() * g.out[1]);
    if g.is_pointwise() {
        return Matrix::new(image, shape, shape.1);
    }
    unfold(g, image, rows, scratch);
    Matrix::new(scratch, shape, shape.1)
}
