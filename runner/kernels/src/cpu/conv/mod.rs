//! Convolutions, and transposed ones, as matrix products, one group of one sample at a time.
//!
//! `x [samples, C, H, W]`, weight `[O, C / groups, kernel..]`, `y [samples, O, rows, columns]`.
//! With `U` the unfolded image (see [`unfold`]) and all else seen as matrices:
//!
//! ```text
//! forward          y [O, P]  =  W [O, K]  U [K, P]
//! input gradient   gU [K, P] =  Wᵀ        gy [O, P]     then folded back and added up
//! weight gradient  gW [O, K] += gy        Uᵀ
//! ```
//!
//! The workspace would hold all `P` positions of `U`; unfolding some output rows at a time keeps
//! them in the second-level cache, where the product finds them again. Of small images several are
//! taken together (see [`several`]).

mod depthwise;
mod places;
mod several;
mod transpose;
mod unfold;
mod winograd;

use super::chunks;
use super::matmul::{COLUMN_TILE, Matrix, MatrixMut, Product, matmul};
use super::sums::sum;
use crate::{Call, Geometry, Operands};
use depthwise::depthwise;
use several::Several;
use std::ops::Range;
use transpose::transpose;
use unfold::{fold_add, unfold};
use winograd::Winograd;

/// Words of unfolded image that stay in the second-level cache beside the weights: 1 MiB.
const UNFOLDED_WORDS: usize = 1 << 18;

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
        let most = positions.div_ceil(geometry.out[1]).min(all);
        // Of the heights from half of that on the one with the fewest tiles, the edges of blocks
        // included; of equal ones the highest, for every block is a pass over the weights.
        let tiles = |rows: usize| {
            let of = |rows: usize| (rows * geometry.out[1]).div_ceil(COLUMN_TILE);
            all / rows * of(rows) + of(all % rows)
        };
        let rows = (most.div_ceil(2)..=most).rev().min_by_key(|rows| tiles(*rows));
        Self { geometry, rows: rows.expect("an output has rows") }
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
        lanes(call.threads, call.samples as usize, room)
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
    let weights = (&*params[0], params.get(1).map(|bias| &**bias));
    if let Some(fewer) = Winograd::new(call) {
        return fewer.forward(reads[0], weights, writes[0], workspace);
    }
    match depthwise(call) {
        Some(g) => depthwise::forward(call, &g, reads[0], weights, writes[0]),
        None => correlate(call, reads[0], weights, writes[0], workspace),
    }
}

pub fn input_gradient(call: &Call, operands: Operands) {
    let Operands { reads, writes, params, workspace, .. } = operands;
    if let Some(g) = depthwise(call) {
        return depthwise::input_gradient(call, &g, reads[0], params[0], writes[0]);
    }
    if let Some(fewer) = Winograd::new(call) {
        return fewer.input_gradient(reads[0], params[0], writes[0], workspace);
    }
    spread(call, reads[0], (&*params[0], None), writes[0], workspace);
}

pub fn weight_gradient(call: &Call, operands: Operands) {
    if let Some(g) = depthwise(call) {
        return depthwise::weight_gradient(call, &g, operands);
    }
    let Operands { reads, gradients, workspace, .. } = operands;
    match Winograd::new(call) {
        Some(fewer) => fewer.add_products((reads[0], reads[1]), gradients[0], workspace),
        None => add_products(call, (reads[0], reads[1]), gradients[0], workspace),
    }
    add_sums(call, reads[1], gradients.get_mut(1));
}

/// A transposed convolution's output is the input gradient of the convolution with its weight.
pub fn transposed_forward(call: &Call, operands: Operands) {
    let Operands { reads, writes, params, workspace, .. } = operands;
    let bias = params.get(1).map(|bias| &**bias);
    spread(call, reads[0], (&*params[0], bias), writes[0], workspace);
}

/// And its input gradient is that convolution's output.
pub fn transposed_input_gradient(call: &Call, operands: Operands) {
    let Operands { reads, writes, params, workspace, .. } = operands;
    correlate(call, reads[0], (&*params[0], None), writes[0], workspace);
}

pub fn transposed_weight_gradient(call: &Call, operands: Operands) {
    let Operands { reads, gradients, workspace, .. } = operands;
    add_products(call, (reads[1], reads[0]), gradients[0], workspace);
    add_sums(call, reads[1], gradients.get_mut(1));
}

/// A weight and, where there is one, a bias per channel of what is written.
type Weights<'a> = (&'a [f32], Option<&'a [f32]>);

