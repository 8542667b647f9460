//! Local response normalisation (Krizhevsky et al. 2012): every channel divided by what its
//! neighbours amount to.
//!
//! `x [samples, C, ..]`; with `D_c = k + alpha / size Σ x_j²` over the channels `j` of `c`'s window
//! `c - size / 2 .. c + (size - 1) / 2`, as in PyTorch:
//!
//! ```text
//! forward         y_c = x_c D_c^-beta
//! input gradient  gx_c = gy_c D_c^-beta - 2 alpha beta / size x_c Σ gy_j x_j D_j^(-beta - 1)
//!                 over the channels j whose windows contain c
//! ```
//!
//! `D` is saved.

use super::chunks;
use super::vector::vectorised;
use crate::{Call, Operands};
use pipewright_core::graph::Op;
use std::ops::Range;

struct LocalResponseShape {
    channels: usize,
    plane: usize,
    size: usize,
    /// alpha / size
    share: f32,
    beta: f32,
    k: f32,
}

impl LocalResponseShape {
    fn new(call: &Call) -> Self {
        let Op::LocalResponseNorm { size, alpha, beta, k } = call.op else {
            unreachable!("{} is no local response normalisation", call.op.name());
        };
        let channels = call.output.shape[0];
        Self {
            channels: channels as usize,
            plane: (call.output.elements() / channels) as usize,
            size: *size as usize,
            share: alpha / *size as f32,
            beta: *beta,
            k: *k,
        }
    }

    fn sample_len(&self) -> usize {
        self.channels * self.plane
    }

    /// The channels that `channel`'s window contains.
    fn window(&self, channel: usize) -> Range<usize> {
        let start = channel.saturating_sub(self.size / 2);
        start..(channel + self.size.div_ceil(2)).min(self.channels)
    }

    /// The channels whose windows contain `channel`.
    fn reached(&self, channel: usize) -> Range<usize> {
        let start = (channel + 1).saturating_sub(self.size.div_ceil(2));
        start..(channel + self.size / 2 + 1).min(self.channels)
    }
}

vectorised! {
    fn add_squares(sum: &mut [f32], x: &[f32], share: f32) {
        sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += share * x * x);
    }

    /// `y = x D^-3/4`: the usual power, by square roots.
    fn usual(y: &mut [f32], x: &[f32], d: &[f32]) {
        for ((y, x), d) in y.iter_mut().zip(x).zip(d) {
            let root = d.sqrt();
            *y = x / (root * root.sqrt());
        }
    }

    /// `sum += gy x D^-7/4`
    fn usual_terms(sum: &mut [f32], x: &[f32], d: &[f32], gy: &[f32]) {
        for (((sum, x), d), gy) in sum.iter_mut().zip(x).zip(d).zip(gy) {
            let root = d.sqrt();
            *sum += gy * x / (root * root.sqrt() * d);
        }
    }

    fn finish(gx: &mut [f32], x: &[f32], direct: &[f32], factor: f32) {
        for ((gx, x), direct) in gx.iter_mut().zip(x).zip(direct) {
            *gx = direct - factor * x * *gx;
        }
    }
}

/// `y = x D^-beta`
fn divide(y: &mut [f32], x: &[f32], d: &[f32], beta: f32) {
    if beta == 0.75 {
        return usual(y, x, d);
    }
    for ((y, x), d) in y.iter_mut().zip(x).zip(d) {
        *y = x * d.powf(-beta);
    }
}

pub fn forward(call: &Call, operands: Operands) {
    let shape = LocalResponseShape::new(call);
    let x = operands.reads[0];
    let [y, saved] = operands.writes else {
        unreachable!("a local response normalisation writes its output and the sums");
    };
    let threads = chunks::worth(call.threads, x.len());
    let len = (shape.plane, shape.plane);
    chunks::for_each_pair(threads, (y, saved), len, |at, y, d| {
        let (sample, channel) = (at / shape.channels, at % shape.channels);
        let x = &x[sample * shape.sample_len()..][..shape.sample_len()];
        d.fill(shape.k);
        for neighbour in shape.window(channel) {
            add_squares(d, &x[neighbour * shape.plane..][..shape.plane], shape.share);
        }
        divide(y, &x[channel * shape.plane..][..shape.plane], d, shape.beta);
    });
}

/// Elements of a plane that are worked on at a time.
const BLOCK: usize = 512;

pub fn input_gradient(call: &Call, operands: Operands) {
    let shape = LocalResponseShape::new(call);
    let [x, gy, saved] = operands.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let factor = 2.0 * shape.share * shape.beta;
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each(threads, operands.writes[0], shape.plane, |at, gx| {
        let (sample, channel) = (at / shape.channels, at % shape.channels);
        let mut direct = [0.0; BLOCK];
        for (i, gx) in gx.chunks_mut(BLOCK).enumerate() {
            let len = gx.len();
            let part = |channel: usize| {
                let start = sample * shape.sample_len() + channel * shape.plane + i * BLOCK;
                start..start + len
            };
            let own = part(channel);
            let reached = shape.reached(channel).map(part);
            let direct = &mut direct[..len];
            gx.fill(0.0);
            for part in reached {
                let (x, d, gy) = (&x[part.clone()], &saved[part.clone()], &gy[part]);
                add_terms(gx, (x, d, gy), shape.beta);
            }
            divide(direct, &gy[own.clone()], &saved[own.clone()], shape.beta);
            finish(gx, &x[own], direct, factor);
        }
    });
}

/// `sum += gy x D^(-beta - 1)`
fn add_terms(sum: &mut [f32], (x, d, gy): (&[f32], &[f32], &[f32]), beta: f32) {
    if beta == 0.75 {
        return usual_terms(sum, x, d, gy);
    }
    for (((sum, x), d), gy) in sum.iter_mut().zip(x).zip(d).zip(gy) {
        *sum += gy * x * d.powf(-beta - 1.0);
    }
}
