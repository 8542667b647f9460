//! Sums over a slice that are fast, precise and always in one order.

use super::chunks;

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

/// Sum of `term` over the elements of three slices of one length, by the same lanes; for bodies
/// of `vectorised` functions. The same slice may be given several times.
#[inline(always)]
pub fn lanes(slices: [&[f32]; 3], term: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    fold(slices, &mut lanes, |lane, a, b, c| lane + term(a, b, c));
    halve(&mut lanes, |a, b| a + b)
}

/// Sums of both of what `terms` gives for the elements of two slices of one length, by the same lanes; for bodies of
/// `vectorised` functions.
#[inline(always)]
pub fn pair_of_lanes(a: &[f32], b: &[f32], terms: impl Fn(f32, f32) -> [f32; 2]) -> [f32; 2] {
    let (mut first, mut second) = ([0.0f32; LANES], [0.0f32; LANES]);
    let (a, b) = (a.as_chunks::<LANES>(), b[..a.len()].as_chunks::<LANES>());
    for (i, (a, b)) in a.1.iter().zip(b.1).enumerate() {
        [first[i], second[i]] = terms(*a, *b);
    }
    for (a, b) in a.0.iter().zip(b.0) {
        for i in 0..LANES {
            let [one, other] = terms(a[i], b[i]);
            first[i] += one;
            second[i] += other;
        }
    }
    [&mut first, &mut second].map(|lanes| halve(lanes, |a, b| a + b))
}

/// Largest element; not a number where one of them is none. For bodies of `vectorised` functions.
#[inline(always)]
pub fn largest(values: &[f32]) -> f32 {
    // What is not a number is neither larger nor smaller; once there it stays.
    let larger = |a: f32, b: f32| if b > a || b.is_nan() { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    fold([values; 3], &mut lanes, |lane, value, _, _| larger(lane, value));
    halve(&mut lanes, larger)
}

/// Takes lanes together, halves upon halves: vectors to the last few.
#[inline(always)]
fn halve(lanes: &mut [f32; LANES], step: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        let (low, high) = lanes.split_at_mut(width);
        low.iter_mut().zip(&high[..width]).for_each(|(a, b)| *a = step(*a, *b));
        width /= 2;
    }
    lanes[0]
}

/// Takes the elements of three slices of one length into the lanes, in order.
#[inline(always)]
fn fold(
    [a, b, c]: [&[f32]; 3],
    lanes: &mut [f32; LANES],
    step: impl Fn(f32, f32, f32, f32) -> f32,
) {
    let (b, c) = (&b[..a.len()], &c[..a.len()]);
    let (a, b, c) = (a.chunks_exact(LANES), b.chunks_exact(LANES), c.chunks_exact(LANES));
    let rest = a.remainder().iter().zip(b.remainder()).zip(c.remainder());
    for (lane, ((a, b), c)) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, *a, *b, *c);
    }
    for ((a, b), c) in a.zip(b).zip(c) {
        for i in 0..LANES {
            lanes[i] = step(lanes[i], a[i], b[i], c[i]);
        }
    }
}

/// Parts in which squares are summed: so many whatever the number of threads.
const PARTS: usize = 64;

/// Sum of the squares of a slice, in f64: the same bits whatever the number of threads.
pub fn squares(threads: usize, values: &[f32]) -> f64 {
    let len = values.len().div_ceil(PARTS).max(1);
    let mut sums = [0.0f64; PARTS];
    let parts = &mut sums[..values.len().div_ceil(len)];
    chunks::for_each(chunks::worth(threads, values.len()), parts, 1, |i, sum| {
        sum[0] = part_squares(&values[i * len..(i * len + len).min(values.len())]);
    });
    sums.iter().sum()
}

// Apart, or the compiler keeps the lanes in memory.
#[inline(never)]
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
