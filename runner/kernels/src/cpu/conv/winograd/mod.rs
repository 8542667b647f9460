//! Convolutions of 3 x 3 with fewer multiplications (Lavin and Gray 2016): images are cut into tiles of 2 x 2
//! outputs, transformed to 16 numbers a tile (see [`tiles`]), and multiplied number by number, which over all channels
//! are 16 matrix products. All three passes share tiles, weights and blocks:
//!
//! ```text
//! forward          M [O, T] =  U [O, C]  V [C, T]      U of the weights, V of x, y of M
//! input gradient   M [C, T] =  U'ᵀ       V [O, T]      U' of the weights turned by 180°, V of gy, gx of M
//! weight gradient  N [O, C] += Z [O, T]  Vᵀ            Z of gy, V of x, gw of N
//! ```
//!
//! `U` lies `[O, 16, C]`, `N [16, O, C]`, the others `[channels, 16, T]`, so that threads share channels, of the last
//! products the frequencies.

mod tiles;
mod weights;

use super::{Weights, lanes};
use crate::cpu::chunks;
use crate::cpu::matmul::{Matrix, MatrixMut, Product, matmul, matmul_short};
use crate::{Call, Geometry};
use pipewright_core::graph::autodiff::{self, TileBlock};
use std::ops::Range;
use tiles::{Place, Rows, transform_gradient, transform_input, transform_output};

/// Numbers of a transformed tile.
const FREQUENCIES: usize = autodiff::FREQUENCIES as usize;

/// A convolution that is computed so; depends on shapes only, never on threads.
pub struct Winograd<'a> {
    call: &'a Call<'a>,
    geometry: Geometry,
    sizes: autodiff::Winograd,
}

/// One side of the convolution: images of what it reads, or of what it makes.
#[derive(Clone, Copy)]
struct Side {
    /// Channels of a group.
    channels: usize,
    size: [usize; 2],
}

impl Side {
    fn positions(&self) -> usize {
        self.size[0] * self.size[1]
    }
}

/// Where rows of tiles lie in images.
#[derive(Clone, Copy)]
struct Grid {
    groups: usize,
    /// Rows and columns of tiles of an image.
    tiles: [usize; 2],
    /// Of samples that are taken together, the first.
    first: usize,
    group: usize,
    /// How far above and left of the first pixel the first tile begins.
    padding: [usize; 2],
    /// Tiles that are multiplied at a time, of which the last may be none.
    count: usize,
    threads: usize,
}

/// What a tile becomes.
type Transform = fn(&mut Rows, &Place, usize, &mut [f32], usize);

/// Words between the frequencies of so many tiles, or channels.
fn stride(tiles: usize) -> usize {
    autodiff::Winograd::stride(tiles as u64) as usize
}

/// Words between channels with so many tiles.
fn pitch(tiles: usize) -> usize {
    autodiff::Winograd::pitch(tiles as u64) as usize
}

/// The blocks of images: tiles of an image, rows of tiles of a block, samples taken together.
fn blocks(size: [usize; 2]) -> ([usize; 2], usize, usize) {
    let block = TileBlock::new(size.map(|size| size as u64));
    (block.tiles.map(|tiles| tiles as usize), block.rows as usize, block.samples as usize)
}

impl<'a> Winograd<'a> {
    /// None where it is no such convolution, or has too few tiles.
    pub fn new(call: &'a Call<'a>) -> Option<Self> {
        let sizes = autodiff::Winograd::new(call.op, call.inputs[0], call.output)?;
        let geometry = Geometry::new(call);
        sizes.pays(call.samples).then_some(Self { call, geometry, sizes })
    }

    /// Inputs and outputs.
    fn sides(&self) -> (Side, Side) {
        let g = &self.geometry;
        (
            Side { channels: g.channels, size: g.size },
            Side { channels: g.out_channels, size: g.out },
        )
    }

    pub fn forward(&self, x: &[f32], weights: Weights, y: &mut [f32], workspace: &mut [f32]) {
        let (inputs, outputs) = self.sides();
        let padding = self.geometry.padding;
        self.pass((x, inputs), weights, (y, outputs), padding, workspace, |u, f| {
            self.frequency(u, f)
        });
    }

