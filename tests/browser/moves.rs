//! FastSA's moves a second in the browser, beside the same moves natively: prints both, and holds
//! both to the same answer: `cargo test --test browser moves:: -- --ignored --nocapture` after `make web`.

#[path = "../../core/benches/recompute_moves/graph.rs"]
mod graph;

use pipewright::Outcome;
use pipewright::explorer::explorer;
use pipewright_core::recompute::fastsa::{Annealing, Settings};
use pipewright_core::recompute::{cost, without_recomputation};
use std::time::Instant;

/// Nodes of the graphs, and moves on each.
const NODES: [u32; 3] = [1_000, 5_000, 20_000];
const MOVES: u32 = 1_000_000;

/// Calls the function that the worker's module exports.
const MEASURE: &str = "
    const begin = performance.now();
    const [count, peak] = worker.measure_moves(NODES, MOVES);
    return [count, performance.now() - begin, peak];";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn moves_a_second_in_the_browser() -> Outcome<()> {
    let Some(browser) = explorer("moves", "")? else { return Ok(()) };
    println!("| nodes | moves/s in the browser | natively |\n|---|---|---|");
    for nodes in NODES {
        let script = MEASURE.replace("NODES", &nodes.to_string());
        let found = browser.in_worker(&script.replace("MOVES", &MOVES.to_string()))?;
        let number = |at: usize| found[at].as_f64().unwrap_or(f64::NAN);
        let begin = Instant::now();
        let (evaluated, peak) = native(nodes);
        let seconds = begin.elapsed().as_secs_f64();
        let browsers = 1e3 * number(0) / number(1);
        println!("| {nodes} | {browsers:.0} | {:.0} |", evaluated as f64 / seconds);
        assert_eq!((number(0) as u64, number(2) as u64), (evaluated, peak), "{nodes} nodes");
    }
    Ok(())
}

fn native(nodes: u32) -> (u64, u64) {
    let problem = graph::training_like(nodes as usize);
    let start = without_recomputation(&problem);
    let limit = cost(&problem, &start).peak / 3;
    let settings = Settings { limit, moves: MOVES.into(), ..Settings::default() };
    let mut annealing = Annealing::new(&problem, &[], &start, settings);
    annealing.advance(MOVES.into());
    (annealing.counts().evaluated, cost(&problem, &annealing.best()).peak)
}
