//! GELU by blocks: one loop for what is exponentiated, one for exponentials, one for the rest.
//!
//! In a single loop a vector takes some hundred instructions, each of which waits for the one before. A processor looks at
//! two or three vectors at a time then, and mostly waits. The numbers are the same.

use super::math::{erf_exponent, erf_from, exp, tanh_exponent, tanh_from};
use super::vector::vectorised;
use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// Elements of a block, which stays in the first cache.
const BLOCK: usize = 64;

/// `1 / sqrt(2 π)`
const NORMAL: f32 = FRAC_1_SQRT_2 * FRAC_2_SQRT_PI / 2.0;

/// `x Φ(x)`, with the normal distribution's `Φ(x) = (1 + squash(z(x))) / 2`, exact or nearly.
pub trait Gelu {
    /// What [`Self::squash`] wants the exponential of.
    fn exponent(x: f32) -> f32;
    /// Between -1 and 1, with the exponential made before.
    fn squash(x: f32, exponential: f32) -> f32;
    /// The derivative of `x Φ(x)`.
    fn slope(x: f32, squashed: f32) -> f32;
}

/// The error function of `x / sqrt(2)`.
pub struct Erf;

impl Gelu for Erf {
    #[inline(always)]
    fn exponent(x: f32) -> f32 {
        erf_exponent(x * FRAC_1_SQRT_2)
    }

    #[inline(always)]
    fn squash(x: f32, exponential: f32) -> f32 {
        erf_from(x * FRAC_1_SQRT_2, exponential)
    }

    #[inline(always)]
    fn slope(x: f32, squashed: f32) -> f32 {
        0.5 * (1.0 + squashed) + x * NORMAL * exp(-0.5 * x * x)
    }
}

/// The approximation by a hyperbolic tangent (Hendrycks and Gimpel 2016).
pub struct Tanh;

#[inline(always)]
fn inner(x: f32) -> f32 {
    FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * (x + 0.044_715 * x * x * x)
}

impl Gelu for Tanh {
    #[inline(always)]
    fn exponent(x: f32) -> f32 {
        tanh_exponent(inner(x))
    }

    #[inline(always)]
    fn squash(x: f32, exponential: f32) -> f32 {
        tanh_from(inner(x), exponential)
    }

    #[inline(always)]
    fn slope(x: f32, t: f32) -> f32 {
        let steep = FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * (1.0 + 3.0 * 0.044_715 * x * x);
        0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * steep
    }
}

/// Exponentials of a block's exponents.
#[inline(always)]
fn exponentials<G: Gelu>(x: &[f32], out: &mut [f32]) {
    for (e, x) in out.iter_mut().zip(x) {
        *e = G::exponent(*x);
    }
    for e in out {
        *e = exp(*e);
    }
}

#[inline(always)]
fn block_of_values<G: Gelu>(y: &mut [f32], x: &[f32]) {
    let exponential = &mut [0.0; BLOCK][..x.len()];
    exponentials::<G>(x, exponential);
    for ((y, x), e) in y.iter_mut().zip(x).zip(exponential) {
        *y = 0.5 * x * (1.0 + G::squash(*x, *e));
    }
}

#[inline(always)]
fn block_of_slopes<G: Gelu>(gx: &mut [f32], x: &[f32], gy: &[f32]) {
    let squashed = &mut [0.0; BLOCK][..x.len()];
    exponentials::<G>(x, squashed);
    for (x, e) in x.iter().zip(squashed.iter_mut()) {
        *e = G::squash(*x, *e);
    }
    for (((gx, x), gy), squashed) in gx.iter_mut().zip(x).zip(gy).zip(squashed) {
        *gx = G::slope(*x, *squashed) * gy;
    }
}

vectorised! {
    pub fn values<G: Gelu>(y: &mut [f32], x: &[f32]) {
        let ((blocks, rest), (of_x, rest_of_x)) = (y.as_chunks_mut::<BLOCK>(), x.as_chunks::<BLOCK>());
        for (y, x) in blocks.iter_mut().zip(of_x) {
            block_of_values::<G>(y, x);
        }
        block_of_values::<G>(rest, rest_of_x);
    }

    pub fn slopes<G: Gelu>(gx: &mut [f32], x: &[f32], gy: &[f32]) {
        let ((blocks, rest), (of_x, rest_of_x)) = (gx.as_chunks_mut::<BLOCK>(), x.as_chunks::<BLOCK>());
        let (of_gy, rest_of_gy) = gy.as_chunks::<BLOCK>();
        for ((gx, x), gy) in blocks.iter_mut().zip(of_x).zip(of_gy) {
            block_of_slopes::<G>(gx, x, gy);
        }
        block_of_slopes::<G>(rest, rest_of_x, rest_of_gy);
    }
}

#[cfg(test)]
mod tests {
    use super::super::math::{erf, tanh};
    use super::*;

    /// Values, and gradients for `gy`, against a formula element by element.
    fn check<G: Gelu>(squash: impl Fn(f32) -> f32) {
        for len in [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 3] {
            let mut x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.37).sin() * 6.0).collect();
            x[len / 2] = f32::NAN;
            x[len - 1] = f32::INFINITY;
            let gy: Vec<f32> = (0..len).map(|i| (i as f32 * 0.11).cos()).collect();
            let (mut y, mut gx) = (vec![0.0; len], vec![0.0; len]);
            values::<G>(&mut y, &x);
            slopes::<G>(&mut gx, &x, &gy);
            let bits = |of: &[f32]| of.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            let values: Vec<f32> = x.iter().map(|x| 0.5 * x * (1.0 + squash(*x))).collect();
            let slope = |(x, gy): (&f32, &f32)| G::slope(*x, squash(*x)) * gy;
            let slopes: Vec<f32> = x.iter().zip(&gy).map(slope).collect();
            assert_eq!((bits(&y), bits(&gx)), (bits(&values), bits(&slopes)), "{len}");
        }
    }

    #[test]
    fn blocks_have_the_bits_of_the_formulas() {
        check::<Erf>(|x| erf(x * FRAC_1_SQRT_2));
        check::<Tanh>(|x| tanh(inner(x)));
    }
}
