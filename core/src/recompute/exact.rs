//! The optimum for small graphs: least time within a memory limit, least memory, all trade-offs.
//!
//! A* over states (values that are there, results that are done). An edge drops a smallest set of
//! values that makes room for a node, and computes it. Dropping is put off until room is needed: a
//! state that has more values at no more time can do whatever one with fewer can (dominance), but
//! for values that no open result needs, which go at once. The time still needed is estimated by
//! the nodes that must be computed in any case; the estimate never falls by more than a step takes,
//! so the first state without open results is the best.
//!
//! With n nodes there are up to 2^n sets of values for each set of done results, and from each one
//! up to 2^n ways to make room; a state is compared with all that have the same results. Training
//! graphs of [`MOST`] nodes take milliseconds; what would take minutes is given up after
//! [`MOST_COMPARISONS`] comparisons.

mod states;

use super::problem::MOST_BYTES;
use super::{Answer, Problem};
use states::{Bits, States};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use thiserror::Error;

/// Most nodes of a problem that is solved.
pub const MOST: usize = 20;

/// Most comparisons of two states.
pub const MOST_COMPARISONS: u64 = 1 << 28;

/// Why there is no exact answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExactError {
    /// Too many nodes.
    #[error("the graph has {nodes} nodes, more than the {MOST} that are solved exactly; search")]
    TooLarge {
        /// There are.
        nodes: usize,
    },
    /// Too many ways to compute it.
    #[error("the graph was not solved with {MOST_COMPARISONS} comparisons of states; search")]
    TooHard,
    /// Values that count several times.
    #[error("values count {copies} times across a mark, which is not solved exactly; search")]
    Copies {
        /// So many times.
        copies: u32,
    },
}

/// The least time within `limit` bytes; `None` where no sequence is within it.
///
/// # Errors
/// When the problem is too large or too hard, or has values that count several times.
pub fn least_time(problem: &Problem, limit: u64) -> Result<Option<Answer>, ExactError> {
    let small = Small::new(problem)?;
    Ok(small.solve(limit.min(MOST_BYTES))?.map(|sequence| Answer::new(problem, sequence)))
}

/// The least memory, and the least time with it.
///
/// # Errors
/// When the problem is too large or too hard, or has values that count several times.
pub fn least_memory(problem: &Problem) -> Result<Answer, ExactError> {
    let small = Small::new(problem)?;
    let timeless = Small { times: vec![0.0; small.times.len()], ..small.clone() };
    let mut best = super::without_recomputation(problem);
    // No sequence is within `low`, one is within `high`.
    let (mut low, mut high) = (None, super::cost(problem, &best).peak);
    while low.map_or(0, |low: u64| low + 1) < high {
        let limit = low.map_or(0, |low| low + (high - low) / 2);
        match timeless.solve(limit)? {
            Some(sequence) => {
                high = super::cost(problem, &sequence).peak;
                best = sequence;
            }
            None => low = Some(limit),
        }
    }
    Ok(Answer::new(problem, small.solve(high)?.unwrap_or(best)))
}

/// All trade-offs, the least memory first: each takes less time than those before it, and none
/// within its memory takes less.
///
/// # Errors
/// When the problem is too large or too hard, or has values that count several times.
pub fn front(problem: &Problem) -> Result<Vec<Answer>, ExactError> {
    let small = Small::new(problem)?;
    let mut front: Vec<Answer> = vec![];
    let mut limit = Some(MOST_BYTES);
    while let Some(within) = limit {
        let Some(sequence) = small.solve(within)? else { break };
        let answer = Answer::new(problem, sequence);
        limit = answer.cost.peak.checked_sub(1);
        // The one before needs more memory for the same time.
        if front.last().is_some_and(|last| last.cost.time >= answer.cost.time) {
            front.pop();
        }
        front.push(answer);
    }
    front.reverse();
    Ok(front)
}

/// A problem with its sets as bits.
#[derive(Clone)]
struct Small {
    bytes: Vec<u64>,
    /// What computing each needs, its value included.
    working: Vec<u64>,
    times: Vec<f64>,
    inputs: Vec<Bits>,
    /// Nodes that a node's value is good for, itself among them.
    descendants: Vec<Bits>,
    outputs: Bits,
    once: Bits,
}

/// Where a search is.
#[derive(Clone, Copy)]
struct QueuedState {
    there: Bits,
    /// Results, and nodes that are computed once only, that are computed.
    done: Bits,
    time: f64,
    /// Time and what is needed at least from here on.
    estimate: f64,
    /// The step before and the node that was computed, by the step's number.
    from: Option<(u32, u8)>,
    number: u32,
}

impl Small {
    fn new(problem: &Problem) -> Result<Self, ExactError> {
        let nodes = problem.len();
        if nodes > MOST {
            return Err(ExactError::TooLarge { nodes });
        }
        if problem.copies() > 1 && !problem.marks().is_empty() {
            return Err(ExactError::Copies { copies: problem.copies() });
        }
        let set = |which: &dyn Fn(u32) -> bool| -> Bits {
            (0..nodes as u32).filter(|node| which(*node)).fold(0, |set, node| set | 1 << node)
        };
        let bits = |list: &[u32]| list.iter().fold(0, |set, node| set | 1 << node);
        let mut descendants = vec![0; nodes];
        for node in (0..nodes).rev() {
            let readers = problem.readers(node as u32).iter();
            let below = readers.fold(0, |set, reader| set | descendants[*reader as usize]);
            descendants[node] = 1 << node | below;
        }
        Ok(Self {
            bytes: problem.nodes().iter().map(|node| node.bytes).collect(),
            working: problem.nodes().iter().map(|node| node.bytes + node.scratch).collect(),
            times: problem.nodes().iter().map(|node| node.time).collect(),
            inputs: (0..nodes as u32).map(|node| bits(problem.inputs(node))).collect(),
            descendants,
            outputs: set(&|node| problem.node(node).output),
            once: set(&|node| problem.node(node).once),
        })
    }

