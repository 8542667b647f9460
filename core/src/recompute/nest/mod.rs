//! Blocks one inside the other: each is solved alone, then they are put together.
//!
//! In a training step the backward pass undoes the forward pass from the end: between two cuts of
//! the forward pass and the moments at which what comes after them is done with, lies a *block*,
//! around a hole in which everything above it is computed. The last block, the head, has no hole.
//!
//! A block is a small problem of its own (`block.rs`). Solved for several numbers of copies of what
//! it keeps across its hole, it gives options: bytes kept, peak, and time. Equal blocks are solved
//! once. Solved without a hole it says what its backward pass costs when only its inputs were kept.
//! Dynamic programming (`plan.rs`) chooses among the options, and segments of blocks through which
//! the forward pass runs again, some of them several times. This is what Rockmate (Zhao et al. 2023)
//! does with exact solutions of blocks of a module and Rotor (Beaumont et al. 2019) for chains, on
//! any graph and for a whole front. The sequences are starts for the other ways.

mod block;
mod cuts;
mod plan;
mod shared;

use super::front::Front;
use super::{Goal, Problem, cost, least_peak};
use block::Local;
use plan::{Block, Planner};

/// Moves for one problem of a block and one number of copies.
const EFFORT: u64 = 2000;

/// Nodes of a block, both passes, that are aimed at, in this order.
pub(super) const SIZES: [usize; 4] = [80, 40, 160, 20];

/// Limits that are planned for: each is beyond the lower bound by this share of what the one above
/// is, down to a share of the bound.
const STEP: f64 = 0.93;
const LAST: f64 = 0.02;

/// Blocks, being solved and then put together.
#[derive(Clone, Debug)]
pub(super) struct Nest {
    /// The distinct blocks.
    locals: Vec<Local>,
    /// Which of them each block is.
    kinds: Vec<usize>,
    cuts: Vec<cuts::Cut>,
    /// Number of the local problem that is solved next.
    next: usize,
    planner: Option<Planner>,
    /// The next limit, the last one, and the lower bound.
    limit: f64,
    least: f64,
    floor: f64,
}

impl Nest {
    /// Cuts a problem without marks into blocks of about `size` nodes; `None` where that gives too
    /// few. Plans are made for limits from that of `goal`, or the peak, down. O(nodes + edges).
    pub fn new(problem: &Problem, goal: Goal, size: usize) -> Option<Self> {
        const FEWEST: usize = 3;
        let cuts = cuts::find(problem, size);
        if cuts.len() < FEWEST || !problem.marks().is_empty() {
            return None;
        }
        let owner = block::owners(problem, &cuts);
        let (mut locals, mut kinds): (Vec<Local>, _) = (vec![], vec![]);
        for index in 0..cuts.len() {
            let local = Local::new(problem, &cuts, &owner, index);
            let kind = locals.iter().position(|l| l.equals(&local)).unwrap_or(locals.len());
            if kind == locals.len() {
                locals.push(local);
            }
            kinds.push(kind);
        }
        let floor = least_peak(problem) as f64;
        let (limit, least) = match goal {
            // Plans know the peak only nearly.
            Goal::Budget(limit) => (limit as f64 * 1.03, limit as f64 * 0.8),
            Goal::Front => (cost(problem, &super::without_recomputation(problem)).peak as f64, 0.0),
        };
        // Where nothing is needed, steps towards the bound would get smaller for ever.
        let least = least.max((1.0 + LAST) * floor).max(1.0);
        Some(Self { locals, kinds, cuts, next: 0, planner: None, limit, least, floor })
    }

    /// Number of blocks.
    #[cfg(test)]
    pub fn blocks(&self) -> usize {
        self.kinds.len()
    }

    /// Number of blocks that differ.
    #[cfg(test)]
    pub fn kinds(&self) -> usize {
        self.locals.len()
    }

    /// Solves one local problem, or makes one plan and adds its sequence to the front. Returns the
    /// moves that this was worth; `None`: all is done.
    pub fn step(&mut self, problem: &Problem, front: &mut Front, saving: f64) -> Option<u64> {
        while let Some(local) = self.locals.get_mut(self.next) {
            if let Some(moves) = local.solve(2 * self.cuts.len() as u32) {
                return Some(moves);
            }
            self.next += 1;
        }
        let planner = self.planner.get_or_insert_with(|| {
            let owner = block::owners(problem, &self.cuts);
            let block = |(i, kind): (usize, &usize)| Block {
                from: self.cuts[i].from as u32,
                kind: *kind,
                sides: Local::sides(problem, &self.cuts, &owner, i),
            };
            let blocks = self.kinds.iter().enumerate().map(block).collect();
            Planner::new(problem, &owner, blocks, std::mem::take(&mut self.locals))
        });
        if self.limit < self.least {
            return None;
        }
        let limit = self.limit as i64;
        self.limit = self.floor + STEP * (self.limit - self.floor);
        let found = planner.plan(problem, limit);
        if let Some(sequence) = &found.sequence {
            front.add(problem, sequence, saving);
        }
        Some(found.moves + problem.len() as u64 / 20)
    }
}
