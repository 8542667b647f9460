//! Exponential and its relatives without branches or tables, so that loops over them become
//! vector code. Errors of a few units in the last place, tested against double precision.
//!
//! Only additions, multiplications, divisions and integer operations: the same bits on every
//! processor.

use std::f32::consts::LOG2_E;

/// Adding it rounds to an integer, which then stands in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// `log 2` in two parts; products of the first with small integers are exact.
const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);

/// `a x + b`, rounded twice.
#[inline(always)]
fn step(a: f32, x: f32, b: f32) -> f32 {
    a * x + b
}

/// `2^n`, for n that give normal numbers.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `exp(x)`; infinite above 88.7, with gradual underflow down to -103, not a number of what is none.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Comparisons this way round leave what is not a number as it is.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * LOG2_E + ROUND;
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let whole = shifted - ROUND;
    let r = x - whole * LN_2.0 - whole * LN_2.1;
    let p = step(1.987_569_1e-4, r, 1.398_199_9e-3);
    let p = step(p, r, 8.333_452e-3);
    let p = step(p, r, 4.166_579_6e-2);
    let p = step(p, r, 1.666_666_5e-1);
    let p = step(p, r, 0.5);
    let p = step(p, r * r, r) + 1.0;
    // In two factors: the whole power may be too large or too small for a number.
    let half = n >> 1;
    let rest = n.wrapping_sub(half);
    p * power_of_two(half) * power_of_two(rest)
}

/// `1 / (1 + exp(-x))`
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    tanh_from(x, exp(tanh_exponent(x)))
}

/// What [`tanh_from`] wants the exponential of.
#[inline(always)]
pub fn tanh_exponent(x: f32) -> f32 {
    2.0 * x.abs()
}

/// [`tanh`], with the exponential made before.
#[inline(always)]
pub fn tanh_from(x: f32, exponential: f32) -> f32 {
    // Near zero the quotient below would lose what a polynomial keeps.
    let s = x * x;
    let p = step(-5.704_988_7e-3, s, 2.063_909e-2);
    let p = step(p, s, -5.373_971_6e-2);
    let p = step(p, s, 1.333_144_2e-1);
    let p = step(p, s, -3.333_328e-1);
    let near = step(p * s, x, x);
    let far = (1.0 - 2.0 / (exponential + 1.0)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

/// Gauss error function (polynomials by N. Juffa).
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    erf_from(x, exp(erf_exponent(x)))
}

/// What [`erf_from`] wants the exponential of.
#[inline(always)]
pub fn erf_exponent(x: f32) -> f32 {
    let a = x.abs();
    let s = x * x;
    let p = step(-1.728_534_7e-5, a, 3.831_972_6e-4);
    let q = step(-3.883_964_4e-3, a, 2.425_462_2e-2);
    let p = step(p, s, q);
    let p = step(p, a, -1.067_778_8e-1);
    let p = step(p, a, -6.348_467e-1);
    let p = step(p, a, -1.287_175_1e-1);
    step(p, a, -a)
}

/// [`erf`], with the exponential made before.
#[inline(always)]
pub fn erf_from(x: f32, exponential: f32) -> f32 {
    let s = x * x;
    let p = step(-5.967_617e-4, s, 4.991_194_2e-3);
    let p = step(p, s, -2.676_813_5e-2);
    let p = step(p, s, 1.128_199_25e-1);
    let p = step(p, s, -3.761_253_4e-1);
    let p = step(p, s, 1.283_791_7e-1);
    let near = step(p, x, x);
    let far = (1.0 - exponential).copysign(x);
    if x.abs() > 0.927_734_4 { far } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units of the last place of the exact value, as single precision has it.
    fn ulps(got: f32, exact: f64) -> f64 {
        let scale = f64::from(f32::from_bits((exact.abs() as f32).to_bits() + 1)) - exact.abs();
        let next = f64::from((exact as f32).abs().max(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
        (f64::from(got) - exact).abs() / scale.max(next / 2.0)
    }

    /// The largest distance over a fine grid.
    fn worst(range: (f32, f32), f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> (f64, f32) {
        let count = 200_000;
        let at = |i: i32| range.0 + (range.1 - range.0) * i as f32 / count as f32;
        let error = |i| (ulps(f(at(i)), exact(f64::from(at(i)))), at(i));
        (0..=count).map(error).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
    }

    /// The series around zero, in double precision good to |x| < 4.
    fn erf_f64(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn close_to_double_precision() {
        for (name, limit, (error, at)) in [
            ("exp", 2.0, worst((-86.0, 88.5), exp, f64::exp)),
            ("exp near 0", 2.0, worst((-1.0, 1.0), exp, f64::exp)),
            ("tanh", 3.0, worst((-10.0, 10.0), tanh, f64::tanh)),
            ("sigmoid", 3.0, worst((-30.0, 30.0), sigmoid, |x| 1.0 / (1.0 + (-x).exp()))),
            ("erf", 3.0, worst((-3.5, 3.5), erf, erf_f64)),
        ] {
            println!("{name}: {error:.2} ulp at {at}");
            assert!(error <= limit, "{name}: {error} ulp at {at}");
        }
    }

    #[test]
    fn at_the_ends() {
        assert_eq!(
            (exp(f32::INFINITY), exp(89.0), exp(f32::NEG_INFINITY)),
            (f32::INFINITY, f32::INFINITY, 0.0)
        );
        assert!(exp(-100.0) > 0.0, "gradual underflow");
        assert_eq!((exp(0.0), tanh(0.0), erf(0.0), sigmoid(0.0)), (1.0, 0.0, 0.0, 0.5));
        assert_eq!((tanh(40.0), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!((erf(30.0), erf(f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!((sigmoid(f32::NEG_INFINITY), sigmoid(200.0)), (0.0, 1.0));
        for f in [exp, tanh, erf, sigmoid] {
            assert!(f(f32::NAN).is_nan());
        }
    }
}
