//! Problems and sequences: every error, and costs beside a naive simulation.

mod bound;
mod chen;
mod cut;
mod exact;
mod nest;
mod problem;
mod search;
mod sequence;
mod state;

use super::{Node, Problem};
use proptest::prelude::*;

/// A node of so many bytes and time that reads `inputs`.
pub(super) fn node(bytes: u64, time: f64, inputs: &[u32]) -> Node {
    Node { bytes, time, inputs: inputs.to_vec(), ..Node::default() }
}

/// The same, and needed.
pub(super) fn output(bytes: u64, time: f64, inputs: &[u32]) -> Node {
    Node { output: true, ..node(bytes, time, inputs) }
}

/// Any small problem: each node reads some of those before it, sizes and times are small whole
/// numbers (sums are exact), nothing among them, and some nodes can be computed once only.
pub(super) fn problem(nodes: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Problem> {
    let node = (0..8u64, 0..6u32, any::<u16>(), 0..4u8, 0..8u8);
    prop::collection::vec(node, nodes).prop_map(|raw| {
        let last = raw.len() - 1;
        let nodes =
            raw.into_iter().enumerate().map(|(at, (bytes, time, mask, output, once))| Node {
                bytes,
                // Bits that say nothing of inputs; most nodes need none.
                scratch: u64::from(mask >> 8 & mask >> 12 & 7),
                time: f64::from(time),
                // Of the four before it, more often than not.
                inputs: (at.saturating_sub(4)..at)
                    .filter(|input| mask >> (at - input) & 1 == 1)
                    .map(|input| input as u32)
                    .collect(),
                output: output == 0 || at == last,
                once: once == 0,
            });
        Problem::new(nodes.collect()).unwrap()
    })
}

/// Any sequence of a problem that can be run: nodes are drawn, and computed where they may be; what
/// is needed and still missing follows at the end.
pub(super) fn sequence(problem: &Problem, draws: &[prop::sample::Index]) -> Vec<u32> {
    let mut sequence: Vec<u32> = vec![];
    let mut done = vec![false; problem.len()];
    for draw in draws {
        let node = draw.index(problem.len());
        let ready = problem.inputs(node as u32).iter().all(|input| done[*input as usize]);
        if ready && !(problem.node(node as u32).once && done[node]) {
            done[node] = true;
            sequence.push(node as u32);
        }
    }
    let missing = super::without_recomputation(problem);
    sequence.extend(missing.into_iter().filter(|node| !done[*node as usize]));
    sequence
}
