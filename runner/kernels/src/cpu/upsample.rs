//! More pixels: `[samples, C, H, W]` to `[samples, C, factor H, factor W]`, plane by plane.

use super::chunks;
use crate::{Call, Operands};

/// Rows and columns of the smaller image, and the factor.
struct UpsampleShape {
    size: [usize; 2],
    factor: usize,
}

impl UpsampleShape {
    /// `small` has the shape of the smaller image.
    fn new(call: &Call, factor: u64) -> Self {
        let small = &call.inputs[0].shape;
        Self { size: [small[1] as usize, small[2] as usize], factor: factor as usize }
    }

    fn small(&self) -> usize {
        self.size[0] * self.size[1]
    }

    fn large(&self) -> usize {
        self.small() * self.factor * self.factor
    }

    /// Of a pixel of the larger image along one axis: the two pixels between which it lies and
    /// the weight of the second. Pixels are areas; beyond the outermost centres nothing changes.
    fn between(&self, axis: usize, index: usize) -> (usize, usize, f32) {
        let last = self.size[axis] - 1;
        let centre = (index as f32 + 0.5) / self.factor as f32 - 0.5;
        let low = centre.max(0.0);
        let first = (low as usize).min(last);
        (first, (first + 1).min(last), (low - first as f32).min(1.0))
    }
}

/// Every pixel repeated.
pub fn nearest_forward(call: &Call, factor: u64, operands: Operands) {
    let shape = UpsampleShape::new(call, factor);
    let x = operands.reads[0];
    let wide = shape.size[1] * shape.factor;
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], shape.large(), |plane, y| {
        let x = x[plane * shape.small()..][..shape.small()].chunks_exact(shape.size[1]);
        for (x, rows) in x.zip(y.chunks_exact_mut(wide * shape.factor)) {
            let (first, others) = rows.split_at_mut(wide);
            for (x, y) in x.iter().zip(first.chunks_exact_mut(shape.factor)) {
                y.fill(*x);
            }
            others.chunks_exact_mut(wide).for_each(|row| row.copy_from_slice(first));
        }
    });
}

/// The sum over a pixel's repetitions.
pub fn nearest_input_gradient(call: &Call, factor: u64, operands: Operands) {
    let shape = UpsampleShape::new(call, factor);
    let gy = operands.reads[0];
    let wide = shape.size[1] * shape.factor;
    let threads = chunks::worth(call.threads, gy.len());
    chunks::for_each(threads, operands.writes[0], shape.small(), |plane, gx| {
        let rows = gy[plane * shape.large()..][..shape.large()].chunks_exact(wide * shape.factor);
        for (gx, rows) in gx.chunks_exact_mut(shape.size[1]).zip(rows) {
            gx.fill(0.0);
            for row in rows.chunks_exact(wide) {
                for (gx, gy) in gx.iter_mut().zip(row.chunks_exact(shape.factor)) {
                    *gx += gy.iter().sum::<f32>();
                }
            }
        }
    });
}

/// Between the four nearest pixels.
pub fn bilinear_forward(call: &Call, factor: u64, operands: Operands) {
    let shape = UpsampleShape::new(call, factor);
    let x = operands.reads[0];
    let wide = shape.size[1] * shape.factor;
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], shape.large(), |plane, y| {
        let x = &x[plane * shape.small()..][..shape.small()];
        for (r, y) in y.chunks_exact_mut(wide).enumerate() {
            let (above, below, down) = shape.between(0, r);
            let above = &x[above * shape.size[1]..][..shape.size[1]];
            let below = &x[below * shape.size[1]..][..shape.size[1]];
            for (c, y) in y.iter_mut().enumerate() {
                let (left, right, across) = shape.between(1, c);
                let upper = above[left] * (1.0 - across) + above[right] * across;
                let lower = below[left] * (1.0 - across) + below[right] * across;
                *y = upper * (1.0 - down) + lower * down;
            }
        }
    });
}

/// Every pixel's gradient goes back to the four, by their weights.
pub fn bilinear_input_gradient(call: &Call, factor: u64, operands: Operands) {
    let shape = UpsampleShape::new(call, factor);
    let gy = operands.reads[0];
    let (wide, columns) = (shape.size[1] * shape.factor, shape.size[1]);
    let threads = chunks::worth(call.threads, gy.len());
    chunks::for_each(threads, operands.writes[0], shape.small(), |plane, gx| {
        gx.fill(0.0);
        let rows = gy[plane * shape.large()..][..shape.large()].chunks_exact(wide);
        for (r, gy) in rows.enumerate() {
            let (above, below, down) = shape.between(0, r);
            for (c, gy) in gy.iter().enumerate() {
                let (left, right, across) = shape.between(1, c);
                let (upper, lower) = (gy * (1.0 - down), gy * down);
                gx[above * columns + left] += upper * (1.0 - across);
                gx[above * columns + right] += upper * across;
                gx[below * columns + left] += lower * (1.0 - across);
                gx[below * columns + right] += lower * across;
            }
        }
    });
}
