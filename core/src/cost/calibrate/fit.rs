//! Levenberg-Marquardt within bounds, by projection onto the box.
//!
//! Marquardt 1963; the active set is that of Bertsekas' projected Newton method (1982): a
//! parameter at its bound whose gradient points outwards is held there for the step. The Jacobian
//! is taken by central differences. O(steps points parameters²) and as many calls of the model as
//! two per parameter and step.

use super::solve::{dependent, dot, solve};
use super::{CalibrateError, Estimate, Fit, Parameter};

/// Steps after which a search that still improves is ended; real ones take 5 to 60.
const MOST_STEPS: u32 = 500;

/// Finds the parameters for which `model`, one prediction per point, is nearest to `measured`.
///
/// Least squares of the relative residuals; a local search from the starts.
///
/// # Errors
/// When the points do not determine the parameters, or something given is not a number.
pub fn fit(
    parameters: &[Parameter],
    measured: &[f64],
    model: impl Fn(&[f64]) -> Vec<f64>,
) -> Result<Fit, CalibrateError> {
    check(parameters, measured)?;
    let problem = Problem { parameters, measured, model };
    let mut x: Vec<f64> = parameters.iter().map(|p| p.start).collect();
    let mut residuals = problem.residuals(&x)?;
    let all: Vec<usize> = (0..parameters.len()).collect();
    problem.determined(&problem.jacobian(&x)?, &all)?;
    let mut damping = 1e-3;
    let mut steps = 0;
    while steps < MOST_STEPS {
        steps += 1;
        let jacobian = problem.jacobian(&x)?;
        let free = problem.free(&x, &jacobian, &residuals);
        let before = dot(&residuals, &residuals);
        let mut better = None;
        while better.is_none() && damping < 1e12 {
            let next = problem.step(&x, &jacobian, &residuals, &free, damping);
            let at_next = problem.residuals(&next)?;
            if dot(&at_next, &at_next) < before {
                better = Some((next, at_next));
                damping = (damping / 5.0).max(1e-12);
            } else {
                damping *= 4.0;
            }
        }
        let Some((next, at_next)) = better else { break };
        let gain = before - dot(&at_next, &at_next);
        (x, residuals) = (next, at_next);
        if gain <= 1e-13 * before {
            break;
        }
    }
    let jacobian = problem.jacobian(&x)?;
    let free: Vec<usize> = all.into_iter().filter(|i| !problem.at_bound(&x, *i)).collect();
    problem.determined(&jacobian, &free)?;
    let deviations = problem.deviations(&jacobian, &residuals, &free);
    let estimate = |(i, p): (usize, &Parameter)| Estimate {
        name: p.name,
        value: x[i],
        deviation: free.iter().position(|f| *f == i).map(|at| deviations[at]),
    };
    let estimates = parameters.iter().enumerate().map(estimate).collect();
    Ok(Fit { estimates, residuals, steps })
}

fn check(parameters: &[Parameter], measured: &[f64]) -> Result<(), CalibrateError> {
    for p in parameters {
        let finite = p.low.is_finite() && p.high.is_finite();
        if !(finite && p.low <= p.start && p.start <= p.high && p.low < p.high) {
            let Parameter { name: parameter, start, low, high, .. } = *p;
            return Err(CalibrateError::Bounds { parameter, start, low, high });
        }
    }
    for (point, value) in measured.iter().copied().enumerate() {
        if !(value.is_finite() && value > 0.0) {
            return Err(CalibrateError::Measured { point, value });
        }
    }
    if measured.len() <= parameters.len() {
        let (points, parameters) = (measured.len(), parameters.len());
        return Err(CalibrateError::TooFew { points, parameters });
    }
    Ok(())
}

struct Problem<'a, M> {
    parameters: &'a [Parameter],
    measured: &'a [f64],
    model: M,
}

