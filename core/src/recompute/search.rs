//! The search: anytime, deterministic for a seed and a number of moves.
//!
//! 1. *Sweep* (`scatter.rs`): at the peak of a sequence, least cuts for a range of prices of a byte;
//!    each is a new sequence. From the sequence without recomputation this alone gives a front that
//!    is near the optimum where memory is not very scarce.
//! 2. *Descend* (`descend.rs`): step by step, the value whose loss costs least for each byte is given
//!    up at the peak and computed again.
//! 3. *Scatter*: sweeps with random prices, from all over the front; this finds sequences that
//!    compute some things several times.
//! 4. *Anneal* (`anneal.rs`): random changes under a memory limit.
//! 5. *Nest* (`nest/`): parts of the problem solved alone and put together.

mod anneal;
mod descend;
mod local;
mod rng;
mod scatter;

use super::front::{Answer, Front, Tried};
use super::nest::{self, Nest};
use super::repeat::Repeats;
use super::state::Ticks;
use super::{Cost, Problem, bound, without_recomputation};
use local::Local;
use rng::Rng;
use scatter::Scatter;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The least time with a peak of at most so many bytes.
    Budget(u64),
    /// The least time for every peak.
    Front,
}

/// Sequences that take longer than this many times all nodes are left alone.
const LONGEST: f64 = 2.5;

/// Time that an answer of a sweep or descent must save to be worth keeping, as a share.
const SAVING: f64 = 1e-4;

/// Targets of annealing when the whole front is asked for: each this share of the one above.
const LADDER: f64 = 0.93;

/// Temperatures at which slices of annealing begin, as shares of the time of all nodes.
const HEATS: [f64; 4] = [8e-3, 2e-3, 5e-4, 1e-4];

/// Moves of a slice: many short ones from different answers find more than a few long ones.
const SLICES: [u64; 4] = [1000, 4000, 4000, 16_000];

/// And where the problem is one block of a larger one.
const SLICES_OF_BLOCKS: [u64; 4] = [250, 250, 500, 1000];

/// Time beyond which little effort is spent on less memory, as a share of all nodes.
const ENOUGH: f64 = 1.6;

/// Steps down before a slice, at most.
const STRIDES: u32 = 12;

/// Layers that are tried as models of all others, each time.
const SPREADS: u32 = 8;

/// A search under way.
pub struct Search<'p> {
    problem: &'p Problem,
    goal: Goal,
    /// Cost without recomputation.
    base: Cost,
    /// Lower bound on the peak.
    floor: u64,
    front: Front,
    local: Local<'p>,
    scatter: Scatter<'p>,
    rng: Rng,
    /// Moves spent each way.
    spent: [u64; HEURISTICS.len()],
    moves: u64,
    /// What slices of annealing lately gained on each rung of the ladder, as a share of all time.
    gains: Vec<f64>,
    repeats: Repeats,
    nest: Option<Nest>,
    /// Sizes of blocks that were nested or are.
    nests: usize,
    /// Moves of slices of annealing.
    slices: [u64; 4],
}

/// What is done next, see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heuristic {
    Sweep,
    Descend,
    Scatter,
    Anneal,
    Nest,
}

/// Ways, and the share of the moves that each gets while it has something to do.
const HEURISTICS: [(Heuristic, u64); 5] = [
    (Heuristic::Sweep, 2),
    (Heuristic::Descend, 2),
    (Heuristic::Nest, 8),
    (Heuristic::Scatter, 1),
    (Heuristic::Anneal, 4),
];

impl<'p> Search<'p> {
    /// Begins with the sequence without recomputation. O(nodes + edges).
    pub fn new(problem: &'p Problem, goal: Goal, seed: u64) -> Self {
        let start = without_recomputation(problem);
        let mut front = Front::default();
        front.add(problem, &start, 0.0);
        let base = front.answers()[0].cost;
        let ticks = Ticks::new(problem);
        let floor = bound::least_peak(problem);
        let deep = base.peak as f64 / floor.max(1) as f64;
        let rungs = (libm::log(deep) / -libm::log(LADDER)).clamp(0.0, 200.0) as usize + 1;
        Self {
            problem,
            goal,
            base,
            floor,
            front,
            local: Local::new(problem, ticks.clone(), &start, seed),
            scatter: Scatter::new(problem, ticks),
            rng: Rng::new(seed ^ 0x9e37_79b9_7f4a_7c15),
            spent: [0; HEURISTICS.len()],
            moves: 0,
            gains: vec![0.01; rungs],
            repeats: Repeats::find(problem),
            nest: None,
            nests: 0,
            slices: SLICES,
        }
    }

