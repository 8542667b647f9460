//! How many moves FastSA evaluates in a second in this browser, for whoever measures it.

#[path = "../../../core/benches/recompute_moves/graph.rs"]
mod graph;

use pipewright_core::recompute::fastsa::{Annealing, Settings};
use pipewright_core::recompute::{cost, without_recomputation};
use wasm_bindgen::prelude::wasm_bindgen;

/// Anneals a graph of `nodes` nodes towards a third of its memory with so many moves: how many of
/// them were evaluated, and the bytes of the answer's peak. What the clock says is asked outside.
#[wasm_bindgen]
pub fn measure_moves(nodes: u32, moves: u32) -> Vec<f64> {
    let problem = graph::training_like(nodes as usize);
    let start = without_recomputation(&problem);
    let limit = cost(&problem, &start).peak / 3;
    let settings = Settings { limit, moves: moves.into(), ..Settings::default() };
    let mut annealing = Annealing::new(&problem, &[], &start, settings);
    annealing.advance(moves.into());
    let peak = cost(&problem, &annealing.best()).peak;
    vec![annealing.counts().evaluated as f64, peak as f64]
}
