//! Moves that FastSA evaluates in a second, by the length of the sequence:
//! `cargo bench -p pipewright-yardsticks --bench recompute_moves [MOVES]`, 4 million without a number.
//!
//! Two phases of an annealing towards a third of the memory: hot, where many moves are made, and the
//! whole of it.

use pipewright_core::recompute::{cost, without_recomputation};
use pipewright_yardsticks::fastsa::{Annealing, Settings};
use pipewright_yardsticks::graph::training_like;
use std::time::Instant;

/// Nodes of the graphs.
const NODES: [usize; 3] = [1_000, 5_000, 20_000];

fn main() {
    let given = std::env::args().skip(1).find_map(|arg| arg.parse::<u64>().ok());
    let moves = given.unwrap_or(4_000_000);
    println!(
        "| nodes | items | moves/s hot | moves/s | evaluated | tree | accepted | memory | time |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for nodes in NODES {
        let problem = training_like(nodes);
        let start = without_recomputation(&problem);
        let first = cost(&problem, &start);
        let limit = first.peak / 3;
        let settings = Settings { limit, moves, ..Settings::default() };
        let mut annealing = Annealing::new(&problem, &[], &start, settings);
        let begin = Instant::now();
        annealing.advance(moves / 8);
        let hot = annealing.counts().evaluated as f64 / begin.elapsed().as_secs_f64();
        annealing.advance(moves);
        let all = annealing.counts().evaluated as f64 / begin.elapsed().as_secs_f64();
        let counts = annealing.counts();
        let best = annealing.best();
        let reached = cost(&problem, &best);
        let percent = |a: u64| 100.0 * a as f64 / counts.drawn as f64;
        println!(
            "| {nodes} | {} | {hot:.0} | {all:.0} | {:.0} % | {:.0} % | {:.0} % | {:.1} % | {:.1} % |",
            best.len(),
            percent(counts.evaluated),
            percent(counts.tried),
            percent(counts.accepted),
            100.0 * reached.peak as f64 / first.peak as f64,
            100.0 * reached.time / first.time,
        );
    }
}
