//! Machine numbers from measurements: least squares within bounds, with uncertainty.
//!
//! Residuals are relative, `model / measured - 1`, so that a fast point weighs as much as a slow
//! one. A fit that the points do not determine is refused with a sentence that says which
//! parameter is open and what to measure.
//!
//! - [`fit`]: any model, any parameters;
//! - [`pipeline()`]: Takisawa's parameters from (m, d, time) points;
//! - [`link()`] and [`stages`]: latency, bandwidth and stage times from the spans of a trace.

mod fit;
mod pipeline;
mod solve;
mod trace;

pub use fit::fit;
pub use pipeline::{PipelineFit, Point, pipeline};
pub use trace::{MessageSample, SpanSample, StageFit, link, stages};

use std::fmt;
use thiserror::Error;

/// A number to be found.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// For people; appears in results and refusals.
    pub name: &'static str,
    /// Where the search begins; its size is the parameter's scale.
    pub start: f64,
    /// Smallest sensible value.
    pub low: f64,
    /// Largest sensible value.
    pub high: f64,
    /// What to measure when the points leave it open.
    pub advice: &'static str,
}

/// A number that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Name of the parameter.
    pub name: &'static str,
    /// Best value.
    pub value: f64,
    /// One standard deviation of the value, from the residuals' covariance; `None` for a value
    /// that stands at its bound, where that theory does not hold.
    pub deviation: Option<f64>,
}

/// The outcome of a fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// In the order of the parameters.
    pub estimates: Vec<Estimate>,
    /// `model / measured - 1` by point.
    pub residuals: Vec<f64>,
    /// Steps that the search took.
    pub steps: u32,
}

/// Why there is no fit.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CalibrateError {
    /// Not more points than parameters, so nothing would be left to judge the fit by.
    #[error("{points} points for {parameters} parameters: measure at least {}", parameters + 1)]
    TooFew {
        /// Points given.
        points: usize,
        /// Numbers to find.
        parameters: usize,
    },
    /// The points are alike in what a parameter does.
    #[error("the points do not determine {parameter}{}: {advice}", apart(.from))]
    Undetermined {
        /// The open parameter.
        parameter: &'static str,
        /// Parameters whose effect together looks the same; empty where it has no effect at all.
        from: Vec<&'static str>,
        /// What to measure.
        advice: &'static str,
    },
    /// A measured value that is no time.
    #[error("point {point} was measured as {value}, must be a positive number")]
    Measured {
        /// Counted from 0.
        point: usize,
        /// What stands there.
        value: f64,
    },
    /// Bounds that hold no value, or a start outside of them.
    #[error("{parameter}: start {start} must lie in {low}..{high}, all finite")]
    Bounds {
        /// The parameter.
        parameter: &'static str,
        /// Its start.
        start: f64,
        /// Its lower bound.
        low: f64,
        /// Its upper bound.
        high: f64,
    },
    /// The model gives no number for sensible parameters.
    #[error("the model gives {value} for point {point} within the bounds")]
    Model {
        /// Counted from 0.
        point: usize,
        /// What it gives.
        value: f64,
    },
}

fn apart(from: &[&str]) -> String {
    if from.is_empty() { String::new() } else { format!(" apart from {}", from.join(", ")) }
}

impl Fit {
    /// The value of a parameter.
    ///
    /// # Panics
    /// When the fit had no such parameter: a mistake of the caller.
    pub fn value(&self, name: &str) -> f64 {
        let found = self.estimates.iter().find(|e| e.name == name);
        found.expect("asked for a parameter of this fit").value
    }

    /// All values, in the order of the parameters.
    pub fn values(&self) -> Vec<f64> {
        self.estimates.iter().map(|e| e.value).collect()
    }

    /// Mean of the absolute relative residuals.
    pub fn mean_error(&self) -> f64 {
        self.residuals.iter().map(|r| r.abs()).sum::<f64>() / self.residuals.len() as f64
    }

    /// Largest absolute relative residual.
    pub fn largest_error(&self) -> f64 {
        self.residuals.iter().fold(0.0, |largest, r| r.abs().max(largest))
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for e in &self.estimates {
            match e.deviation {
                Some(deviation) => writeln!(f, "{} = {:.4e} ± {deviation:.1e}", e.name, e.value)?,
                None => writeln!(f, "{} = {:.4e} (at its bound)", e.name, e.value)?,
            }
        }
        let (mean, largest) = (100.0 * self.mean_error(), 100.0 * self.largest_error());
        write!(f, "{} points, mean error {mean:.2} %, largest {largest:.2} %", self.residuals.len())
    }
}
