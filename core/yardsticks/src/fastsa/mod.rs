//! FastSA: simulated annealing of a sequence with three moves.
//!
//! After Imanishi, Xu, Takagi, Wang and Castillo, "A fast heuristic to optimize time-space tradeoff
//! for large models", NeurIPS 2023, with the objective of Kadono's follow-up.
//!
//! | symbol | meaning |
//! |---|---|
//! | x | the memory limit |
//! | t, p | time and peak of a sequence |
//! | T | temperature, as a share of the objective |
//!
//! The objective is `t * exp(g(p))` with `g(p) = SLOPE * p / x` up to the limit and
//! `SLOPE + STEEP * (p / x - 1)` above it: linear in the time, growing exponentially with memory
//! above the limit. Only ratios of it are compared, so that neither is computed: a move is accepted
//! if `t' / t - 1 + g(p') - g(p)` is at most T times an exponentially distributed number.
//!
//! Moves: SWAP takes a computation to another slot, ADD computes an input of something once more,
//! REMOVE takes a computation away. A move costs O(d log n) for a node with d inputs and readers in a
//! sequence of n items, and most that are rejected never get as far as the tree: a bound on the new
//! peak decides. Known limit: a chain of computations is moved or repeated only one by one, over
//! states worse than either end; contraction and grouping are for that.

mod moves;
mod phases;
mod places;
mod slots;
#[cfg(test)]
mod tests;
mod tree;

pub use phases::{Preparation, anneal};

use moves::Rng;
use pipewright_core::recompute::Problem;
use slots::{NONE, Slots};

/// Growth of the objective's logarithm with memory, from none to the limit.
const SLOPE: f64 = 0.002;

/// The same above the limit, for as much memory again.
const STEEP: f64 = 16.0;

/// Temperatures while it falls by half.
const STEPS: u32 = 16;

/// 2 to the power of -1 / [`STEPS`].
const COOLER: f64 = 0.957_603_280_698_573_6;

/// What to anneal for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Bytes that are to be enough.
    pub limit: u64,
    /// Moves in all.
    pub moves: u64,
    /// Where the random numbers start.
    pub seed: u64,
    /// First temperature, as a share of the objective: the paper's is 0.001.
    pub hot: f64,
    /// How many times the temperature halves: the paper's end is 13 of them lower.
    pub halvings: u32,
}

impl Default for Settings {
    /// The paper's temperatures and moves of its second stage, for as little memory as possible.
    fn default() -> Self {
        Self { limit: 1, moves: 2_000_000, seed: 1, hot: 1e-3, halvings: 13 }
    }
}

/// What became of the moves so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Drawn.
    pub drawn: u64,
    /// That could be made: the objective decided.
    pub evaluated: u64,
    /// For which the tree was changed, because a bound did not decide.
    pub tried: u64,
    /// Made.
    pub accepted: u64,
}

/// A sequence being annealed; stop when you like.
#[derive(Clone, Debug)]
pub struct Annealing<'p> {
    slots: Slots<'p>,
    rng: Rng,
    settings: Settings,
    temperature: f64,
    /// Moves until the temperature falls.
    left: u64,
    /// `g` of the present peak.
    weight: f64,
    counts: Counts,
    best: Best,
}

/// The best state: by what it differs from the present one.
#[derive(Clone, Debug, Default)]
struct Best {
    over: bool,
    objective: f64,
    /// Slots and what they computed, from the best state to the present one.
    since: Vec<(u32, u32)>,
    /// The state itself, once the way back became long or was cut off.
    sequence: Option<Vec<u32>>,
}

/// Changes after which a best state is written out.
const FAR: usize = 1 << 14;