/// `y = W U`
fn correlate(
    call: &Call,
    x: &[f32],
    (weight, bias): Weights,
    y: &mut [f32],
    workspace: &mut [f32],
) {
    if let Some(several) = Several::new(call) {
        return several.correlate(x, (weight, bias), y, workspace);
    }
    let blocks = Blocks::new(call);
    let g = blocks.geometry;
    let (x_group, y_group) = g.group_len();
    let product = if bias.is_some() { Product::Add } else { Product::Overwrite };
    let (lanes, threads) = blocks.threads(call, workspace.len());
    let len = (g.groups * y_group, blocks.scratch());
    for_each_sample(lanes, (y, workspace), len, |sample, y, scratch| {
        if let Some(bias) = bias {
            let planes = y.chunks_exact_mut(g.positions()).zip(bias);
            planes.for_each(|(plane, bias)| plane.fill(*bias));
        }
        blocks.for_each_group(|group, rows| {
            let x = &x[(sample * g.groups + group) * x_group..][..x_group];
            let image = unfolded(&g, x, rows.clone(), scratch, threads);
            let y = &mut y[group * y_group..][..y_group][rows.start * g.out[1]..];
            let shape = (g.out_channels, rows.len() * g.out[1]);
            let y = MatrixMut::new(y, shape, g.positions());
            matmul(y, group_weight(&g, weight, group), image, product, threads);
        });
    });
}

/// `U = Wᵀ y`, folded back and added up to `x`.
fn spread(call: &Call, y: &[f32], (weight, bias): Weights, x: &mut [f32], workspace: &mut [f32]) {
    if let Some(several) = Several::new(call) {
        return several.spread(y, (weight, bias), x, workspace);
    }
    let blocks = Blocks::new(call);
    let g = blocks.geometry;
    let (x_group, y_group) = g.group_len();
    let (turned, workspace) = turned_weights(call, &blocks, weight, workspace);
    let (lanes, threads) = blocks.threads(call, workspace.len());
    let len = (g.groups * x_group, blocks.scratch());
    for_each_sample(lanes, (x, workspace), len, |sample, x, scratch| {
        match bias {
            None if g.is_pointwise() => {}
            None => x.fill(0.0),
            Some(bias) => {
                let planes = x.chunks_exact_mut(g.size[0] * g.size[1]).zip(bias);
                planes.for_each(|(plane, bias)| plane.fill(*bias));
            }
        }
        blocks.for_each_group(|group, rows| {
            let y = &y[(sample * g.groups + group) * y_group..][..y_group];
            let y = output_rows(&g, y, rows.clone());
            let weight = match turned {
                Some(turned) => {
                    let shape = (g.unfolded_rows(), g.out_channels);
                    Matrix::new(&turned[group * shape.0 * shape.1..], shape, shape.1)
                }
                None => group_weight(&g, weight, group).transposed(),
            };
            let x = &mut x[group * x_group..][..x_group];
            let shape = (g.unfolded_rows(), rows.len() * g.out[1]);
            if g.is_pointwise() {
                let x = MatrixMut::new(x, shape, shape.1);
                let product = if bias.is_some() { Product::Add } else { Product::Overwrite };
                return matmul(x, weight, y, product, threads);
            }
            let unfolded = &mut scratch[..shape.0 * shape.1];
            let image = MatrixMut::new(unfolded, shape, shape.1);
            matmul(image, weight, y, Product::Overwrite, threads);
            let plane = g.size[0] * g.size[1];
            let kernel = g.kernel[0] * g.kernel[1];
            let threads = chunks::worth(threads, unfolded.len());
            chunks::for_each(threads, x, plane, |channel, x| {
                let lines = &unfolded[channel * kernel * shape.1..];
                fold_add(&Geometry { channels: 1, ..g }, (lines, shape.1), rows.clone(), x);
            });
        });
    });
}

/// Products for which a factor is turned: fewer make up for it.
const WORTH_TURNING: usize = 4;

/// The weights of all groups as `[unfolded_rows, out_channels]`, where there are several products
/// with them and the workspace has room; and the rest of the workspace.
fn turned_weights<'a>(
    call: &Call,
    blocks: &Blocks,
    weight: &[f32],
    workspace: &'a mut [f32],
) -> (Option<&'a [f32]>, &'a mut [f32]) {
    let g = &blocks.geometry;
    let products = call.samples as usize * blocks.each().count();
    if products < WORTH_TURNING || workspace.len() < weight.len() + blocks.scratch() {
        return (None, workspace);
    }
    let (turned, rest) = workspace.split_at_mut(weight.len());
    let (rows, columns) = (g.out_channels, g.unfolded_rows());
    let len = rows * columns;
    for (weight, turned) in weight.chunks_exact(len).zip(turned.chunks_exact_mut(len)) {
        transpose(call.threads, weight, rows, columns, turned, false);
    }
    (Some(turned), rest)
}

