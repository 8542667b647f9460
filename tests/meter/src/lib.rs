//! Measures of what core does in a browser: moves of FastSA, forecasts of learning curves, the inner
//! loop of a search for plans.
//!
//! A wasm of its own, compiled as the worker is and no part of the page: `pipewright-web meter` builds
//! it, tests open it in a browser and ask the clock. Native code that calls the same functions must
//! come to the same answers.

use pipewright_core::adapt::{Curve, Point};
use pipewright_core::recompute::{cost, without_recomputation};
use pipewright_core::schedule::{ScheduleKind, check};
use pipewright_core::simulate::{Footprint, Sends, StageCost, estimate};
use pipewright_core::units::{Bytes, Nanos};
use pipewright_yardsticks::fastsa::{Annealing, Settings};
use pipewright_yardsticks::graph::training_like;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen::prelude::wasm_bindgen;

/// Anneals a graph of `nodes` nodes towards a third of its memory with so many moves: how many of
/// them were evaluated, and the bytes of the answer's peak. What the clock says is asked outside.
#[cfg_attr(target_arch = "wasm32", wasm_bindgen)]
pub fn measure_moves(nodes: u32, moves: u32) -> Vec<f64> {
    let problem = training_like(nodes as usize);
    let start = without_recomputation(&problem);
    let limit = cost(&problem, &start).peak / 3;
    let settings = Settings { limit, moves: moves.into(), ..Settings::default() };
    let mut annealing = Annealing::new(&problem, &[], &start, settings);
    annealing.advance(moves.into());
    let peak = cost(&problem, &annealing.best()).peak;
    vec![annealing.counts().evaluated as f64, peak as f64]
}

/// Foretells the accuracy at twice the steps from so many points, disturbed a little, `times` times;
/// NaN where nothing could be foretold.
#[cfg_attr(target_arch = "wasm32", wasm_bindgen)]
pub fn measure_forecasts(points: u32, times: u32) -> f64 {
    let noise = |x: u32| f64::from(x.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 - 0.5;
    let point = |x: u32| {
        let accuracy = 0.8 - 0.7 / f64::from(x).sqrt() + 0.01 * noise(x);
        Point { x: f64::from(x), accuracy: accuracy.max(0.0) }
    };
    let points: Vec<Point> = (1..=points).map(point).collect();
    let horizon = 2.0 * points.len() as f64;
    let mut found = None;
    for _ in 0..times {
        found = Curve::forecast(&points, horizon).ok();
    }
    found.map_or(f64::NAN, |forecast| forecast.accuracy)
}

/// 1F1B of that size as far as asked: generated (1), checked too (2), estimated too (3). False where
/// something of it fails.
#[cfg_attr(target_arch = "wasm32", wasm_bindgen)]
pub fn measure_schedule(lanes: u32, micro_batches: u32, parts: u32) -> bool {
    let Ok(schedule) = ScheduleKind::OneFOneB.generate(lanes, micro_batches) else { return false };
    let cost = StageCost {
        forward: Nanos(1000),
        backward_input: Nanos(1100),
        backward_weight: Nanos(900),
        update: Nanos(500),
    };
    let costs = vec![cost; lanes as usize];
    let footprints = vec![Footprint { stash: Bytes(10), ..Footprint::default() }; costs.len()];
    let estimated =
        || estimate(&schedule, &costs, &footprints, Sends::Outbox, |_| Nanos(50)).is_ok();
    match parts {
        1 => !schedule.lanes.is_empty(),
        2 => check(&schedule).is_ok(),
        _ => check(&schedule).is_ok() && estimated(),
    }
}
