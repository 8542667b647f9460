//! Annealing in phases: first groups, at the end single nodes.
//!
//! FastSA anneals the grouped graph, then the whole one. Kadono contracts further and decomposes
//! slowly, in many steps: after an abrupt change the annealing does not find its way back.

use super::{Annealing, Settings};
use crate::contract::{Contraction, Growth, STATES, by_size, fused, refined};
use pipewright_core::recompute::{
    Cost, Problem, ProblemError, cost, least_peak, without_recomputation,
};

/// What is annealed before single nodes are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preparation {
    /// Nothing.
    Nothing,
    /// Nodes grouped as FastSA does it.
    Grouping,
    /// Contracted as Kadono does it, decomposed in steps.
    Contraction {
        /// Most nodes of a group.
        members: usize,
        /// Most time of the contracted graph, as a multiple of the whole one's.
        time: f64,
        /// Steps until all nodes are on their own.
        steps: usize,
    },
}

impl Preparation {
    /// Groups of up to 60 nodes and twice the time, decomposed in 12 steps.
    pub const CONTRACTION: Self = Self::Contraction { members: 60, time: 2.0, steps: 12 };

    /// Marks of the phases before the last one, in which all nodes are marked.
    fn phases(self, problem: &Problem, bytes: u64) -> Vec<Vec<bool>> {
        match self {
            Self::Nothing => vec![],
            Self::Grouping => vec![fused(problem)],
            Self::Contraction { members, time, steps } => {
                let lost = by_size(problem, Growth { members, time, bytes });
                let mut phases = refined(problem, &lost, steps);
                // Its last one has all nodes, as the phase after it has anyway.
                phases.truncate(steps);
                phases
            }
        }
    }
}

/// Moves between two reports.
const REPORT: u64 = 1 << 16;

/// Anneals from the sequence that computes everything once, in phases that share the moves: the
/// last one has half of them. After each 65,536 moves `going` gets the best sequence so far and what
/// it costs; if it returns false, that is the end.
///
/// Returns the best sequence of single nodes: least time among those within the limit, else the
/// least peak. The same for the same settings, everywhere.
///
/// # Errors
/// The contracted graph is too large, see [`Contraction::new`].
pub fn anneal(
    problem: &Problem,
    preparation: Preparation,
    settings: Settings,
    mut going: impl FnMut(&[u32], Cost) -> bool,
) -> Result<Vec<u32>, ProblemError> {
    let mut best = Found::new(problem, settings.limit);
    let mut sequence = best.sequence.clone();
    // No sequence is below that, and a limit out of reach would be worth any time.
    let settings = Settings { limit: settings.limit.max(least_peak(problem)), ..settings };
    let phases = preparation.phases(problem, settings.limit);
    let share = Settings { moves: settings.moves / 2 / phases.len().max(1) as u64, ..settings };
    for marked in phases {
        let contraction = Contraction::new(problem, &marked, STATES)?;
        let start = contraction.contract(&sequence);
        let mut annealing =
            Annealing::new(contraction.problem(), contraction.extra(), &start, share);
        let went_on = run(&mut annealing, |found| {
            best.offer(problem, contraction.expand(found));
            going(&best.sequence, best.cost)
        });
        sequence = contraction.expand(&annealing.best());
        if !went_on {
            return Ok(best.sequence);
        }
    }
    let last =
        if preparation == Preparation::Nothing { settings.moves } else { settings.moves / 2 };
    let settings = Settings { moves: last, ..settings };
    let mut annealing = Annealing::new(problem, &[], &sequence, settings);
    run(&mut annealing, |found| {
        best.offer(problem, found.to_vec());
        going(&best.sequence, best.cost)
    });
    Ok(best.sequence)
}

/// Makes all moves of a phase; false if it was stopped.
fn run(annealing: &mut Annealing<'_>, mut report: impl FnMut(&[u32]) -> bool) -> bool {
    loop {
        let more = annealing.advance(REPORT);
        if !report(&annealing.best()) {
            return false;
        }
        if !more {
            return true;
        }
    }
}

/// The best sequence of all phases.
struct Found {
    limit: u64,
    cost: Cost,
    sequence: Vec<u32>,
}

impl Found {
    fn new(problem: &Problem, limit: u64) -> Self {
        let sequence = without_recomputation(problem);
        Self { limit, cost: cost(problem, &sequence), sequence }
    }

    fn offer(&mut self, problem: &Problem, sequence: Vec<u32>) {
        let offered = cost(problem, &sequence);
        let rank = |cost: &Cost| (cost.peak.max(self.limit), cost.time);
        if rank(&offered) < rank(&self.cost) {
            (self.cost, self.sequence) = (offered, sequence);
        }
    }
}