    /// The fastest sequence within `limit` bytes.
    fn solve(&self, limit: u64) -> Result<Option<Vec<u32>>, ExactError> {
        let mut queue = BinaryHeap::new();
        let mut steps: Vec<Option<(u32, u8)>> = vec![];
        let mut seen = States::default();
        let estimate = self.still_needed(0, 0);
        queue.push(QueuedState { there: 0, done: 0, time: 0.0, estimate, from: None, number: 0 });
        let mut pushed = 1;
        while let Some(step) = queue.pop() {
            if !seen.add(step.done, step.there, step.time) {
                continue;
            }
            let number = steps.len() as u32;
            steps.push(step.from);
            if self.outputs & !step.done == 0 {
                return Ok(Some(path(&steps, number)));
            }
            if seen.comparisons > MOST_COMPARISONS {
                return Err(ExactError::TooHard);
            }
            for node in 0..self.bytes.len() {
                let bit = 1 << node;
                let computable = self.inputs[node] & !step.there == 0
                    && bit & (step.there | self.once & step.done) == 0
                    && self.descendants[node] & self.outputs & !step.done != 0;
                let Some(room) = limit.checked_sub(self.working[node]).filter(|_| computable)
                else {
                    continue;
                };
                let done = step.done | bit & (self.outputs | self.once);
                let time = step.time + self.times[node];
                self.make_room(step.there, self.inputs[node], room, &mut |kept| {
                    let there = self.useful(kept | bit, done);
                    let estimate = time + self.still_needed(there, done);
                    let from = Some((number, node as u8));
                    queue.push(QueuedState { there, done, time, estimate, from, number: pushed });
                    pushed += 1;
                });
            }
        }
        Ok(None)
    }

    /// Calls `found` with each largest part of `there` that has at most `room` bytes and contains
    /// `held`.
    fn make_room(&self, there: Bits, held: Bits, room: u64, found: &mut impl FnMut(Bits)) {
        let mut candidates: Vec<usize> =
            (0..self.bytes.len()).filter(|node| there & !held & 1 << node != 0).collect();
        // The largest first, so that a choice that does not fit is given up early.
        candidates.sort_by_key(|node| std::cmp::Reverse(self.bytes[*node]));
        let total = self.sum(held);
        if total <= room {
            self.choose(&candidates, held, total, room, u64::MAX, found);
        }
    }

    /// Keeps or drops the first of `candidates`, then the others. A part is a largest one when no
    /// dropped value fits in besides: the `smallest` dropped one does not.
    fn choose(
        &self,
        candidates: &[usize],
        kept: Bits,
        total: u64,
        room: u64,
        smallest: u64,
        found: &mut impl FnMut(Bits),
    ) {
        let Some((first, rest)) = candidates.split_first() else {
            if smallest > room - total {
                found(kept);
            }
            return;
        };
        let bytes = self.bytes[*first];
        if bytes <= room - total {
            self.choose(rest, kept | 1 << first, total + bytes, room, smallest, found);
        }
        if bytes > 0 {
            self.choose(rest, kept, total, room, smallest.min(bytes), found);
        }
    }

    fn sum(&self, set: Bits) -> u64 {
        (0..self.bytes.len()).filter(|node| set & 1 << node != 0).map(|node| self.bytes[node]).sum()
    }

    /// What of `there` an open result may still need.
    fn useful(&self, there: Bits, done: Bits) -> Bits {
        let open = self.outputs & !done;
        let of_use = |node: &usize| self.descendants[*node] & open & !(1 << node) != 0;
        (0..self.bytes.len()).filter(of_use).fold(0, |set, node| set | 1 << node) & there
    }

    /// Time of all nodes that must be computed in any case: open results, and what they lack.
    fn still_needed(&self, there: Bits, done: Bits) -> f64 {
        let mut needed = self.outputs & !done;
        let mut time = 0.0;
        for node in (0..self.bytes.len()).rev() {
            if needed & 1 << node != 0 {
                time += self.times[node];
                needed |= self.inputs[node] & !there;
            }
        }
        time
    }
}

/// The nodes on the way to a step.
fn path(steps: &[Option<(u32, u8)>], mut step: u32) -> Vec<u32> {
    let mut sequence = vec![];
    while let Some((before, node)) = steps[step as usize] {
        sequence.push(u32::from(node));
        step = before;
    }
    sequence.reverse();
    sequence
}

impl Ord for QueuedState {
    /// The greatest is taken first: the least estimate, then what is nearest to its end.
    fn cmp(&self, other: &Self) -> Ordering {
        let estimate = other.estimate.total_cmp(&self.estimate);
        estimate.then(self.time.total_cmp(&other.time)).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for QueuedState {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for QueuedState {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for QueuedState {}