/// `gradient += y Uᵀ`. Samples add to one gradient, so they come one after the other and only the
/// products are split.
fn add_products(
    call: &Call,
    (x, y): (&[f32], &[f32]),
    gradient: &mut [f32],
    workspace: &mut [f32],
) {
    if let Some(several) = Several::new(call) {
        return several.add_products((x, y), gradient, workspace);
    }
    let blocks = Blocks::new(call);
    let g = blocks.geometry;
    let (x_group, y_group) = g.group_len();
    let (shape, samples) = ((g.out_channels, g.unfolded_rows()), call.samples as usize);
    let len = shape.0 * shape.1;
    // Where there is room for it the products' sum is made the other way round, `U yᵀ`: `y` is the
    // smaller one to pack.
    let turned = samples * g.positions() >= WORTH_TURNING * shape.0
        && workspace.len() >= len + blocks.scratch();
    let (sums, scratch) = workspace.split_at_mut(if turned { len } else { 0 });
    for (group, gradient) in gradient.chunks_exact_mut(len).enumerate() {
        sums.fill(0.0);
        for (sample, rows) in (0..samples).flat_map(|s| blocks.each().map(move |rows| (s, rows))) {
            let at = sample * g.groups + group;
            let image = &x[at * x_group..][..x_group];
            let image = unfolded(&g, image, rows.clone(), scratch, call.threads);
            let y = output_rows(&g, &y[at * y_group..][..y_group], rows);
            if turned {
                let sums = MatrixMut::new(sums, (shape.1, shape.0), shape.0);
                matmul(sums, image, y.transposed(), Product::Add, call.threads);
            } else {
                let gradient = MatrixMut::new(gradient, shape, shape.1);
                matmul(gradient, y, image.transposed(), Product::Add, call.threads);
            }
        }
        if turned {
            transpose(call.threads, sums, shape.1, shape.0, gradient, true);
        }
    }
}

/// Adds the sums of the output's gradient over samples and positions to the bias's.
fn add_sums(call: &Call, gy: &[f32], bias: Option<&mut &mut [f32]>) {
    let Some(bias) = bias else { return };
    let positions = (call.output.shape[1] * call.output.shape[2]) as usize;
    let sample_len = bias.len() * positions;
    chunks::for_each(chunks::worth(call.threads, gy.len()), bias, 1, |channel, bias| {
        for sample in gy.chunks_exact(sample_len) {
            bias[0] += sum(&sample[channel * positions..][..positions]);
        }
    });
}

/// Threads that work on different items, each with its scratch, and threads inside each item.
/// Items are shared out as long as that leaves no thread idle for long.
fn lanes(threads: usize, items: usize, scratches: usize) -> (usize, usize) {
    let even = items.is_multiple_of(threads.max(1)) || items >= 4 * threads;
    if even && scratches >= threads { (threads, 1) } else { (1, threads) }
}

/// Channels that one thread takes at a time.
const CHANNELS: usize = 4;

/// Runs `work(geometry of some channels, the first of them, their unfolded rows)` for all channels
/// of an unfolded image whose rows begin `stride` elements apart.
fn for_each_channel(
    threads: usize,
    g: &Geometry,
    unfolded: &mut [f32],
    stride: usize,
    work: impl Fn(&Geometry, usize, &mut [f32]) + Sync,
) {
    let rows = g.kernel[0] * g.kernel[1] * stride;
    let threads = chunks::worth(threads, unfolded.len());
    chunks::for_each(threads, unfolded, CHANNELS * rows, |part, unfolded| {
        let channels = unfolded.len() / rows;
        work(&Geometry { channels, ..*g }, part * CHANNELS, unfolded);
    });
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
    threads: usize,
) -> Matrix<'a> {
    let shape = (g.unfolded_rows(), rows.len() * g.out[1]);
    if g.is_pointwise() {
        return Matrix::new(image, shape, shape.1);
    }
    let unfolded = &mut scratch[..shape.0 * shape.1];
    for_each_channel(threads, g, unfolded, shape.1, |g, first, unfolded| {
        unfold(g, &image[first * g.size[0] * g.size[1]..], rows.clone(), (unfolded, shape.1));
    });
    Matrix::new(scratch, shape, shape.1)
}
