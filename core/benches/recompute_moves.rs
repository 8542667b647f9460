//! How many moves FastSA evaluates in a second, and how that falls with the length of the sequence:
//! `cargo bench -p pipewright-core --bench recompute_moves [MOVES]`, 4 million without a number.
//!
//! Two phases of an annealing towards a third of the memory: hot, where many moves are made, and the
//! whole of it.

use pipewright_core::recompute::fastsa::{Annealing, Settings};
use pipewright_core::recompute::{Node, Problem, cost, without_recomputation};
use std::time::Instant;

/// Nodes of the graphs.
const NODES: [usize; 3] = [1_000, 5_000, 20_000];

/// Forward nodes of a layer.
const LAYER: usize = 20;

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

/// A network of layers with shortcuts, forward and backward: a backward node reads the gradient
/// after it and what its forward node read; every third makes a weight gradient besides.
fn training_like(nodes: usize) -> Problem {
    let forward = nodes * 3 / 7;
    let mut all: Vec<Node> = vec![];
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for i in 0..forward {
        let mut inputs: Vec<u32> =
            i.checked_sub(1).map(|before| before as u32).into_iter().collect();
        if i % LAYER == LAYER - 1 || (i >= 4 && random(4) == 0) {
            inputs.push((i - (i % LAYER).min(1 + random(6) as usize).max(1)) as u32);
        }
        all.push(node(&mut random, inputs));
    }
    let mut gradient = vec![u32::MAX; forward];
    for i in (0..forward).rev() {
        let mut inputs = all[i].inputs.clone();
        inputs.push(if i + 1 == forward { i as u32 } else { gradient[i + 1] });
        let mut backward = node(&mut random, inputs.clone());
        backward.output = i == 0;
        gradient[i] = all.len() as u32;
        all.push(backward);
        if i % 3 == 0 {
            let weight = Node { bytes: 1 << 16, output: true, ..node(&mut random, inputs) };
            all.push(weight);
        }
    }
    Problem::new(all).expect("a graph in order")
}

fn node(random: &mut impl FnMut(u64) -> u64, inputs: Vec<u32>) -> Node {
    let bytes = (1 << 20) * (1 + random(16));
    Node { bytes, time: 2.0 + random(200) as f64, inputs, ..Node::default() }
}
