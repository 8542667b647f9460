//! Memory over time, and what runs when, as columns of a picture.

use crate::open::Work;
use crate::protocol::COLUMNS;
use pipewright_core::recompute::{Answer, memory};

/// Memory over time.
pub struct Curve {
    held: Vec<u64>,
    /// When each item begins.
    pub starts: Vec<f64>,
    kinds: Vec<char>,
    pub end: f64,
    /// The item at the peak.
    pub peak_at: usize,
}

impl Curve {
    /// O(items x their inputs).
    pub fn new(work: &Work, answer: &Answer) -> Self {
        let held = memory(&work.problem, &answer.sequence);
        let mut seen = vec![false; work.problem.len()];
        let (mut starts, mut kinds, mut now) = (vec![], vec![], 0.0);
        for &node in &answer.sequence {
            starts.push(now);
            now += work.problem.node(node).time * work.unit;
            let again = std::mem::replace(&mut seen[node as usize], true);
            kinds.push(match (again, work.labels[node as usize].forward) {
                (true, _) => 'R',
                (false, true) => 'F',
                (false, false) => 'B',
            });
        }
        let highest = held.iter().max().copied().unwrap_or(0);
        let peak_at = held.iter().position(|bytes| *bytes == highest).unwrap_or(0);
        Self { held, starts, kinds, end: now, peak_at }
    }

    /// The moment of the peak.
    pub fn peak(&self) -> f64 {
        self.starts.get(self.peak_at).copied().unwrap_or(0.0)
    }

    /// Where an item stands, in columns of an axis that ends at `end`.
    fn span(&self, at: usize, end: f64) -> (f64, f64) {
        let scale = COLUMNS as f64 / if end > 0.0 { end } else { 1.0 };
        let until = self.starts.get(at + 1).copied().unwrap_or(self.end);
        (self.starts[at] * scale, until * scale)
    }

    /// The most bytes in each column; an item that takes no time stands in the one where it is.
    pub fn columns(&self, end: f64) -> Vec<u64> {
        let mut most = vec![0; COLUMNS];
        for (at, held) in self.held.iter().enumerate() {
            let (from, to) = self.span(at, end);
            let first = (from as usize).min(COLUMNS - 1);
            let last = (to.ceil() as usize).clamp(first + 1, COLUMNS);
            most[first..last].iter_mut().for_each(|column| *column = (*held).max(*column));
        }
        most
    }

    /// What runs longest in each column.
    pub fn runs(&self, end: f64) -> String {
        let mut longest = vec![(0.0, ' '); COLUMNS];
        for (at, kind) in self.kinds.iter().enumerate() {
            let (from, to) = self.span(at, end);
            for (column, best) in longest.iter_mut().enumerate().skip(from as usize) {
                let share = to.min(column as f64 + 1.0) - from.max(column as f64);
                if share <= 0.0 {
                    break;
                }
                if share > best.0 {
                    *best = (share, *kind);
                }
            }
        }
        longest.into_iter().map(|(_, kind)| kind).collect()
    }
}
