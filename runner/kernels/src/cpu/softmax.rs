//! Softmax over the last axis, row by row; its logarithm, and its largest shares alone.

use super::chunks;
use super::math::exp;
use super::sums::{lanes, largest};
use super::vector::vectorised;
use crate::{Call, Operands};

/// Rows that one thread takes at a time.
const ROWS: usize = 16;

vectorised! {
    /// Largest element; not a number where there is one.
    pub fn row_max(x: &[f32]) -> f32 {
        largest(x)
    }

    /// `y = exp(scale x - shift)`; returns the sum.
    pub fn row_exp(y: &mut [f32], x: &[f32], scale: f32, shift: f32) -> f32 {
        for (y, x) in y.iter_mut().zip(x) {
            *y = exp(x * scale - shift);
        }
        lanes([y; 3], |y, _, _| y)
    }

    /// Sum of `exp(x - shift)`.
    pub fn row_exp_sum(x: &[f32], shift: f32) -> f32 {
        lanes([x; 3], |x, _, _| exp(x - shift))
    }

    /// `x = exp(scale x - shift)` in place; returns the sum.
    pub fn row_exp_in_place(x: &mut [f32], scale: f32, shift: f32) -> f32 {
        for x in x.iter_mut() {
            *x = exp(*x * scale - shift);
        }
        lanes([x; 3], |x, _, _| x)
    }

    pub fn row_scale(y: &mut [f32], factor: f32) {
        y.iter_mut().for_each(|y| *y *= factor);
    }

    pub fn row_dot(a: &[f32], b: &[f32]) -> f32 {
        lanes([a, b, b], |a, b, _| a * b)
    }

    fn row_shift(y: &mut [f32], x: &[f32], shift: f32) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x - shift);
    }

    /// `gx = y (gy - mean)`
    fn softmax_gradient(gx: &mut [f32], y: &[f32], gy: &[f32], mean: f32) {
        for ((gx, y), gy) in gx.iter_mut().zip(y).zip(gy) {
            *gx = y * (gy - mean);
        }
    }

    /// `gx = gy - exp(y) total`
    fn log_gradient(gx: &mut [f32], y: &[f32], gy: &[f32], total: f32) {
        for ((gx, y), gy) in gx.iter_mut().zip(y).zip(gy) {
            *gx = gy - exp(*y) * total;
        }
    }

    fn row_sum(x: &[f32]) -> f32 {
        lanes([x; 3], |x, _, _| x)
    }
}

/// `y = exp(x - max) / Σ exp(x - max)`
pub fn forward(call: &Call, operands: Operands) {
    let x = operands.reads[0];
    each_row(call, operands.writes[0], |part, y| {
        let x = &x[part];
        let sum = row_exp(y, x, 1.0, row_max(x));
        row_scale(y, 1.0 / sum);
    });
}

pub fn input_gradient(call: &Call, operands: Operands) {
    let (y, gy) = (operands.reads[0], operands.reads[1]);
    each_row(call, operands.writes[0], |part, gx| {
        let (y, gy) = (&y[part.clone()], &gy[part]);
        softmax_gradient(gx, y, gy, row_dot(y, gy));
    });
}

/// `y = x - max - log Σ exp(x - max)`
pub fn log_forward(call: &Call, operands: Operands) {
    let x = operands.reads[0];
    each_row(call, operands.writes[0], |part, y| {
        let x = &x[part];
        let max = row_max(x);
        let sum = row_exp(y, x, 1.0, max);
        row_shift(y, x, max + sum.ln());
    });
}

pub fn log_input_gradient(call: &Call, operands: Operands) {
    let (y, gy) = (operands.reads[0], operands.reads[1]);
    each_row(call, operands.writes[0], |part, gx| {
        let (y, gy) = (&y[part.clone()], &gy[part]);
        log_gradient(gx, y, gy, row_sum(gy));
    });
}

/// Whether an element is among the `k` largest of a row; of equal ones the first are.
fn is_taken(x: &[f32], at: usize, k: usize) -> bool {
    let before = |(other, value): (usize, &f32)| *value > x[at] || *value == x[at] && other < at;
    x.iter().enumerate().filter(|element| before(*element)).count() < k
}

/// The shares of the `k` largest, of all or of those alone.
pub fn top_k_forward(call: &Call, k: u64, normalize: bool, operands: Operands) {
    let x = operands.reads[0];
    each_row(call, operands.writes[0], |part, y| {
        let x = &x[part];
        let mut sum = row_exp(y, x, 1.0, row_max(x));
        for (at, y) in y.iter_mut().enumerate() {
            *y = if is_taken(x, at, k as usize) { *y } else { 0.0 };
        }
        if normalize {
            sum = row_sum(y);
        }
        row_scale(y, 1.0 / sum);
    });
}

/// `gx = p (gy - mean)`, where `gy` counts for those that are taken; `p` are the shares of all, or of those alone.
pub fn top_k_input_gradient(call: &Call, normalize: bool, operands: Operands) {
    let [x, y, gy] = *operands.reads else {
        unreachable!("the gradient of shares reads x, y and gy");
    };
    each_row(call, operands.writes[0], |part, gx| {
        let (x, y, gy) = (&x[part.clone()], &y[part.clone()], &gy[part]);
        let mean = row_dot(y, gy);
        if normalize {
            return softmax_gradient(gx, y, gy, mean);
        }
        let scale = 1.0 / row_exp(gx, x, 1.0, row_max(x));
        for ((gx, y), gy) in gx.iter_mut().zip(y).zip(gy) {
            *gx *= scale * (if *y != 0.0 { *gy } else { 0.0 } - mean);
        }
    });
}

/// Runs `work(where the row lies, row)` for all rows.
fn each_row(
    call: &Call,
    data: &mut [f32],
    work: impl Fn(std::ops::Range<usize>, &mut [f32]) + Sync,
) {
    let n = call.output.shape.last().copied().unwrap_or(1) as usize;
    let threads = chunks::worth(call.threads, data.len());
    chunks::for_each(threads, data, ROWS * n, |i, rows| {
        for (row, data) in (i * ROWS..).zip(rows.chunks_exact_mut(n)) {
            work(row * n..(row + 1) * n, data);
        }
    });
}
