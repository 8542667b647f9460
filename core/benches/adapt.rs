//! Time of a forecast: five fits and their weights. `cargo bench -p pipewright-core --bench adapt`.

use pipewright_core::adapt::{Curve, Point};
use std::time::Instant;

/// Most milliseconds for 200 points.
const BAR: f64 = 20.0;

fn main() {
    for count in [40u32, 200, 1000] {
        // Disturbed a little, and the same in every run.
        let noise = |x: u32| f64::from(x.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 - 0.5;
        let accuracy = |x: u32| 0.8 - 0.7 / f64::from(x).sqrt() + 0.01 * noise(x);
        let points: Vec<Point> = (1..=count)
            .map(|x| Point { x: f64::from(x), accuracy: accuracy(x).max(0.0) })
            .collect();
        let time = || {
            let start = Instant::now();
            let forecast = Curve::forecast(&points, 2.0 * f64::from(count)).expect("it is a curve");
            (start.elapsed().as_secs_f64() * 1e3, forecast.accuracy)
        };
        let (best, accuracy) =
            (0..20).map(|_| time()).fold((f64::INFINITY, 0.0), |a, b| (a.0.min(b.0), b.1));
        let bar = if count == 200 {
            if best < BAR { "  bar 20: reached" } else { "  bar 20: MISSED" }
        } else {
            ""
        };
        println!("{count:>5} points: {best:>6.2} ms, accuracy {accuracy:.4}{bar}");
    }
}
