//! Segments of the forward pass: the baseline that everybody knows.
//!
//! Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", on general graphs as Checkmate
//! linearises it: the forward pass is cut into k segments of equal time. Values that cross a border
//! are kept, and all of the last segment; each other segment is run again, as far as it is needed,
//! right before the first backward node that reads one of its dropped values. On a chain of n equal
//! layers k = sqrt(n) needs memory of the order of sqrt(n) for about a forward pass more of time.
//!
//! O(nodes + edges) for each k.

use super::{Answer, Problem, without_recomputation};

/// Numbers of segments that [`sweep`] tries besides the square root.
const SEGMENTS: [u32; 11] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// The sequence with `segments` segments, at least one, which is no recomputation. `forward` says
/// which nodes belong to the forward pass; where a problem does not tell them apart there is
/// nothing to cut.
///
/// Nodes that can be computed once only are kept, and so is what no output needs left out.
///
/// # Panics
/// When `forward` has another length than the problem.
pub fn segments(problem: &Problem, forward: &[bool], segments: u32) -> Vec<u32> {
    assert_eq!(forward.len(), problem.len(), "one flag a node");
    let order = without_recomputation(problem);
    let forward = begin(problem, forward, &order);
    let (first, rest): (Vec<u32>, Vec<u32>) =
        order.into_iter().partition(|node| forward[*node as usize]);
    let Cut { of, dropped } = cut(problem, &first, &forward, segments.max(1));
    let again = needed_again(problem, &rest, &of, &dropped, segments.max(1));
    let mut sequence = first;
    let mut done = vec![false; again.len()];
    let mut due: Vec<u32> = vec![];
    for node in rest {
        let lost = problem.inputs(node).iter().filter(|input| dropped[**input as usize]);
        due.extend(lost.map(|input| of[*input as usize]));
        due.sort_unstable();
        due.dedup();
        for segment in due.drain(..) {
            if !std::mem::replace(&mut done[segment as usize], true) {
                sequence.extend_from_slice(&again[segment as usize]);
            }
        }
        sequence.push(node);
    }
    sequence
}

/// The sequences of several k, among them the square root of the number of forward nodes: those
/// that no other beats in memory and time, the least memory first.
///
/// # Panics
/// When `forward` has another length than the problem.
pub fn sweep(problem: &Problem, forward: &[bool]) -> Vec<Answer> {
    let count = forward.iter().filter(|forward| **forward).count() as u32;
    let mut answers: Vec<Answer> = SEGMENTS
        .into_iter()
        .chain([1, count.isqrt()])
        .map(|k| Answer::new(problem, segments(problem, forward, k)))
        .collect();
    answers.sort_by(|a, b| a.cost.peak.cmp(&b.cost.peak).then(a.cost.time.total_cmp(&b.cost.time)));
    let mut least = f64::INFINITY;
    answers.retain(|answer| {
        let better = answer.cost.time < least;
        least = least.min(answer.cost.time);
        better
    });
    answers
}

/// The forward nodes that can all be computed before any other: those that read forward nodes only.
fn begin(problem: &Problem, forward: &[bool], order: &[u32]) -> Vec<bool> {
    let mut begin = vec![false; problem.len()];
    for node in order {
        let ready = problem.inputs(*node).iter().all(|input| begin[*input as usize]);
        begin[*node as usize] = forward[*node as usize] && ready;
    }
    begin
}

/// Segments of the forward pass.
struct Cut {
    /// Segment of each forward node.
    of: Vec<u32>,
    /// Whether a node's value is dropped until its segment is run again.
    dropped: Vec<bool>,
}

fn cut(problem: &Problem, first: &[u32], forward: &[bool], segments: u32) -> Cut {
    let total: f64 = first.iter().map(|node| problem.node(*node).time).sum();
    let mut of = vec![0; problem.len()];
    let mut before = 0.0;
    for node in first {
        // Without any time all are in the first one: 0 / 0 becomes 0.
        of[*node as usize] = ((f64::from(segments) * before / total) as u32).min(segments - 1);
        before += problem.node(*node).time;
    }
    let mut dropped = forward.to_vec();
    for node in first {
        let own = of[*node as usize];
        for input in problem.inputs(*node) {
            if of[*input as usize] != own {
                dropped[*input as usize] = false;
            }
        }
        if own == segments - 1 || problem.node(*node).once {
            dropped[*node as usize] = false;
        }
    }
    Cut { of, dropped }
}

/// By segment, ascending: the dropped nodes that the nodes of `rest` need.
fn needed_again(
    problem: &Problem,
    rest: &[u32],
    of: &[u32],
    dropped: &[bool],
    segments: u32,
) -> Vec<Vec<u32>> {
    let mut needed = vec![false; problem.len()];
    for node in rest {
        problem.inputs(*node).iter().for_each(|input| needed[*input as usize] = true);
    }
    let mut again = vec![vec![]; segments as usize];
    for node in (0..problem.len()).rev().filter(|node| dropped[*node]) {
        if needed[node] {
            again[of[node] as usize].push(node as u32);
            problem.inputs(node as u32).iter().for_each(|input| needed[*input as usize] = true);
        }
    }
    again.iter_mut().for_each(|nodes| nodes.reverse());
    again
}
