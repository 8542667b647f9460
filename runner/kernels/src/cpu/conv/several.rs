//! Convolutions of several samples with small images in one product: the weights of deep layers
//! are large, and reading them once a sample would take longer than multiplying.
//!
//! The unfolded images lie side by side, `[K, samples P]`, and so do the outputs, `[O, samples P]`,
//! in the workspace: a tensor has its samples one after the other.

use super::places::Places;
use super::transpose::transpose;
use super::unfold::{fold_add, unfold};
use super::{Weights, for_each_channel, group_weight, lanes};
use crate::Call;
use crate::Geometry;
use crate::cpu::chunks;
use crate::cpu::matmul::{Matrix, MatrixMut, Product, matmul};
use pipewright_core::graph::autodiff::samples_together;

/// How the samples of a convolution are taken together; depends on shapes only, never on threads.
pub struct Several<'a> {
    call: &'a Call<'a>,
    geometry: Geometry,
    /// Where unfolded elements come from, for images that are small enough.
    places: Option<Places>,
    /// Samples in one product.
    together: usize,
}

impl<'a> Several<'a> {
    /// None where samples are better taken one by one.
    pub fn new(call: &'a Call<'a>) -> Option<Self> {
        let geometry = Geometry::new(call);
        let together = samples_together(geometry.positions() as u64).min(call.samples) as usize;
        let places = Places::new(&geometry);
        (together > 1).then_some(Self { call, geometry, places, together })
    }

    /// Words of the unfolded images, and of the outputs beside them.
    fn scratch(&self) -> (usize, usize) {
        let columns = self.together * self.geometry.positions();
        (self.geometry.unfolded_rows() * columns, self.geometry.out_channels * columns)
    }

    /// Threads that work on different products, and threads inside each product.
    fn threads(&self, workspace: usize) -> (usize, usize) {
        let (images, outputs) = self.scratch();
        let items = (self.call.samples as usize).div_ceil(self.together);
        lanes(self.call.threads, items, workspace / (images + outputs))
    }

    /// Unfolds one group of `count` samples from `first` on.
    fn unfold(
        &self,
        x: &[f32],
        first: usize,
        count: usize,
        group: usize,
        images: &mut [f32],
        threads: usize,
    ) {
        let g = &self.geometry;
        let (len, _) = g.group_len();
        let stride = count * g.positions();
        let images = &mut images[..g.unfolded_rows() * stride];
        // The same channel of all samples by one thread: their rows lie side by side.
        for_each_channel(threads, g, images, stride, |g, channel, images| {
            let plane = channel * g.size[0] * g.size[1];
            for sample in 0..count {
                let x = &x[((first + sample) * g.groups + group) * len + plane..];
                let x = &x[..g.channels * g.size[0] * g.size[1]];
                let image = &mut images[sample * g.positions()..];
                match &self.places {
                    Some(places) => places.unfold(x, (image, stride)),
                    None => unfold(g, x, 0..g.out[0], (image, stride)),
                }
            }
        });
    }

    /// Where the plane of a channel of one group of a sample is in a tensor.
    fn output_plane(&self, sample: usize, group: usize, channel: usize) -> usize {
        let g = &self.geometry;
        ((sample * g.groups + group) * g.out_channels + channel) * g.positions()
    }

    /// `y = W U`
    pub fn correlate(
        &self,
        x: &[f32],
        (weight, bias): Weights,
        y: &mut [f32],
        workspace: &mut [f32],
    ) {
        let g = &self.geometry;
        let sample_len = g.groups * g.group_len().1;
        let (lanes, threads) = self.threads(workspace.len());
        let (images, outputs) = self.scratch();
        let len = (self.together * sample_len, images + outputs);
        chunks::for_each_with_scratch(lanes, (y, workspace), len, |item, y, scratch| {
            let (images, outputs) = scratch.split_at_mut(images);
            let count = y.len() / sample_len;
            let shape = (g.out_channels, count * g.positions());
            for group in 0..g.groups {
                self.unfold(x, item * self.together, count, group, images, threads);
                let image = Matrix::new(images, (g.unfolded_rows(), shape.1), shape.1);
                let out = MatrixMut::new(&mut *outputs, shape, shape.1);
                matmul(out, group_weight(g, weight, group), image, Product::Overwrite, threads);
                let threads = chunks::worth(threads, y.len());
                chunks::for_each(threads, y, sample_len, |sample, y| {
                    for channel in 0..g.out_channels {
                        let bias = bias.map_or(0.0, |bias| bias[group * g.out_channels + channel]);
                        let from = &outputs[channel * shape.1..][sample * g.positions()..];
                        let y = &mut y[self.output_plane(0, group, channel)..][..g.positions()];
                        y.iter_mut().zip(from).for_each(|(y, x)| *y = x + bias);
                    }
                });
            }
        });
    }

    /// Collects the outputs of one group of `count` samples from `first` on.
    fn gather(
        &self,
        y: &[f32],
        first: usize,
        count: usize,
        group: usize,
        outputs: &mut [f32],
        threads: usize,
    ) {
        let g = &self.geometry;
        let columns = count * g.positions();
        let outputs = &mut outputs[..g.out_channels * columns];
        let threads = chunks::worth(threads, outputs.len());
        chunks::for_each(threads, outputs, columns, |channel, row| {
            for (sample, to) in row.chunks_exact_mut(g.positions()).enumerate() {
                let from = self.output_plane(first + sample, group, channel);
                to.copy_from_slice(&y[from..][..g.positions()]);
            }
        });
    }

