//! The trade-offs found so far.

use super::{Cost, Problem, cost};
use std::ops::Range;

/// A sequence and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Nodes in the order of computation, with repetitions.
    pub sequence: Vec<u32>,
    /// Its peak and time.
    pub cost: Cost,
}

/// Answers none of which is beaten by another: ascending in peak, descending in time.
#[derive(Clone, Debug, Default)]
pub(super) struct Front {
    answers: Vec<Answer>,
    /// Of each answer, what was tried on it.
    tried: Vec<Tried>,
}

/// What was tried on an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tried {
    pub swept: bool,
    pub descended: bool,
}

impl Front {
    /// Adds a sequence that can be run, unless another needs no more of both; `least` is the time
    /// that it must save. Returns whether it was added. O(items + answers).
    pub fn add(&mut self, problem: &Problem, sequence: &[u32], least: f64) -> bool {
        let cost = cost(problem, sequence);
        let at = self.answers.partition_point(|a| a.cost.peak <= cost.peak);
        if at > 0 && self.answers[at - 1].cost.time <= cost.time + least {
            return false;
        }
        // An answer of the same peak that is slower stands right before.
        let same = at > 0 && self.answers[at - 1].cost.peak == cost.peak;
        let start = if same { at - 1 } else { at };
        let beaten = self.answers[at..].iter().take_while(|a| a.cost.time >= cost.time).count();
        self.answers.splice(start..at + beaten, [Answer { sequence: sequence.to_vec(), cost }]);
        self.tried.splice(start..at + beaten, [Tried::default()]);
        true
    }

    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Notes what is tried on an answer, and on those whose peak is up to a hundredth away: little
    /// new would come from them.
    pub fn try_near(&mut self, index: usize, note: impl Fn(&mut Tried)) {
        const NEAR: f64 = 0.01;
        let peak = self.answers[index].cost.peak as f64;
        let near = |a: &Answer| (a.cost.peak as f64 - peak).abs() <= NEAR * peak;
        let (before, after) = self.answers.split_at(index);
        let from = index - before.iter().rev().take_while(|a| near(a)).count();
        let to = index + after.iter().take_while(|a| near(a)).count();
        self.tried[from..to].iter_mut().for_each(note);
    }

    /// The fastest within `limit`.
    pub fn within(&self, limit: u64) -> Option<usize> {
        self.answers.partition_point(|a| a.cost.peak <= limit).checked_sub(1)
    }

    /// The answers among `range` that `open` accepts.
    pub fn open(&self, range: Range<usize>, open: impl Fn(&Tried) -> bool) -> Vec<usize> {
        range.filter(|i| open(&self.tried[*i])).collect()
    }
}