    /// The search of a block's front, which is not divided further.
    pub(super) fn of_block(problem: &'p Problem, seed: u64) -> Self {
        let search = Self::new(problem, Goal::Front, seed);
        Self { nests: nest::SIZES.len(), slices: SLICES_OF_BLOCKS, ..search }
    }

    /// Does about `moves` moves more; a cut counts as many as take the time. Returns whether more
    /// of them can improve anything.
    pub fn advance(&mut self, moves: u64) -> bool {
        let until = self.moves.saturating_add(moves);
        while self.moves < until {
            if self.done() {
                return false;
            }
            self.step();
        }
        !self.done()
    }

    /// The trade-offs found: ascending in peak, descending in time, none beaten by another.
    pub fn front(&self) -> &[Answer] {
        self.front.answers()
    }

    /// The fastest answer within the budget, the one of least memory if there is none; of a search
    /// for the front, that of least memory.
    pub fn best(&self) -> &Answer {
        let index = match self.goal {
            Goal::Budget(limit) => self.front.within(limit).unwrap_or(0),
            Goal::Front => 0,
        };
        &self.front.answers()[index]
    }

    /// Moves done so far.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Peak and time without recomputation.
    pub fn base(&self) -> Cost {
        self.base
    }

    /// A lower bound on every peak, see [`least_peak`](super::least_peak).
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The budget is met without recomputation, or cannot be met.
    fn done(&self) -> bool {
        match self.goal {
            Goal::Budget(limit) => {
                let best = self.best().cost;
                limit < self.floor || best.peak <= limit && best.time <= self.base.time
            }
            Goal::Front => self.floor >= self.base.peak,
        }
    }

    /// Below this no answer is looked for.
    fn target(&self) -> u64 {
        match self.goal {
            Goal::Budget(limit) => limit,
            Goal::Front => self.floor,
        }
    }

    /// The answers that sweeps and descents start from: with a budget, those somewhat below it and
    /// all above.
    fn range(&self) -> std::ops::Range<usize> {
        let answers = self.front.answers();
        let enough = self.target() as f64 * 0.9;
        let from = answers.partition_point(|a| (a.cost.peak as f64) < enough);
        from.min(answers.len() - 1)..answers.len()
    }

    /// Goes on the way that was gone least for its share.
    fn step(&mut self) {
        let mut ways = [0, 1, 2, 3, 4];
        ways.sort_by_key(|way| self.spent[*way] / HEURISTICS[*way].1);
        for way in ways {
            let before = self.moves;
            let worked = match HEURISTICS[way].0 {
                Heuristic::Sweep => self.sweep(),
                Heuristic::Descend => self.descend(),
                Heuristic::Scatter => self.scatter(),
                Heuristic::Anneal => self.anneal(),
                Heuristic::Nest => self.nest(),
            };
            self.spent[way] += self.moves - before;
            if worked {
                return;
            }
        }
    }

    /// One of the answers on which something was not tried yet and that are not too slow.
    fn draw(&mut self, open: impl Fn(&Tried) -> bool) -> Option<usize> {
        let mut open = self.front.open(self.range(), open);
        let longest = self.base.time * LONGEST;
        open.retain(|i| self.front.answers()[*i].cost.time <= longest);
        let count = (open.len() as u32).checked_sub(1)? + 1;
        Some(open[self.rng.below(count) as usize])
    }

    /// Sweeps at the peak of an answer; whether there was one.
    fn sweep(&mut self) -> bool {
        let Some(index) = self.draw(|tried| !tried.swept) else { return false };
        self.front.try_near(index, |tried| tried.swept = true);
        let prices = if self.moves == 0 { 40 } else { 10 };
        let sequence = self.front.answers()[index].sequence.clone();
        self.moves += self.scatter.sweep(&mut self.front, &sequence, prices);
        true
    }

    /// Descends from an answer; whether there was one.
    fn descend(&mut self) -> bool {
        let Some(index) = self.draw(|tried| !tried.descended) else { return false };
        self.front.try_near(index, |tried| tried.descended = true);
        self.local.load(&self.front.answers()[index].sequence);
        let target = self.target() as i64;
        let front = &mut self.front;
        let (problem, saving) = (self.problem, SAVING * self.base.time);
        self.moves += self.local.descend(target, LONGEST, |found| {
            front.add(problem, found, saving);
        });
        true
    }

    /// Solves a block or puts blocks together; whether there was something to do.
    fn nest(&mut self) -> bool {
        while self.nest.is_none() {
            let Some(&size) = nest::SIZES.get(self.nests) else { return false };
            self.nests += 1;
            self.nest = Nest::new(self.problem, self.goal, size);
        }
        let Some(nest) = &mut self.nest else { return false };
        let saving = SAVING * self.base.time;
        match nest.step(self.problem, &mut self.front, saving) {
            Some(moves) => self.moves += moves,
            None => self.nest = None,
        }
        true
    }