    /// `U = Wᵀ y`, folded back and added up to `x`.
    pub fn spread(&self, y: &[f32], (weight, bias): Weights, x: &mut [f32], workspace: &mut [f32]) {
        let g = &self.geometry;
        let sample_len = g.groups * g.group_len().0;
        let (lanes, threads) = self.threads(workspace.len());
        let (images, outputs) = self.scratch();
        let len = (self.together * sample_len, images + outputs);
        chunks::for_each_with_scratch(lanes, (x, workspace), len, |item, x, scratch| {
            let (images, outputs) = scratch.split_at_mut(images);
            let count = x.len() / sample_len;
            let columns = count * g.positions();
            match bias {
                None => x.fill(0.0),
                Some(bias) => {
                    let planes = x.chunks_exact_mut(g.size[0] * g.size[1]);
                    planes.zip(bias.iter().cycle()).for_each(|(plane, bias)| plane.fill(*bias));
                }
            }
            for group in 0..g.groups {
                let first = item * self.together;
                let rows = g.unfolded_rows();
                let weight = group_weight(g, weight, group);
                if let Some(places) = &self.places {
                    // The other way round, `yᵀ W`: then it is not the weight that is packed.
                    self.gather_turned(y, first, count, group, outputs, threads);
                    let out = Matrix::new(outputs, (columns, g.out_channels), g.out_channels);
                    let image = MatrixMut::new(&mut *images, (columns, rows), rows);
                    matmul(image, out, weight, Product::Overwrite, threads);
                    self.fold_turned(images, places, group, x, threads);
                } else {
                    self.gather(y, first, count, group, outputs, threads);
                    let out = Matrix::new(outputs, (g.out_channels, columns), columns);
                    let image = MatrixMut::new(&mut *images, (rows, columns), columns);
                    matmul(image, weight.transposed(), out, Product::Overwrite, threads);
                    self.fold(images, group, x, threads);
                }
            }
        });
    }

    /// Adds the unfolded images of one group of samples to them.
    fn fold(&self, images: &[f32], group: usize, x: &mut [f32], threads: usize) {
        let g = &self.geometry;
        let (len, _) = g.group_len();
        let stride = x.len() / (g.groups * len) * g.positions();
        let threads = chunks::worth(threads, x.len());
        chunks::for_each(threads, x, g.groups * len, |sample, x| {
            let x = &mut x[group * len..][..len];
            let image = &images[sample * g.positions()..];
            fold_add(g, (image, stride), 0..g.out[0], x);
        });
    }

    /// As [`gather`](Self::gather), but `[samples P, O]`.
    fn gather_turned(
        &self,
        y: &[f32],
        first: usize,
        count: usize,
        group: usize,
        outputs: &mut [f32],
        threads: usize,
    ) {
        let g = &self.geometry;
        let len = g.positions() * g.out_channels;
        let outputs = &mut outputs[..count * len];
        let threads = chunks::worth(threads, outputs.len());
        chunks::for_each(threads, outputs, len, |sample, to| {
            let from = self.output_plane(first + sample, group, 0);
            transpose(1, &y[from..][..len], g.out_channels, g.positions(), to, false);
        });
    }

    /// As [`fold`](Self::fold), of images `[samples P, K]`.
    fn fold_turned(
        &self,
        images: &[f32],
        places: &Places,
        group: usize,
        x: &mut [f32],
        threads: usize,
    ) {
        let g = &self.geometry;
        let (len, _) = g.group_len();
        let stride = g.positions() * g.unfolded_rows();
        let threads = chunks::worth(threads, x.len());
        chunks::for_each(threads, x, g.groups * len, |sample, x| {
            let image = &images[sample * stride..][..stride];
            places.fold_turned(image, &mut x[group * len..][..len]);
        });
    }

    /// `gradient += y Uᵀ`, samples in their order.
    pub fn add_products(
        &self,
        (x, y): (&[f32], &[f32]),
        gradient: &mut [f32],
        workspace: &mut [f32],
    ) {
        let g = &self.geometry;
        let samples = self.call.samples as usize;
        let (images, outputs) = workspace.split_at_mut(self.scratch().0);
        let shape = (g.out_channels, g.unfolded_rows());
        for first in (0..samples).step_by(self.together) {
            let count = self.together.min(samples - first);
            let columns = count * g.positions();
            for group in 0..g.groups {
                self.unfold(x, first, count, group, images, self.call.threads);
                self.gather(y, first, count, group, outputs, self.call.threads);
                let image = Matrix::new(images, (shape.1, columns), columns);
                let out = Matrix::new(outputs, (shape.0, columns), columns);
                let gradient = &mut gradient[group * shape.0 * shape.1..][..shape.0 * shape.1];
                let gradient = MatrixMut::new(gradient, shape, shape.1);
                matmul(gradient, out, image.transposed(), Product::Add, self.call.threads);
            }
        }
    }
}
