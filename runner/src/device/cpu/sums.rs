//! Sums over a slice that are fast, precise and always in one order.

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
