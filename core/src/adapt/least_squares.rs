//! Non-linear least squares by Levenberg and Marquardt, without randomness.
//!
//! Each step solves (JᵀJ + λ D) δ = Jᵀr with D the largest diagonal of JᵀJ so far (Moré 1978), so
//! that parameters of any size are treated alike. A step that lowers the sum of squares is taken and
//! λ divided, another is not and λ multiplied. Cost: rounds x points x parameters².

use super::curve::{Curve, Parameters};
use super::two_stage::Point;

/// Most steps that are tried.
const ROUNDS: usize = 500;

/// λ beyond which no step is to be expected.
const MOST_DAMPING: f64 = 1e14;

/// Steps that lower the sum by less than 1e-12 of it after which it is at its least.
const QUIET_ROUNDS: usize = 8;

/// Symmetric equations of at most `N` unknowns.
pub struct Equations<const N: usize> {
    /// Left side, its lower triangle.
    pub left: [[f64; N]; N],
    /// Right side.
    pub right: [f64; N],
}

impl<const N: usize> Equations<N> {
    /// Solves for the first `count` unknowns by Cholesky; none if a pivot is less than `least` of
    /// its diagonal, so that the unknowns are not independent.
    pub fn solve(&self, count: usize, least: f64) -> Option<[f64; N]> {
        let mut root = [[0.0; N]; N];
        let mut x = [0.0; N];
        for i in 0..count {
            for j in 0..=i {
                let known: f64 = (0..j).map(|k| root[i][k] * root[j][k]).sum();
                let rest = self.left[i][j] - known;
                if i != j {
                    root[i][j] = rest / root[j][j];
                } else if rest > least * self.left[i][i] && rest.is_finite() {
                    root[i][i] = rest.sqrt();
                } else {
                    return None;
                }
            }
            let known: f64 = (0..i).map(|k| root[i][k] * x[k]).sum();
            x[i] = (self.right[i] - known) / root[i][i];
        }
        for i in (0..count).rev() {
            let known: f64 = (i + 1..count).map(|k| root[k][i] * x[k]).sum();
            x[i] = (x[i] - known) / root[i][i];
        }
        x.iter().all(|x| x.is_finite()).then_some(x)
    }
}

/// Sum of squared distances, and the equations of a step; none if the curve is not finite.
fn linearise(curve: Curve, at: &Parameters, points: &[Point]) -> Option<(f64, Equations<4>)> {
    let mut equations = Equations { left: [[0.0; 4]; 4], right: [0.0; 4] };
    let mut squares = 0.0;
    for point in points {
        let (value, gradient) = curve.with_gradient(at, point.x);
        let off = point.accuracy - value;
        squares += off * off;
        for i in 0..4 {
            equations.right[i] += gradient[i] * off;
            for j in 0..=i {
                equations.left[i][j] += gradient[i] * gradient[j];
            }
        }
    }
    let finite = squares.is_finite() && equations.left.as_flattened().iter().all(|v| v.is_finite());
    finite.then_some((squares, equations))
}

/// The parameters with the least sum of squares near the curve's start, and that sum.
pub fn fit(curve: Curve, points: &[Point]) -> Option<(Parameters, f64)> {
    let count = curve.parameters();
    let mut at = curve.start();
    let (mut squares, mut equations) = linearise(curve, &at, points)?;
    let mut scale = [f64::MIN_POSITIVE; 4];
    let (mut damping, mut quiet) = (1e-3, 0);
    for _ in 0..ROUNDS {
        let mut damped = Equations { left: equations.left, right: equations.right };
        for (i, scale) in scale.iter_mut().enumerate().take(count) {
            *scale = scale.max(equations.left[i][i]);
            damped.left[i][i] += damping * *scale;
        }
        let next = damped.solve(count, 0.0).and_then(|step| {
            let next: Parameters = std::array::from_fn(|i| at[i] + step[i]);
            Some((next, linearise(curve, &next, points)?))
        });
        match next {
            Some((next, (less, there))) if less <= squares => {
                quiet = if squares - less <= 1e-12 * squares { quiet + 1 } else { 0 };
                (at, squares, equations) = (next, less, there);
                damping = (damping * 0.2).max(1e-15);
            }
            _ => damping *= 4.0,
        }
        if quiet == QUIET_ROUNDS || damping > MOST_DAMPING || squares == 0.0 {
            break;
        }
    }
    Some((at, squares))
}
