//! Takisawa's parameters from measured (m, d, time) points.

use super::{CalibrateError, Fit, Parameter, fit};
use crate::cost::takisawa::t_total_with_overhead;

/// A measured step of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Micro-batches.
    pub m: u64,
    /// Stages.
    pub d: u64,
    /// Time of a step in seconds, or in any other unit that all points share.
    pub time: f64,
}

/// Parameters of equation 3 with the constant per layer and micro-batch, in the unit of the points.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineFit {
    /// Computing time of the undivided mini-batch on one process, without constants.
    pub t_comp: f64,
    /// Start-up of a message.
    pub t0: f64,
    /// Time that the whole mini-batch's message takes beyond `t0`: bytes / bw.
    pub transfer: f64,
    /// Constant per layer and micro-batch.
    pub k: f64,
    /// Residuals and deviations.
    pub fit: Fit,
}

/// Finds `t_comp`, `t0`, `transfer` and `k` for a network of `layers` equal layers.
///
/// # Errors
/// When the points do not determine the four: at one d alone, three terms in m (m, 1, 1/m) stand
/// against four parameters.
pub fn pipeline(layers: u64, points: &[Point]) -> Result<PipelineFit, CalibrateError> {
    let measured: Vec<f64> = points.iter().map(|p| p.time).collect();
    // No parameter can take longer than the slowest point altogether.
    let slowest = measured.iter().fold(0.0_f64, |slowest, time| slowest.max(*time));
    let layered = slowest / layers as f64;
    let parameter = |name, share: f64, high: f64, advice| Parameter {
        name,
        start: share * high,
        low: 0.0,
        high,
        advice,
    };
    let most = points.iter().map(|p| p.d * p.m).max().unwrap_or(1) as f64;
    let parameters = [
        parameter("t_comp", 0.5 / most, slowest * most, "measure one process, undivided"),
        parameter("t0", 1e-3, slowest, "measure other process counts d, with small and large m"),
        parameter("transfer", 1e-2, slowest, "measure other process counts d at small m"),
        parameter("k", 1e-2, layered, "measure other process counts d, one of them 1"),
    ];
    let model = |x: &[f64]| {
        let time = |p: &Point| {
            // One process sends nothing; equation 3 would count m - 1 messages.
            let message = if p.d == 1 { 0.0 } else { x[1] + x[2] / p.m as f64 };
            t_total_with_overhead(p.m, p.d, x[0], message, layers, x[3])
        };
        points.iter().map(time).collect()
    };
    let fit = fit(&parameters, &measured, model)?;
    let x = fit.values();
    Ok(PipelineFit { t_comp: x[0], t0: x[1], transfer: x[2], k: x[3], fit })
}

impl PipelineFit {
    /// Predicted time of a step.
    pub fn time(&self, m: u64, d: u64, layers: u64) -> f64 {
        let message = if d == 1 { 0.0 } else { self.t0 + self.transfer / m as f64 };
        t_total_with_overhead(m, d, self.t_comp, message, layers, self.k)
    }
}