    pub fn input_gradient(&self, gy: &[f32], w: &[f32], gx: &mut [f32], workspace: &mut [f32]) {
        let (inputs, outputs) = self.sides();
        let padding = self.geometry.padding.map(|padding| 2 - padding);
        self.pass((gy, outputs), (w, None), (gx, inputs), padding, workspace, |u, f| {
            // Of kernels turned by 180° the first and the last row and column change places.
            let turned = |i: usize| [3, 1, 2, 0][i];
            self.frequency(u, 4 * turned(f / 4) + turned(f % 4)).transposed()
        });
    }

    /// The weights of one group at one frequency: `[O, C]`.
    fn frequency<'u>(&self, u: &'u [f32], f: usize) -> Matrix<'u> {
        let g = &self.geometry;
        Matrix::new(&u[f * stride(g.channels)..], (g.out_channels, g.channels), pitch(g.channels))
    }

    /// `to = ` the tiles of `from` times the weights of each frequency.
    fn pass(
        &self,
        (from, of): (&[f32], Side),
        (weight, bias): Weights,
        (to, side): (&mut [f32], Side),
        padding: [usize; 2],
        workspace: &mut [f32],
        frequency: impl for<'u> Fn(&'u [f32], usize) -> Matrix<'u> + Sync,
    ) {
        let (call, g) = (self.call, &self.geometry);
        let (u, workspace) = workspace.split_at_mut(self.sizes.weights() as usize);
        weights::transform(call.threads, weight, g.channels, u);
        let u = &*u;
        let (tiles, rows, together) = blocks(side.size);
        let samples = call.samples as usize;
        let sample_len = g.groups * side.channels * side.positions();
        let block = self.sizes.block() as usize;
        let (lanes, threads) =
            lanes(call.threads, samples.div_ceil(together), workspace.len() / block);
        // A last block of fewer samples is multiplied as a whole one: sums are rounded in the same places.
        let whole = (together > 1).then_some(together.min(samples) * tiles[0] * tiles[1]);
        let len = (together * sample_len, block);
        chunks::for_each_with_scratch(lanes, (to, workspace), len, |item, to, scratch| {
            for (rows, group) in each(to.len() / sample_len * tiles[0], rows, g.groups) {
                let count = whole.unwrap_or(rows.len() * tiles[1]);
                let first = item * together;
                let groups = g.groups;
                let grid = Grid { groups, tiles, first, group, padding, count, threads };
                let (v, m) = scratch.split_at_mut(of.channels * pitch(count));
                grid.transform(from, of, rows.clone(), v, transform_input);
                let u = &u[group * g.out_channels * pitch(g.channels)..];
                for f in 0..FREQUENCIES {
                    let at = f * stride(count);
                    let v = Matrix::new(&v[at..], (of.channels, count), pitch(count));
                    let shape = (side.channels, count);
                    let m = MatrixMut::new(&mut m[at..], shape, pitch(count));
                    matmul(m, frequency(u, f), v, Product::Overwrite, threads);
                }
                grid.back(m, rows, bias, to, side);
            }
        });
    }

    /// `gradient += ` that of the weights, samples in their order.
    pub fn add_products(
        &self,
        (x, gy): (&[f32], &[f32]),
        gradient: &mut [f32],
        workspace: &mut [f32],
    ) {
        let (call, g) = (self.call, &self.geometry);
        let (sums, scratch) = workspace.split_at_mut(self.sizes.weights() as usize);
        let (tiles, rows, together) = blocks(g.out);
        let (inputs, outputs) = self.sides();
        let of_group = FREQUENCIES * g.out_channels * stride(g.channels);
        let samples = call.samples as usize;
        for first in (0..samples).step_by(together) {
            let all = together.min(samples - first) * tiles[0];
            for (rows, group) in each(all, rows, g.groups) {
                let product =
                    if first + rows.start == 0 { Product::Overwrite } else { Product::Add };
                let (groups, padding, count) = (g.groups, g.padding, rows.len() * tiles[1]);
                let (v, z) = scratch.split_at_mut(g.channels * pitch(count));
                let threads = call.threads;
                let grid = Grid { groups, tiles, first, group, padding, count, threads };
                grid.transform(x, inputs, rows.clone(), v, transform_input);
                let grid = Grid { padding: [0; 2], ..grid };
                grid.transform(gy, outputs, rows, z, transform_gradient);
                let sums = &mut sums[group * of_group..][..of_group];
                // Threads share the frequencies: the products of narrow layers are small.
                let inside = (call.threads / FREQUENCIES).max(1);
                let threads = chunks::worth(call.threads, z.len());
                chunks::for_each(threads, sums, of_group / FREQUENCIES, |f, sums| {
                    let at = f * stride(count);
                    let v = Matrix::new(&v[at..], (g.channels, count), pitch(count));
                    let z = Matrix::new(&z[at..], (g.out_channels, count), pitch(count));
                    let shape = (g.out_channels, g.channels);
                    let sums = MatrixMut::new(sums, shape, stride(g.channels));
                    matmul_short(sums, z, v.transposed(), product, inside);
                });
            }
        }
        for (sums, gradient) in
            sums.chunks(of_group).zip(gradient.chunks_mut(g.out_channels * g.unfolded_rows()))
        {
            weights::add_back(call.threads, sums, g.channels, gradient);
        }
    }
}

