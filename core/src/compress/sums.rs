//! Sums over a tensor, in lanes that become vectors.
//!
//! Whole chunks are summed in 16 lanes of single precision, chunks of a group in double precision, and
//! groups as well, so that others can sum groups at a time; what is left behind the last chunk is summed
//! one after another, so that tensors of less than a chunk have the sum that a plain loop has, bit for bit.

/// Values of a chunk: few enough that single precision loses little in one.
const CHUNK: usize = 1024;

/// Values of a group.
const GROUP: usize = 512 * CHUNK;

/// Sums of `terms(value)` over all values.
#[inline(always)]
pub fn sums<const N: usize>(values: &[f32], terms: impl Fn(f32) -> [f32; N]) -> [f64; N] {
    let mut totals = [0.0; N];
    let (chunks, rest) = values.as_chunks::<CHUNK>();
    for group in chunks.chunks(GROUP / CHUNK) {
        let mut sums = [0.0; N];
        for chunk in group {
            for (sum, lanes) in sums.iter_mut().zip(lanes(chunk, &terms)) {
                *sum += lanes.into_iter().map(f64::from).sum::<f64>();
            }
        }
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total += sum;
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

/// Sums of a chunk's terms, every sixteenth of them in a lane.
#[inline(always)]
fn lanes<const N: usize>(chunk: &[f32; CHUNK], terms: &impl Fn(f32) -> [f32; N]) -> [[f32; 16]; N] {
    let mut lanes = [[0f32; 16]; N];
    for part in chunk.as_chunks::<16>().0 {
        for i in 0..16 {
            let terms = terms(part[i]);
            for n in 0..N {
                lanes[n][i] += terms[n];
            }
        }
    }
    lanes
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
