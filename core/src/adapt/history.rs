//! The accuracy of a training so far, in few points.

use super::Point;
use serde::{Deserialize, Serialize};

/// Points that are kept at most: fits take some milliseconds for so many.
const MOST: usize = 200;

/// Means of the steps' accuracies over equally many steps each. When there are more than 200 of
/// them, neighbours are joined, so a long training's curve has 100 to 200 points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Steps of a point.
    width: u64,
    points: Vec<Point>,
    /// Steps, and the sum of their accuracies, that are not a point yet.
    open: (u64, f64),
}

impl History {
    /// Nothing yet; points of `width` steps, at least 1.
    pub fn new(width: u64) -> Self {
        Self { width: width.max(1), points: vec![], open: (0, 0.0) }
    }

    /// Adds the accuracy of step `step`, counted from 0; steps come in order.
    pub fn push(&mut self, step: u64, accuracy: f64) {
        self.open.0 += 1;
        self.open.1 += accuracy;
        if self.open.0 < self.width {
            return;
        }
        let (steps, sum) = std::mem::take(&mut self.open);
        let mean = (sum / steps as f64).clamp(0.0, 1.0);
        // The middle of the steps that it is the mean of.
        let x = (step + 1) as f64 - (steps - 1) as f64 / 2.0;
        self.points.push(Point { x, accuracy: mean });
        if self.points.len() > MOST {
            self.join();
        }
    }

    fn join(&mut self) {
        let half = |points: &[Point]| match points {
            [a, b] => Point { x: (a.x + b.x) / 2.0, accuracy: (a.accuracy + b.accuracy) / 2.0 },
            _ => points[0],
        };
        self.points = self.points.chunks(2).map(half).collect();
        self.width *= 2;
    }

    /// All points so far, ascending.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}