/// Blocks of at most `rows` of `all` rows, each of all groups.
fn each(all: usize, rows: usize, groups: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
    let blocks = (0..all).step_by(rows).map(move |first| first..(first + rows).min(all));
    blocks.flat_map(move |rows| (0..groups).map(move |group| (rows.clone(), group)))
}

impl Grid {
    /// Transforms rows of tiles of one group of samples: to `[channels, 16, tiles]`.
    fn transform(
        &self,
        from: &[f32],
        side: Side,
        rows: Range<usize>,
        to: &mut [f32],
        transform: Transform,
    ) {
        let (pitch, stride) = (pitch(self.count), stride(self.count));
        let to = &mut to[..side.channels * pitch];
        let threads = chunks::worth(self.threads, to.len());
        chunks::for_each(threads, to, pitch, |channel, to| {
            let mut pixels = Rows::new();
            for (at, row) in rows.clone().enumerate() {
                let sample = self.first + row / self.tiles[0];
                let plane = (sample * self.groups + self.group) * side.channels + channel;
                let place = Place {
                    plane: &from[plane * side.positions()..][..side.positions()],
                    width: side.size[1],
                    row: (2 * (row % self.tiles[0])) as isize - self.padding[0] as isize,
                    column: -(self.padding[1] as isize),
                };
                let to = &mut to[at * self.tiles[1]..];
                transform(&mut pixels, &place, self.tiles[1], to, stride);
            }
        });
    }

    /// And products back to rows of pixels, of samples from the first on.
    fn back(
        &self,
        from: &[f32],
        rows: Range<usize>,
        bias: Option<&[f32]>,
        to: &mut [f32],
        Side { channels, size }: Side,
    ) {
        let (pitch, stride) = (pitch(self.count), stride(self.count));
        let threads = chunks::worth(self.threads, to.len());
        chunks::for_each(threads, to, size[0] * size[1], |plane, to| {
            let (sample, channel) = (plane / channels / self.groups, plane % channels);
            if plane / channels % self.groups != self.group {
                return;
            }
            let of_sample = sample * self.tiles[0]..(sample + 1) * self.tiles[0];
            let bias = bias.map_or(0.0, |bias| bias[self.group * channels + channel]);
            let from = &from[channel * pitch..][..pitch];
            for row in rows.start.max(of_sample.start)..rows.end.min(of_sample.end) {
                let pixels = 2 * (row % self.tiles[0]) * size[1];
                let to = &mut to[pixels..];
                let end = (2 * size[1]).min(to.len());
                let from = &from[(row - rows.start) * self.tiles[1]..];
                transform_output(from, stride, bias, &mut to[..end], size[1]);
            }
        });
    }
}
