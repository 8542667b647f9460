//! Rotary position embedding (Su et al. 2021) of `[.., length, d]`: elements `i` and `i + d / 2`
//! of a vector at position `p` turn by the angle `p base^(-2i / d)`, or by a scaled one.

use super::chunks;
use super::vector::vectorised;
use crate::{Call, Operands};
use pipewright_core::graph::{RopeScaling, rope_frequency};

vectorised! {
    /// Turns the pairs of one vector; `sign` -1 turns back.
    fn turn(y: &mut [f32], x: &[f32], table: &[f32], sign: f32) {
        let half = x.len() / 2;
        let ((x1, x2), (cos, sin)) = (x.split_at(half), table.split_at(half));
        let (y1, y2) = y.split_at_mut(half);
        for i in 0..half {
            let (a, b, cos, sin) = (x1[i], x2[i], cos[i], sign * sin[i]);
            y1[i] = a * cos - b * sin;
            y2[i] = b * cos + a * sin;
        }
    }
}

/// `sign` 1 forward; -1 for the gradient, a rotation's transpose being the rotation back.
pub fn rotate(call: &Call, base: f32, scaling: Option<RopeScaling>, sign: f32, operands: Operands) {
    let mut sizes = call.output.shape.iter().rev().map(|size| *size as usize);
    let (d, length) = (sizes.next().unwrap_or(1), sizes.next().unwrap_or(1));
    // Cosines and sines of all positions, in the workspace, for all samples and heads.
    let table = &mut *operands.workspace;
    let half = d / 2;
    for (position, row) in table.chunks_exact_mut(d).take(length).enumerate() {
        let (cos, sin) = row.split_at_mut(half);
        for (i, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
            let frequency = rope_frequency(base, scaling, i as u64, d as u64);
            let (s, c) = (position as f64 * frequency).sin_cos();
            (*cos, *sin) = (c as f32, s as f32);
        }
    }
    let (table, x) = (&*table, operands.reads[0]);
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each(threads, operands.writes[0], length * d, |i, y| {
        let x = x[i * length * d..].chunks_exact(d);
        for ((y, x), row) in y.chunks_exact_mut(d).zip(x).zip(table.chunks_exact(d)) {
            turn(y, x, row, sign);
        }
    });
}
