//! Random changes under a memory limit, kept when they save time or cost little.
//!
//! A move takes a repetition away, shifts a computation, or gives a value up and keeps another
//! instead; where it breaks the limit, values are given up until it is kept again. Every state is
//! therefore an answer.

use super::super::closure::Prices;
use super::super::state::NONE;
use super::local::{Local, Repair};

/// The last temperature, as a share of the time of all nodes.
const COLD: f64 = 1e-5;

/// Repetitions that a move may take away instead of the one that it added.
const EXCHANGES: u32 = 3;

impl Local<'_> {
    /// Improves the time of a sequence that keeps `limit`, by `moves` moves from temperature `hot`
    /// down; the best sequence met is the current one afterwards. Returns the moves.
    pub fn anneal(&mut self, limit: i64, moves: u64, hot: f64) -> u64 {
        let base = self.state().ticks.base as f64;
        let mut best = self.state().time();
        let mut kept = self.sequence();
        let cooling = libm::pow(COLD / hot, 1.0 / (moves.max(64) as f64 / 64.0));
        let mut heat = hot * base;
        for i in 0..moves {
            if i % 64 == 63 {
                heat *= cooling;
            }
            let longest = self.state().time() + (self.rng.exponential() * heat) as u64;
            if !self.try_move(limit, longest) {
                self.editor.rollback();
                continue;
            }
            self.editor.commit();
            if self.state().time() < best {
                best = self.state().time();
                kept = self.sequence();
            }
        }
        self.load(&kept);
        moves
    }

    /// Changes something; whether it is worth keeping.
    fn try_move(&mut self, limit: i64, longest: u64) -> bool {
        let (time, peak) = (self.state().time(), self.peak());
        let changed = match self.rng.below(16) {
            0..6 => self.take_away(),
            6..11 => self.shift_one(),
            _ => self.exchange(limit, longest),
        };
        if !changed {
            return false;
        }
        if self.peak() > limit {
            let how = Repair { limit, looks: 4, rounds: 4, longest, random: true };
            if !self.repair(how) {
                return false;
            }
        }
        let now = self.state().time();
        // What changes nothing but needs more memory is in the way later.
        let sideways = now == time && self.peak() > peak;
        now <= longest && self.peak() <= limit && (!sideways || self.rng.below(4) == 0)
    }

    /// A slot that computes something.
    fn any(&mut self) -> u32 {
        loop {
            let slot = self.rng.below(self.state().slots());
            if self.state().item(slot) != NONE {
                return slot;
            }
        }
    }

    /// Whether a slot computes something again.
    fn repeats(&self, slot: u32) -> bool {
        let node = self.state().item(slot);
        node != NONE && self.state().places(node)[0] < slot
    }

    /// Keeps a value instead of computing it again.
    fn take_away(&mut self) -> bool {
        const TRIES: u32 = 200;
        for _ in 0..TRIES {
            let slot = self.any();
            if self.repeats(slot) {
                self.editor.remove_with_causes(slot);
                return true;
            }
        }
        false
    }

    /// Moves a computation to another time at which its inputs are there and it is not needed yet.
    fn shift_one(&mut self) -> bool {
        let slot = self.any();
        let state = self.state();
        let node = state.item(slot);
        if state.marks().contains(&slot) {
            return false;
        }
        let born = |input: &u32| state.before(*input, slot).map_or(0, |born| born + 1);
        let low = state.problem.inputs(node).iter().map(born).max().unwrap_or(0);
        let high = state.first_use(node, slot).unwrap_or(state.slots() - 1);
        let later = self.rng.below(2) == 0;
        let most = if later { high - slot } else { slot - low };
        if most < 2 {
            return false;
        }
        // Short ways as often as long ones.
        let bits = 1 + self.rng.below(32 - most.leading_zeros());
        let way = self.rng.below(1 << bits).min(most - 1);
        let to = if later { slot + way } else { slot - way };
        let state = self.state();
        let between = slot.min(to)..=slot.max(to);
        let over_mark = state.problem.node(node).once
            && state.marks().iter().any(|mark| between.contains(mark));
        if state.item(to) != NONE || over_mark {
            return false;
        }
        self.editor.shift(slot, to);
        true
    }

    /// Gives a random value up before one of its uses, and keeps others instead.
    fn exchange(&mut self, limit: i64, longest: u64) -> bool {
        let slot = self.any();
        let inputs = self.state().problem.inputs(self.state().item(slot));
        if inputs.is_empty() {
            return false;
        }
        let node = inputs[self.rng.below(inputs.len() as u32) as usize];
        let state = self.state();
        let Some(born) = state.before(node, slot).filter(|_| !state.problem.node(node).once) else {
            return false;
        };
        let used = state.last_use(node, born, slot);
        if slot - used < 8 {
            return false;
        }
        let byte = self.worth * self.rng.factor(8.0);
        let prices = Prices { byte, limit, at: used + (slot - used) / 2 };
        let state = self.editor.state();
        if !self.closures.find(state, node, slot, prices, &mut self.closure) {
            return false;
        }
        let ticks = |node: &u32| state.ticks.of(*node);
        let again: u64 = self.closure.nodes.iter().map(ticks).sum();
        let most = longest - state.time() + state.ticks.base / 50;
        if again > most {
            return false;
        }
        let Some(at) = self.editor.insert_before(slot, &self.closure.nodes) else { return false };
        self.editor.merge(at, &self.closure.nodes, limit);
        for _ in 0..EXCHANGES {
            if self.state().time() <= longest {
                break;
            }
            let Some(other) = self.repetition_near(at) else { break };
            self.editor.remove_with_causes(other);
        }
        true
    }

    fn repetition_near(&mut self, slot: u32) -> Option<u32> {
        const TRIES: u32 = 20;
        let last = self.state().slots() - 1;
        (0..TRIES).find_map(|_| {
            let bits = 6 + self.rng.below(8);
            let width = 64 + self.rng.below(1 << bits);
            let near = (slot.saturating_sub(width / 2) + self.rng.below(width)).min(last);
            self.repeats(near).then_some(near)
        })
    }
}
