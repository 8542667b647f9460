//! FastSA's moves as a WebAssembly module without imports, for the bench in the browser
//! (`tests/browser_moves.rs`): what the clock says is asked outside.

#[path = "../benches/recompute_moves/graph.rs"]
mod graph;

use pipewright_core::recompute::fastsa::{Annealing, Settings};
use pipewright_core::recompute::{cost, without_recomputation};
use std::cell::Cell;

thread_local! {
    static PEAK: Cell<u64> = const { Cell::new(0) };
}

/// Anneals a graph of `nodes` nodes towards a third of its memory; moves that were evaluated.
#[unsafe(no_mangle)]
pub extern "C" fn anneal(nodes: u32, moves: u32) -> f64 {
    let problem = graph::training_like(nodes as usize);
    let start = without_recomputation(&problem);
    let limit = cost(&problem, &start).peak / 3;
    let settings = Settings { limit, moves: moves.into(), ..Settings::default() };
    let mut annealing = Annealing::new(&problem, &[], &start, settings);
    annealing.advance(moves.into());
    PEAK.set(cost(&problem, &annealing.best()).peak);
    annealing.counts().evaluated as f64
}

/// Bytes at the peak of the last answer: the same wherever it is computed.
#[unsafe(no_mangle)]
pub extern "C" fn peak() -> f64 {
    PEAK.get() as f64
}
