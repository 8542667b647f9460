//! Five shapes of learning curves (Domhan et al. 2015), with their derivatives.
//!
//! | name | formula | parameters |
//! |---|---|---|
//! | vap | exp(a + b/x + c ln x) | a, b, c |
//! | pow3 | c - a x^-α | c, a, α |
//! | log_power | a / (1 + (x/e^b)^c) | a, b, c |
//! | ilog2 | c - a / ln(1 + x) | c, a |
//! | weibull | α - (α - β) exp(-(κ x)^δ) | α, β, ln κ, δ |
//!
//! κ is positive and may span a hundred powers of ten: its logarithm is fitted.

use libm::{exp, log, log1p};
use serde::{Deserialize, Serialize};

/// Parameters of a curve; those it has not are 0.
pub type Parameters = [f64; 4];

/// A shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Curve {
    /// Vapour pressure.
    Vap,
    /// Power law with three parameters.
    Pow3,
    /// Logistic in ln x.
    LogPower,
    /// Inverse logarithm.
    Ilog2,
    /// Weibull growth.
    Weibull,
}

impl Curve {
    /// All five.
    pub const ALL: [Self; 5] = [Self::Vap, Self::Pow3, Self::LogPower, Self::Ilog2, Self::Weibull];

    /// How many parameters it has.
    pub fn parameters(self) -> usize {
        match self {
            Self::Vap | Self::Pow3 | Self::LogPower => 3,
            Self::Ilog2 => 2,
            Self::Weibull => 4,
        }
    }

    /// Where fits begin.
    pub(super) fn start(self) -> Parameters {
        match self {
            Self::Vap => [-0.622028, -0.470050, 0.042322, 0.0],
            Self::Pow3 => [0.84, 0.52, 0.1, 0.0],
            Self::LogPower => [0.77, 2.98, -0.51, 0.0],
            Self::Ilog2 => [0.78, 0.43, 0.0, 0.0],
            Self::Weibull => [0.7, 0.1, log(0.05), 1.0],
        }
    }

    /// The accuracy at `x`, above 0.
    pub fn value(self, parameters: &Parameters, x: f64) -> f64 {
        self.with_gradient(parameters, x).0
    }

    /// The accuracy at `x` and its derivatives by the parameters.
    pub(super) fn with_gradient(self, &[p, q, r, s]: &Parameters, x: f64) -> (f64, Parameters) {
        let ln = log(x);
        match self {
            Self::Vap => {
                let value = exp(p + q / x + r * ln);
                (value, [value, value / x, value * ln, 0.0])
            }
            Self::Pow3 => {
                let power = exp(-r * ln);
                (p - q * power, [1.0, -power, q * power * ln, 0.0])
            }
            Self::LogPower => {
                let power = exp(r * (ln - q));
                let share = 1.0 / (1.0 + power);
                // power · share² without infinity times zero.
                let slope = share * (1.0 - share);
                (p * share, [share, p * r * slope, -p * (ln - q) * slope, 0.0])
            }
            Self::Ilog2 => {
                let inverse = 1.0 / log1p(x);
                (p - q * inverse, [1.0, -inverse, 0.0, 0.0])
            }
            Self::Weibull => {
                let power = exp(s * (r + ln));
                let rest = exp(-power);
                let slope = if rest == 0.0 { 0.0 } else { (p - q) * rest * power };
                (p - (p - q) * rest, [1.0 - rest, rest, slope * s, slope * (r + ln)])
            }
        }
    }
}
