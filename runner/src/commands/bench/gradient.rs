//! Values to measure with.

/// About normal, as gradients of one tensor are: sums of four uniform numbers. The same for the same
/// `seed`.
pub(super) fn gradient(values: usize, seed: u32) -> Vec<f32> {
    let mut state = u64::from(seed) + 1;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..values).map(|_| (0..4).map(|_| uniform()).sum::<f32>() * 1e-2).collect()
}

/// Length of the difference from `exact`, as a share of the length of `exact`.
pub(super) fn relative_error(values: &[f32], exact: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let pairs = values.iter().zip(exact);
    let lost: f64 = pairs.map(|(v, e)| square(f64::from(*v) - f64::from(*e))).sum();
    let all: f64 = exact.iter().map(|e| square(f64::from(*e))).sum();
    if all == 0.0 { lost.sqrt() } else { (lost / all).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative() {
        assert_eq!(relative_error(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert_eq!(relative_error(&[0.0, 0.0], &[3.0, 4.0]), 1.0);
        assert_eq!(relative_error(&[3.0, 4.5], &[3.0, 4.0]), 0.1);
    }
}
