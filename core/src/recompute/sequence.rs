//! A sequence of computations with repetitions, and what it needs: exact, independent of every
//! search.

use super::{Answer, Problem};
use thiserror::Error;

/// What a sequence costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Most bytes at one moment.
    pub peak: u64,
    /// Time of all computations.
    pub time: f64,
}

impl Answer {
    /// Of a checked sequence.
    pub fn new(problem: &Problem, sequence: Vec<u32>) -> Self {
        Self { cost: cost(problem, &sequence), sequence }
    }
}

/// Why a sequence cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SequenceError {
    /// No such node.
    #[error("item {at} of the sequence names node {node}; the graph has {count}")]
    Unknown {
        /// Position in the sequence.
        at: usize,
        /// What stands there.
        node: u32,
        /// Nodes of the graph.
        count: usize,
    },
    /// Something is read that was never computed.
    #[error("item {at} of the sequence computes node {node} before its input {input}")]
    Missing {
        /// Position in the sequence.
        at: usize,
        /// The node.
        node: u32,
        /// What it lacks.
        input: u32,
    },
    /// Something is computed again that can be computed once only.
    #[error("item {at} of the sequence computes node {node} again, which works once only")]
    Again {
        /// Position in the sequence.
        at: usize,
        /// The node.
        node: u32,
    },
    /// A result is missing.
    #[error("the sequence never computes node {node}, which is an output")]
    NoOutput {
        /// The output.
        node: u32,
    },
}

impl Problem {
    /// Checks that `sequence` can be run and computes everything that is asked for.
    ///
    /// # Errors
    /// The first position at which something is wrong, and what. O(items + their inputs).
    pub fn check(&self, sequence: &[u32]) -> Result<(), SequenceError> {
        let mut done = vec![false; self.len()];
        for (at, &node) in sequence.iter().enumerate() {
            if node as usize >= self.len() {
                return Err(SequenceError::Unknown { at, node, count: self.len() });
            }
            if let Some(input) = self.inputs(node).iter().find(|i| !done[**i as usize]) {
                return Err(SequenceError::Missing { at, node, input: *input });
            }
            if std::mem::replace(&mut done[node as usize], true) && self.node(node).once {
                return Err(SequenceError::Again { at, node });
            }
        }
        match (0..self.len()).find(|i| self.nodes()[*i].output && !done[*i]) {
            Some(node) => Err(SequenceError::NoOutput { node: node as u32 }),
            None => Ok(()),
        }
    }
}

/// Last use of the value computed at each position, before it is computed again: its own position
/// if there is none.
pub fn last_uses(problem: &Problem, sequence: &[u32]) -> Vec<u32> {
    let mut born = vec![u32::MAX; problem.len()];
    let mut last: Vec<u32> = (0..sequence.len() as u32).collect();
    for (at, &node) in sequence.iter().enumerate() {
        for &input in problem.inputs(node) {
            last[born[input as usize] as usize] = at as u32;
        }
        born[node as usize] = at as u32;
    }
    last
}

/// Bytes in use while each item of a checked sequence runs: every value from its computation to its
/// last use before the next one, and the item's scratch. Values that live across a mark count as often
/// as there are copies, all the time. O(items + their inputs).
pub fn memory(problem: &Problem, sequence: &[u32]) -> Vec<u64> {
    let last = last_uses(problem, sequence);
    let marks: Vec<usize> =
        (0..sequence.len()).filter(|at| problem.marks().contains(&sequence[*at])).collect();
    let mut change = vec![0i64; sequence.len() + 1];
    for (at, &node) in sequence.iter().enumerate() {
        let bytes = problem.node(node).bytes as i64;
        let end = last[at] as usize;
        let scratch = problem.node(node).scratch as i64;
        change[at] += scratch;
        change[at + 1] -= scratch;
        if marks.iter().any(|mark| at < *mark && *mark <= end) {
            change[0] += bytes * i64::from(problem.copies());
        } else {
            change[at] += bytes;
            change[end + 1] -= bytes;
        }
    }
    let mut held = 0;
    let held = change[..sequence.len()].iter().map(|change| {
        held += change;
        held as u64
    });
    held.collect()
}

/// Peak and time of a checked sequence.
pub fn cost(problem: &Problem, sequence: &[u32]) -> Cost {
    let peak = memory(problem, sequence).into_iter().max().unwrap_or(0);
    Cost { peak, time: sequence.iter().map(|node| problem.node(*node).time).sum() }
}

/// Every needed node once, in the order of the problem.
pub fn without_recomputation(problem: &Problem) -> Vec<u32> {
    let needed = problem.needed();
    (0..problem.len() as u32).filter(|node| needed[*node as usize]).collect()
}

/// Appends the computation of `node` to a sequence, after those of everything that it needs and
/// that is not `there`; nothing if it is there itself. O(appended x their inputs).
pub(super) fn append(problem: &Problem, node: u32, there: &mut [bool], sequence: &mut Vec<u32>) {
    let mut stack = vec![(node, false)];
    while let Some((node, ready)) = stack.pop() {
        if there[node as usize] {
            continue;
        }
        if ready {
            sequence.push(node);
            there[node as usize] = true;
        } else {
            stack.push((node, true));
            stack.extend(problem.inputs(node).iter().rev().map(|input| (*input, false)));
        }
    }
}