impl<M: Fn(&[f64]) -> Vec<f64>> Problem<'_, M> {
    fn residuals(&self, x: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        let predicted = (self.model)(x);
        assert_eq!(predicted.len(), self.measured.len(), "the model predicts every point");
        let pairs = predicted.iter().zip(self.measured);
        let residuals: Vec<f64> = pairs.map(|(p, m)| p / m - 1.0).collect();
        match residuals.iter().position(|r| !r.is_finite()) {
            Some(point) => Err(CalibrateError::Model { point, value: predicted[point] }),
            None => Ok(residuals),
        }
    }

    /// Size of changes of a parameter that mean something.
    fn scale(&self, i: usize) -> f64 {
        let p = &self.parameters[i];
        if p.start == 0.0 { 1e-3 * (p.high - p.low) } else { p.start.abs() }
    }

    /// Derivatives of the residuals by the scaled parameters, one row a point.
    fn jacobian(&self, x: &[f64]) -> Result<Vec<Vec<f64>>, CalibrateError> {
        let mut rows = vec![vec![0.0; x.len()]; self.measured.len()];
        for i in 0..x.len() {
            let (p, scale) = (&self.parameters[i], self.scale(i));
            let step = 1e-5 * x[i].abs().max(1e-2 * scale);
            let (mut up, mut down) = (x.to_vec(), x.to_vec());
            up[i] = (x[i] + step).min(p.high);
            down[i] = (x[i] - step).max(p.low);
            let width = (up[i] - down[i]) / scale;
            let (above, below) = (self.residuals(&up)?, self.residuals(&down)?);
            for ((row, a), b) in rows.iter_mut().zip(above).zip(below) {
                row[i] = (a - b) / width;
            }
        }
        Ok(rows)
    }

    fn at_bound(&self, x: &[f64], i: usize) -> bool {
        let near = 1e-9 * self.scale(i);
        x[i] <= self.parameters[i].low + near || x[i] >= self.parameters[i].high - near
    }

    /// Parameters that may move: all but those which the gradient presses against their bound.
    fn free(&self, x: &[f64], jacobian: &[Vec<f64>], residuals: &[f64]) -> Vec<usize> {
        let slope = |i: usize| jacobian.iter().zip(residuals).map(|(j, r)| j[i] * r).sum::<f64>();
        let presses = |i: usize| {
            let p = &self.parameters[i];
            (x[i] <= p.low && slope(i) > 0.0) || (x[i] >= p.high && slope(i) < 0.0)
        };
        (0..x.len()).filter(|i| !presses(*i)).collect()
    }

    fn step(
        &self,
        x: &[f64],
        jacobian: &[Vec<f64>],
        residuals: &[f64],
        free: &[usize],
        damping: f64,
    ) -> Vec<f64> {
        let mut normal = normal_matrix(jacobian, free);
        for (i, row) in normal.iter_mut().enumerate() {
            row[i] = row[i] * (1.0 + damping) + 1e-300;
        }
        let slopes: Vec<f64> = free
            .iter()
            .map(|i| -jacobian.iter().zip(residuals).map(|(j, r)| j[*i] * r).sum::<f64>())
            .collect();
        let mut next = x.to_vec();
        if let Some(moves) = solve(&normal, &slopes) {
            for (i, by) in free.iter().zip(moves) {
                let p = &self.parameters[*i];
                next[*i] = (x[*i] + by * self.scale(*i)).clamp(p.low, p.high);
            }
        }
        next
    }

    /// Square roots of the diagonal of `s² (Jᵀ J)⁻¹`, `s²` the variance of the residuals.
    fn deviations(&self, jacobian: &[Vec<f64>], residuals: &[f64], free: &[usize]) -> Vec<f64> {
        let normal = normal_matrix(jacobian, free);
        let left_over = (residuals.len() - free.len()) as f64;
        let variance = dot(residuals, residuals) / left_over;
        let deviation = |at: usize| {
            let mut unit = vec![0.0; free.len()];
            unit[at] = 1.0;
            let column = solve(&normal, &unit).expect("its columns were found independent");
            (variance * column[at]).sqrt() * self.scale(free[at])
        };
        (0..free.len()).map(deviation).collect()
    }

    fn determined(&self, jacobian: &[Vec<f64>], among: &[usize]) -> Result<(), CalibrateError> {
        let Some(found) = dependent(jacobian, among) else { return Ok(()) };
        let open = &self.parameters[found.column];
        Err(CalibrateError::Undetermined {
            parameter: open.name,
            from: found.by.iter().map(|i| self.parameters[*i].name).collect(),
            advice: open.advice,
        })
    }
}

/// `Jᵀ J` of some columns.
fn normal_matrix(jacobian: &[Vec<f64>], columns: &[usize]) -> Vec<Vec<f64>> {
    let entry = |a: usize, b: usize| jacobian.iter().map(|row| row[a] * row[b]).sum::<f64>();
    columns.iter().map(|a| columns.iter().map(|b| entry(*a, *b)).collect()).collect()
}
