//! Sums over a tensor, in lanes that become vectors.
//!
//! Whole chunks are summed in 16 lanes of single precision, and chunks in double precision; what is
//! left behind the last chunk is summed one after another, so that tensors of less than a chunk
//! have the sum that a plain loop has, bit for bit.

/// Values of a chunk: few enough that single precision loses little in one.
const CHUNK: usize = 1024;

/// Sums of `terms(value)` over all values.
#[inline(always)]
pub fn sums<const N: usize>(values: &[f32], terms: impl Fn(f32) -> [f32; N]) -> [f64; N] {
    let mut totals = [0.0; N];
    let (chunks, rest) = values.as_chunks::<CHUNK>();
    for chunk in chunks {
        let mut lanes = [[0f32; 16]; N];
        for part in chunk.as_chunks::<16>().0 {
            for i in 0..16 {
                let terms = terms(part[i]);
                for n in 0..N {
                    lanes[n][i] += terms[n];
                }
            }
        }
        for (total, lanes) in totals.iter_mut().zip(lanes) {
            *total += lanes.into_iter().map(f64::from).sum::<f64>();
        }
    }
    let mut tail = [0f32; N];
    for value in rest {
        let terms = terms(*value);
        for n in 0..N {
            tail[n] += terms[n];
        }
    }
    for (total, tail) in totals.iter_mut().zip(tail) {
        *total += f64::from(tail);
    }
    totals
}

/// The sum of squares, in double precision: it neither overflows nor loses small values.
pub fn squares(values: &[f32]) -> f64 {
    let mut lanes = [0f64; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(*value) * f64::from(*value);
        }
    }
    let rest = rest.iter().map(|v| f64::from(*v) * f64::from(*v));
    lanes.into_iter().chain(rest).sum()
}
