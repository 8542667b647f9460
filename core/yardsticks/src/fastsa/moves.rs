//! Random moves, drawn so that most of them can be made.

use super::slots::{Move, NONE, Slots};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// Slots around the one that was drawn among which an empty one is looked for.
const NEAR: u32 = 8;

/// Logarithms in the table.
const LOGARITHMS: usize = 1024;

/// A source of random moves.
#[derive(Clone, Debug)]
pub(super) struct Rng {
    random: ChaCha8Rng,
    /// Nodes that can be chosen.
    nodes: Vec<u32>,
    /// `-ln` of numbers spread evenly between 0 and 1.
    logarithms: Vec<f64>,
}

impl Rng {
    /// Draws among `nodes`.
    pub fn new(seed: u64, nodes: Vec<u32>) -> Self {
        let even = |i| (i as f64 + 0.5) / LOGARITHMS as f64;
        let logarithms = (0..LOGARITHMS).map(|i| -libm::log(even(i))).collect();
        Self { random: ChaCha8Rng::seed_from_u64(seed), nodes, logarithms }
    }

    /// A number with the exponential distribution of mean 1: at temperature t, what raises the
    /// objective by less than t times that is accepted.
    pub fn exponential(&mut self) -> f64 {
        let drawn = self.below(LOGARITHMS as u32);
        self.logarithms[drawn as usize]
    }

    /// A number from 0 to `count - 1`.
    fn below(&mut self, count: u32) -> u32 {
        ((u64::from(self.random.next_u32()) * u64::from(count)) >> 32) as u32
    }

    /// One of a slice that is not empty.
    fn one(&mut self, of: &[u32]) -> u32 {
        if of.len() == 1 { of[0] } else { of[self.below(of.len() as u32) as usize] }
    }

    fn node(&mut self) -> u32 {
        let drawn = self.below(self.nodes.len() as u32);
        self.nodes[drawn as usize]
    }

    /// A number from 1 to `most`, of all magnitudes alike.
    fn distance(&mut self, most: u32) -> u32 {
        let scale = 1 << self.below(32 - most.leading_zeros());
        (scale + self.below(scale)).min(most)
    }

    /// The next move to consider; none if what was drawn cannot move.
    pub fn draw(&mut self, slots: &Slots<'_>) -> Option<Move> {
        if self.nodes.is_empty() {
            return None;
        }
        match self.below(8) {
            0..=3 => self.swap(slots),
            4 | 5 if !slots.again().is_empty() => self.remove(slots),
            _ => self.add(slots),
        }
    }

    fn remove(&mut self, slots: &Slots<'_>) -> Option<Move> {
        let node = self.one(slots.again());
        Some(Move::Remove { from: self.one(slots.places(node)) })
    }

    /// Computes an input of something once more, after the use before.
    fn add(&mut self, slots: &Slots<'_>) -> Option<Move> {
        let reader = self.node();
        let inputs = slots.problem.inputs(reader);
        if inputs.is_empty() {
            return None;
        }
        let node = self.one(inputs);
        if slots.problem.node(node).once {
            return None;
        }
        let at = self.one(slots.places(reader));
        let born = slots.before(node, at);
        let most = at - born - 1;
        if most == 0 {
            return None;
        }
        let to = at - self.distance(most);
        Some(Move::Add { node, to: empty(slots, to, born, at)? })
    }

    /// Moves something to an earlier or a later slot. What is computed once stays on its side of
    /// every mark, and marks stay.
    fn swap(&mut self, slots: &Slots<'_>) -> Option<Move> {
        let node = self.node();
        let from = self.one(slots.places(node));
        let (first, last) = if self.below(2) == 0 {
            let end = slots.end(from);
            (from, if end == from { slots.items().len() as u32 - 1 } else { end })
        } else {
            (earliest(slots, node, from), from)
        };
        let most = (last - first).saturating_sub(1);
        if most == 0 {
            return None;
        }
        let distance = self.distance(most);
        let to = if first == from { from + distance } else { from - distance };
        let to = empty(slots, to, first, last)?;
        let (low, high) = (from.min(to), from.max(to));
        let marks = slots.marks();
        if slots.problem.node(node).once && marks.iter().any(|m| (low..=high).contains(m)) {
            return None;
        }
        Some(Move::Swap { from, to })
    }
}

/// The computation of `node` at `from` must stay after this slot.
fn earliest(slots: &Slots<'_>, node: u32, from: u32) -> u32 {
    let before = slots.before(node, from);
    let free = if before == NONE { 0 } else { slots.end(before) };
    let inputs = slots.problem.inputs(node).iter();
    inputs.map(|input| slots.places(*input)[0]).max().unwrap_or(0).max(free)
}

/// An empty slot at or near `slot` between `first` and `last`.
fn empty(slots: &Slots<'_>, slot: u32, first: u32, last: u32) -> Option<u32> {
    let items = slots.items();
    let is_empty = |at: &u32| items[*at as usize] == NONE;
    let after = (slot..last.min(slot + NEAR)).find(is_empty);
    after.or_else(|| (slot.saturating_sub(NEAR).max(first + 1)..slot).rev().find(is_empty))
}
