//! Sums over a slice that are fast, precise and always in one order.

use super::chunks;
use rayon::prelude::*;

/// Running sums kept side by side: the compiler holds them in vector registers, and each is
/// short, so that less is rounded away than in one long sum.
const LANES: usize = 32;

/// Sum of `term(a, b)` over two slices of one length.
pub fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let mut lanes = [0.0f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a.remainder().iter().zip(b.remainder());
    for (lane, (a, b)) in lanes.iter_mut().zip(rest) {
        *lane = term(*a, *b);
    }
    for (a, b) in a.zip(b) {
        for i in 0..LANES {
            lanes[i] += term(a[i], b[i]);
        }
    }
    lanes.iter().sum()
}

/// Sum of a slice.
pub fn sum(values: &[f32]) -> f32 {
    sum_of(values, values, |a, _| a)
}

/// Parts in which squares are summed: so many whatever the number of threads.
const PARTS: usize = 64;

/// Sum of the squares of a slice, in f64: the same bits whatever the number of threads.
pub fn squares(threads: usize, values: &[f32]) -> f64 {
    let len = values.len().div_ceil(PARTS).max(1);
    let mut sums = [0.0f64; PARTS];
    if chunks::worth(threads, values.len()) <= 1 {
        sums.iter_mut().zip(values.chunks(len)).for_each(|(sum, part)| *sum = part_squares(part));
    } else {
        let parts = sums.par_iter_mut().zip(values.par_chunks(len));
        parts.for_each(|(sum, part)| *sum = part_squares(part));
    }
    sums.iter().sum()
}

fn part_squares(values: &[f32]) -> f64 {
    let mut lanes = [0.0f64; LANES / 2];
    let (chunks, rest) = values.as_chunks::<{ LANES / 2 }>();
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = f64::from(*value) * f64::from(*value);
    }
    for chunk in chunks {
        for i in 0..LANES / 2 {
            lanes[i] += f64::from(chunk[i]) * f64::from(chunk[i]);
        }
    }
    lanes.iter().sum()
}
