//! A learning curve's future: each shape fitted alone, then their weights.
//!
//! Fitting shapes and weights together has the smallest error on what was seen and goes to 7.0 where
//! the truth is 0.73. Alone, each shape stays a learning curve, and weights that are not negative
//! keep the sum between them.

use super::curve::{Curve, Parameters};
use super::least_squares::fit;
use super::weights::non_negative;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An accuracy that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// How far training was: steps, epochs, any unit, above 0.
    pub x: f64,
    /// Between 0 and 1.
    pub accuracy: f64,
}

/// Fewest points that say something about four parameters.
pub const FEWEST: usize = 5;

/// How many times as far as the last point a forecast may go: beyond, shapes that fit alike differ.
pub const MOST_AHEAD: f64 = 3.0;

/// One shape's share in a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fitted {
    /// The shape.
    pub curve: Curve,
    /// Its parameters; x in mean distances of the points.
    pub parameters: Parameters,
    /// Sum of squared distances from the points.
    pub squares: f64,
    /// Its weight.
    pub weight: f64,
}

/// An accuracy that is expected, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Where: in the points' unit.
    pub horizon: f64,
    /// Expected there, between 0 and 1.
    pub accuracy: f64,
    /// Mean distance of the points: the unit of the shapes.
    pub unit: f64,
    /// The shapes that could be fitted.
    pub fits: Vec<Fitted>,
}

impl Forecast {
    /// The curve at `x`, in the points' unit, between 0 and 1. Beyond [`Forecast::horizon`] it says
    /// less than it seems to.
    pub fn at(&self, x: f64) -> f64 {
        let value = |fitted: &Fitted| {
            let value = fitted.curve.value(&fitted.parameters, x / self.unit);
            if fitted.weight == 0.0 { 0.0 } else { fitted.weight * value }
        };
        let sum: f64 = self.fits.iter().map(value).sum();
        if sum.is_finite() { sum.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Why nothing can be foretold.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CurveError {
    /// Too few points.
    #[error("{got} points do not make a learning curve: measure {FEWEST} at least")]
    TooFewPoints {
        /// How many there are.
        got: usize,
    },
    /// A point without place: not above zero, not finite, or not behind the one before.
    #[error("point {index} is at x = {x}: places are above 0 and ascend")]
    Place {
        /// Which point.
        index: usize,
        /// Its place.
        x: f64,
    },
    /// A point that is no accuracy.
    #[error("point {index} has accuracy {accuracy}: accuracies are between 0 and 1")]
    Accuracy {
        /// Which point.
        index: usize,
        /// What was measured.
        accuracy: f64,
    },
    /// A horizon that is not ahead, or too far.
    #[error(
        "the forecast for x = {horizon} is refused: with points up to {last}, shapes that fit alike \
         agree up to {MOST_AHEAD} times that; measure on, or ask for less"
    )]
    Horizon {
        /// What was asked for.
        horizon: f64,
        /// The last point's place.
        last: f64,
    },
    /// No shape comes near.
    #[error("no shape fits these points: is this an accuracy by progress?")]
    NoFit,
}

impl Curve {
    /// The accuracy to be expected at `horizon`, from all `points` seen so far: every shape's, weighted.
    ///
    /// # Errors
    /// Points that are no curve, a horizon too far, no shape that fits.
    pub fn forecast(points: &[Point], horizon: f64) -> Result<Forecast, CurveError> {
        let last = check(points)?;
        if !(horizon > 0.0 && horizon <= MOST_AHEAD * last) {
            return Err(CurveError::Horizon { horizon, last });
        }
        // The shapes' starts expect points at 1, 2, 3, ...
        let unit = (last - points[0].x) / (points.len() - 1) as f64;
        let points: Vec<Point> = points.iter().map(|p| Point { x: p.x / unit, ..*p }).collect();
        let of = |curve| {
            let (parameters, squares) = fit(curve, &points)?;
            Some(Fitted { curve, parameters, squares, weight: 0.0 })
        };
        let at = |fitted: &Fitted, x| fitted.curve.value(&fitted.parameters, x);
        let ahead = horizon / unit;
        let mut fits: Vec<Fitted> = Curve::ALL.into_iter().filter_map(of).collect();
        fits.retain(|fitted| at(fitted, ahead).is_finite());
        let column = |fitted: &Fitted| points.iter().map(|p| at(fitted, p.x)).collect();
        let columns: Vec<Vec<f64>> = fits.iter().map(column).collect();
        let goal: Vec<f64> = points.iter().map(|p| p.accuracy).collect();
        for (fitted, weight) in fits.iter_mut().zip(non_negative(&columns, &goal)) {
            fitted.weight = weight;
        }
        let accuracy: f64 = fits.iter().map(|fitted| fitted.weight * at(fitted, ahead)).sum();
        let nothing = fits.iter().all(|f| f.weight == 0.0) && goal.iter().any(|y| *y != 0.0);
        if nothing || !accuracy.is_finite() {
            return Err(CurveError::NoFit);
        }
        Ok(Forecast { horizon, accuracy: accuracy.clamp(0.0, 1.0), unit, fits })
    }
}

/// The last point's place, if all points are as they must be.
fn check(points: &[Point]) -> Result<f64, CurveError> {
    let mut last = 0.0;
    for (index, &Point { x, accuracy }) in points.iter().enumerate() {
        if !(x > last && x.is_finite()) {
            return Err(CurveError::Place { index, x });
        }
        if !(0.0..=1.0).contains(&accuracy) {
            return Err(CurveError::Accuracy { index, accuracy });
        }
        last = x;
    }
    if points.len() < FEWEST {
        return Err(CurveError::TooFewPoints { got: points.len() });
    }
    Ok(last)
}
