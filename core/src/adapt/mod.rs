//! Choice of the next codec to train with, from the growth of accuracy so far.
//!
//! Every so many steps each candidate trains a little from the same state. [`Curve::forecast`] extends its
//! learning curve to a horizon, and [`Decision::of`] takes the candidate that gains most for its time, the
//! time of the trials included. Both are pure functions whose results hold their inputs, so that a
//! run can be explained and replayed.
//!
//! Domhan et al. 2015 (curves), Oyama (choice of the method while training).
//!
//! ```
//! use pipewright_core::adapt::{Curve, Point};
//!
//! let point = |x: f64| Point { x, accuracy: 0.8 - 0.7 / x.sqrt() };
//! let seen: Vec<Point> = (1..=40).map(|x| point(f64::from(x))).collect();
//! let forecast = Curve::forecast(&seen, 100.0)?;
//! assert!((forecast.accuracy - 0.73).abs() < 1e-3);
//! # Ok::<(), pipewright_core::adapt::CurveError>(())
//! ```

mod choice;
mod curve;
mod history;
mod least_squares;
mod round;
#[cfg(test)]
mod tests;
mod two_stage;
mod weights;

pub use choice::{Candidate, ChoiceError, Decision, Question};
pub use curve::Curve;
pub use history::History;
pub use round::{Chosen, Expected, Round, Trial};
pub use two_stage::{CurveError, Fitted, Forecast, Point};
