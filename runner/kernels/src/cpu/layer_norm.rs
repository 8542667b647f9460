//! Normalisation over the last axis: layer norm (Ba et al. 2016) and RMS norm (Zhang and
//! Sennrich 2019).
//!
//! `x [rows, n]`, every axis before the last one being rows; sums over one row:
//!
//! ```text
//! layer norm   mean = Σx / n   s = 1 / sqrt(Σ(x - mean)² / n + eps)   x̂ = (x - mean) s
//! RMS norm     mean = 0        s = 1 / sqrt(Σx² / n + eps)            x̂ = x s
//! forward          y = weight x̂ + bias
//! input gradient   gx = s (g - Σg / n - x̂ Σ(g x̂) / n)   with g = weight gy; no Σg in RMS norm
//! weight gradient  gweight += Σ(gy x̂)   gbias += Σgy   over rows
//! ```
//!
//! Saved for each row: mean (layer norm only) and `s`.

use super::chunks;
use super::sums::lanes;
use super::vector::vectorised;
use crate::{Call, Operands};
use pipewright_core::graph::Op;

/// Sizes of a normalisation.
struct LayerNormShape {
    n: usize,
    eps: f32,
    /// Whether rows are centred: layer norm.
    centred: bool,
}

impl LayerNormShape {
    fn new(call: &Call) -> Self {
        let n = call.output.shape.last().copied().unwrap_or(1) as usize;
        match call.op {
            Op::LayerNorm { eps } => Self { n, eps: *eps, centred: true },
            Op::RmsNorm { eps } => Self { n, eps: *eps, centred: false },
            other => unreachable!("{} does not normalise rows", other.name()),
        }
    }

    /// Words saved for one row.
    fn saved(&self) -> usize {
        1 + usize::from(self.centred)
    }

    /// Mean and scale of a row from what was saved.
    fn statistics(&self, saved: &[f32], row: usize) -> (f32, f32) {
        match &saved[row * self.saved()..][..self.saved()] {
            [mean, scale] => (*mean, *scale),
            [scale] => (0.0, *scale),
            _ => unreachable!("one or two words a row"),
        }
    }
}

/// Rows that one thread takes at a time.
const ROWS: usize = 16;

/// Columns whose sums over rows one thread holds in registers.
const COLUMNS: usize = 64;

vectorised! {
    fn forward_row(y: &mut [f32], x: &[f32], weight: &[f32], bias: &[f32], mean: f32, scale: f32) {
        if bias.is_empty() {
            y.iter_mut().zip(x).zip(weight).for_each(|((y, x), w)| *y = x * scale * w);
        } else {
            for (((y, x), w), b) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                *y = (x - mean) * scale * w + b;
            }
        }
    }

    fn row_sum(x: &[f32]) -> f32 {
        lanes([x; 3], |x, _, _| x)
    }

    /// Sum of the squares around `mean`.
    fn row_squares(x: &[f32], mean: f32) -> f32 {
        lanes([x; 3], |x, _, _| (x - mean) * (x - mean))
    }

    fn gradient_row(
        gx: &mut [f32], x: &[f32], gy: &[f32], weight: &[f32], centred: bool, mean: f32, scale: f32,
    ) {
        let n = x.len() as f32;
        let along = lanes([x, gy, weight], |x, g, w| g * w * (x - mean)) * scale / n;
        let plain = if centred { lanes([gy, weight, weight], |g, w, _| g * w) / n } else { 0.0 };
        for (((gx, x), g), w) in gx.iter_mut().zip(x).zip(gy).zip(weight) {
            *gx = scale * (g * w - plain - (x - mean) * scale * along);
        }
    }

    /// Adds a row to the gradients of scale and shift, both of the same columns.
    fn add_row(weight: &mut [f32], bias: &mut [f32], x: &[f32], gy: &[f32], mean: f32, scale: f32) {
        for (((w, b), x), g) in weight.iter_mut().zip(bias).zip(x).zip(gy) {
            *w += g * ((x - mean) * scale);
            *b += g;
        }
    }
}

pub fn forward(call: &Call, operands: Operands) {
    let shape = LayerNormShape::new(call);
    let x = operands.reads[0];
    let [y, saved] = operands.writes else {
        unreachable!("a normalisation writes its output and its statistics");
    };
    let weight = &*operands.params[0];
    let bias = operands.params.get(1).map_or(&[][..], |bias| &**bias);
    let threads = chunks::worth(call.threads, x.len());
    let len = (ROWS * shape.n, ROWS * shape.saved());
    chunks::for_each_pair(threads, (y, saved), len, |i, y, saved| {
        let x = x[i * len.0..].chunks_exact(shape.n);
        let rows = y.chunks_exact_mut(shape.n).zip(x).zip(saved.chunks_exact_mut(shape.saved()));
        for ((y, x), saved) in rows {
            let n = shape.n as f32;
            let mean = if shape.centred { row_sum(x) / n } else { 0.0 };
            let scale = 1.0 / (row_squares(x, mean) / n + shape.eps).sqrt();
            saved[0] = mean;
            saved[shape.saved() - 1] = scale;
            forward_row(y, x, weight, bias, mean, scale);
        }
    });
}

pub fn input_gradient(call: &Call, operands: Operands) {
    let shape = LayerNormShape::new(call);
    let [x, gy, saved] = operands.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let weight = &*operands.params[0];
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each(threads, operands.writes[0], ROWS * shape.n, |i, gx| {
        for (row, gx) in (i * ROWS..).zip(gx.chunks_exact_mut(shape.n)) {
            let (mean, scale) = shape.statistics(saved, row);
            let part = row * shape.n..(row + 1) * shape.n;
            let (x, gy) = (&x[part.clone()], &gy[part]);
            gradient_row(gx, x, gy, weight, shape.centred, mean, scale);
        }
    });
}

/// Columns are shared among threads; each adds rows in their order.
pub fn weight_gradient(call: &Call, operands: Operands) {
    let shape = LayerNormShape::new(call);
    let [x, gy, saved] = operands.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let add = |i: usize, weight: &mut [f32], bias: &mut [f32]| {
        let (mut sums, mut plain) = ([0.0; COLUMNS], [0.0; COLUMNS]);
        let (sums, plain) = (&mut sums[..weight.len()], &mut plain[..weight.len()]);
        for row in 0..x.len() / shape.n {
            let (mean, scale) = shape.statistics(saved, row);
            let part = row * shape.n + i * COLUMNS..row * shape.n + i * COLUMNS + weight.len();
            add_row(sums, plain, &x[part.clone()], &gy[part], mean, scale);
        }
        weight.iter_mut().zip(sums).for_each(|(w, sum)| *w += *sum);
        bias.iter_mut().zip(plain).for_each(|(b, sum)| *b += *sum);
    };
    let threads = chunks::worth(call.threads, x.len());
    match operands.gradients {
        [weight, bias] => {
            chunks::for_each_pair(threads, (weight, bias), (COLUMNS, COLUMNS), add);
        }
        [weight] => chunks::for_each(threads, weight, COLUMNS, |i, weight| add(i, weight, &mut [])),
        _ => unreachable!("a normalisation has a scale and perhaps a shift"),
    }
}