impl<'p> Annealing<'p> {
    /// Starts from a sequence that can be run (see [`pipewright_core::recompute::check`]). `extra` says how many bytes
    /// each node needs only while it is computed; empty for none.
    pub fn new(problem: &'p Problem, extra: &[u64], sequence: &[u32], settings: Settings) -> Self {
        let slots = Slots::new(problem, extra, sequence);
        let computed = |node: &u32| !slots.places(*node).is_empty();
        let moves = |node: &u32| computed(node) && !problem.marks().contains(node);
        let nodes = (0..problem.len() as u32).filter(moves).collect();
        let mut annealing = Self {
            rng: Rng::new(settings.seed, nodes),
            slots,
            settings,
            temperature: settings.hot,
            left: period(&settings),
            weight: 0.0,
            counts: Counts::default(),
            best: Best::default(),
        };
        annealing.weight = annealing.weigh(annealing.slots.peak());
        (annealing.best.over, annealing.best.objective) = annealing.judge();
        annealing
    }

    /// Makes up to so many of the moves; false if none is left.
    pub fn advance(&mut self, moves: u64) -> bool {
        let moves = moves.min(self.settings.moves - self.counts.drawn);
        for _ in 0..moves {
            self.counts.drawn += 1;
            self.left -= 1;
            if self.left == 0 {
                self.temperature *= COOLER;
                self.left = period(&self.settings);
            }
            self.step();
            // Slots are handed out anew before moves fail for want of empty ones.
            if self.counts.drawn.is_multiple_of(1 << 16) || self.slots.crowded() {
                self.lay_out();
            }
        }
        self.counts.drawn < self.settings.moves
    }

    /// The best sequence so far: least time among those within the limit, else the least objective.
    pub fn best(&self) -> Vec<u32> {
        self.best.written(&self.slots)
    }

    /// What became of the moves so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn step(&mut self) {
        let Some(what) = self.rng.draw(&self.slots) else { return };
        if !self.slots.plan(what) {
            return;
        }
        self.counts.evaluated += 1;
        let bonus = self.temperature * self.rng.exponential();
        let (time, then) = (self.slots.time() as f64, self.slots.time_then() as f64);
        // What the weight of the new peak may be.
        let most = bonus - (then - time) / time + self.weight;
        let least = self.slots.least_peak();
        if self.weigh(least) > most {
            return;
        }
        self.counts.tried += 1;
        let peak = self.slots.try_out();
        let weight = self.weigh(peak);
        if weight > most {
            self.slots.take_back();
            return;
        }
        self.counts.accepted += 1;
        self.accept(weight);
    }

    fn accept(&mut self, weight: f64) {
        let changed = self.slots.keep();
        if self.best.sequence.is_none() {
            self.best.since.extend(changed.into_iter().flatten());
        }
        self.weight = weight;
        let (over, objective) = self.judge();
        if (over, objective) < (self.best.over, self.best.objective) {
            self.best = Best {
                over,
                objective,
                since: std::mem::take(&mut self.best.since),
                sequence: None,
            };
            self.best.since.clear();
        } else if self.best.since.len() > FAR {
            self.write_best();
        }
    }

    /// Whether the limit is exceeded, and the logarithm of the objective but for a constant.
    fn judge(&self) -> (bool, f64) {
        let over = self.slots.peak() > self.settings.limit as i64;
        let time = self.slots.time() as f64;
        (over, if over { libm::log(time) + self.weight } else { time })
    }

    /// `g`.
    fn weigh(&self, peak: i64) -> f64 {
        let share = peak as f64 / self.settings.limit.max(1) as f64;
        SLOPE * share.min(1.0) + STEEP * (share - 1.0).max(0.0)
    }

    fn write_best(&mut self) {
        if self.best.sequence.is_none() {
            self.best.sequence = Some(self.best.written(&self.slots));
            self.best.since.clear();
        }
    }

    fn lay_out(&mut self) {
        self.write_best();
        let sequence = self.slots.sequence();
        self.slots.lay_out(&sequence);
    }
}

impl Best {
    fn written(&self, now: &Slots<'_>) -> Vec<u32> {
        if let Some(sequence) = &self.sequence {
            return sequence.clone();
        }
        let mut items = now.items().to_vec();
        for (slot, node) in self.since.iter().rev() {
            items[*slot as usize] = *node;
        }
        items.retain(|node| *node != NONE);
        items
    }
}

/// Moves at each temperature.
fn period(settings: &Settings) -> u64 {
    (settings.moves / u64::from(STEPS) / u64::from(settings.halvings.max(1))).max(1)
}