    /// Sweeps with random prices, and tries on all layers what is done on some.
    fn scatter(&mut self) -> bool {
        let Some(index) = self.draw(|_| true) else { return false };
        let sequence = self.front.answers()[index].sequence.clone();
        self.moves += self.scatter.random(&mut self.front, &sequence, &mut self.rng);
        self.spread(&sequence, SPREADS);
        true
    }

    /// Tries on all layers what a sequence does on one or a few.
    fn spread(&mut self, sequence: &[u32], tries: u32) {
        const WIDEST: u32 = 4;
        if self.repeats.runs() == 0 {
            return;
        }
        for _ in 0..tries {
            let run = self.rng.below(self.repeats.runs() as u32) as usize;
            let blocks = self.repeats.blocks(run) as u32;
            let width = 1 + self.rng.below(WIDEST.min(blocks));
            let source = self.rng.below(blocks - width + 1);
            let (source, width) = (source as usize, width as usize);
            self.moves += self.problem.len() as u64 / 50;
            if let Some(found) = self.repeats.spread(self.problem, sequence, run, source, width) {
                self.front.add(self.problem, &found, 0.0);
            }
        }
    }

    /// A slice of annealing.
    fn anneal(&mut self) -> bool {
        let moves = self.slices[self.rng.below(self.slices.len() as u32) as usize];
        let (rung, limit) = self.limit();
        let start = self.start(limit);
        self.local.load(&self.front.answers()[start].sequence);
        self.local.moves = 0;
        for _ in 0..STRIDES {
            // Out of reach so far: less memory first.
            if self.local.peak() <= limit as i64 || !self.local.squeeze(limit as i64) {
                break;
            }
        }
        let within = (limit as i64).max(self.local.peak());
        let heat = HEATS[self.rng.below(HEATS.len() as u32) as usize];
        self.moves += self.local.moves + self.local.anneal(within, moves, heat);
        let best = |front: &Front| {
            front.within(limit).map_or(f64::INFINITY, |i| front.answers()[i].cost.time)
        };
        let (before, least) = (best(&self.front), self.front.answers()[0].cost.peak);
        let found = self.local.sequence();
        self.front.add(self.problem, &found, 0.0);
        self.spread(&found, SPREADS);
        let gain = match (before - best(&self.front), before.is_finite()) {
            (saved, true) => saved / self.base.time,
            // Less memory than ever counts as much as a hundredth of the time.
            (_, false) if self.front.answers()[0].cost.peak < least => 0.01,
            (_, false) => 0.0,
        };
        self.gains[rung] = 0.5 * self.gains[rung] + 0.5 * gain;
        true
    }

    /// The answer that a slice under `limit` starts from: the best, another within the limit, or one
    /// that is somewhat beyond it.
    fn start(&mut self, limit: u64) -> usize {
        let best = self.front.within(limit).unwrap_or(0);
        let reach = 1 + self.front.answers().len() as u32 / 8;
        match self.rng.below(4) {
            0 | 1 => best,
            2 => best.saturating_sub(self.rng.below(reach) as usize),
            _ => (best + self.rng.below(reach) as usize).min(self.front.answers().len() - 1),
        }
    }

    /// The limit of the next slice: the budget, or a rung of the ladder, those more often on which
    /// slices lately gained something.
    fn limit(&mut self) -> (usize, u64) {
        if let Goal::Budget(limit) = self.goal {
            return (0, limit);
        }
        const LEAST: f64 = 2e-4;
        const SELDOM: f64 = 0.25;
        let rungs = 0..self.gains.len();
        let weights: Vec<f64> = rungs
            .map(|rung| {
                let index = self.front.within(self.rung(rung)).unwrap_or(0);
                let late = self.front.answers()[index].cost.time > ENOUGH * self.base.time;
                (self.gains[rung] + LEAST) * if late { SELDOM } else { 1.0 }
            })
            .collect();
        let mut drawn = self.rng.unit() * weights.iter().sum::<f64>();
        let passed = |weight: &&f64| {
            drawn -= **weight;
            drawn > 0.0
        };
        let rung = weights.iter().take_while(passed).count().min(weights.len() - 1);
        // Anywhere between this rung and the next.
        let share = libm::pow(LADDER, -self.rng.unit());
        (rung, (self.rung(rung) as f64 * share) as u64)
    }

    /// The limit of a rung.
    fn rung(&self, rung: usize) -> u64 {
        (self.base.peak as f64 * libm::pow(LADDER, rung as f64 + 1.0)) as u64
    }
}
