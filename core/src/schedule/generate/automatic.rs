//! An automatic zero-bubble scheduler: the order of F, I and W for the stages' actual, uneven
//! times under a memory limit by lane (the problem of Qi et al. 2024, "Zero Bubble Pipeline
//! Parallelism", section 4, which gives it to a greedy heuristic and an ILP).
//!
//! 1. Candidates: orders of F and I by several rules, and the named schedules of the placement.
//! 2. Each is executed in time; W fill the gaps by several rules (`fill`).
//! 3. The best ones are improved, by more or fewer warm-up forwards on some lanes and then by
//!    moves on the critical path (`improve`), as far as a budget of executed passes reaches.
//!
//! | symbol | meaning |
//! |---|---|
//! | p, s, m | lanes, stages, micro-batches |
//! | n | passes, 3 s m |
//!
//! O(n) an execution, a fixed number of candidates and a fixed budget of passes (or one execution
//! of each move, where n is large): deterministic. Not optimal in general: the scheduling problem
//! is NP-hard. [`Found::bound`] says how far it can be off.

mod fill;
mod improve;
mod orders;

use crate::ids::LaneId;
use crate::schedule::{Action, ActionKind, Schedule, Updates};
use crate::units::{Bytes, Nanos};
use fill::{Filled, Problem, Rule};
use thiserror::Error;

/// A stage as the scheduler sees it, for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageLoad {
    /// Time of F.
    pub forward: Nanos,
    /// Time of I.
    pub backward_input: Nanos,
    /// Time of W.
    pub backward_weight: Nanos,
    /// From the end of a pass here to its value's arrival at the next stage, and of that stage's
    /// gradient here; nothing where both are on one lane. Lanes compute meanwhile.
    pub hop: Nanos,
    /// Held from the start of F to the end of I.
    pub stash: Bytes,
    /// What of it is held on, to the end of W.
    pub weight_stash: Bytes,
}

/// What to schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Automatic {
    /// By stage.
    pub stages: Vec<StageLoad>,
    /// By stage: its lane. Any placement.
    pub lane_of: Vec<LaneId>,
    /// Micro-batches of a step.
    pub micro_batches: u32,
    /// By lane: what the stashes may take together.
    pub memory: Vec<Bytes>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The order.
    pub schedule: Schedule,
    /// From the first action's start to the last one's end.
    pub step: Nanos,
    /// No order takes less, whatever the memory.
    pub bound: Nanos,
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AutomaticError {
    /// Nothing to schedule.
    #[error("an automatic schedule needs at least one {what}")]
    Empty {
        /// Stage or micro-batch.
        what: &'static str,
    },
    /// Lists of different lengths, or a lane that is not there.
    #[error(
        "{stages} stages, lanes for {placed} of them and memory of {lanes} lanes; give every stage \
         a lane, every lane a stage and its memory"
    )]
    Lengths {
        /// Stages.
        stages: usize,
        /// Stages with a lane.
        placed: usize,
        /// Lanes with memory.
        lanes: usize,
    },
    /// A stash that grows.
    #[error("stage {stage} would hold {weight_stash} for W of a stash of {stash}; that is more")]
    Stash {
        /// The stage.
        stage: usize,
        /// The whole.
        stash: Bytes,
        /// The part.
        weight_stash: Bytes,
    },
    /// Not even one micro-batch fits.
    #[error(
        "lane {lane} may hold {memory} of stashes, and one micro-batch takes {needs}; use smaller \
         micro-batches or recompute"
    )]
    Memory {
        /// The lane.
        lane: LaneId,
        /// Its limit.
        memory: Bytes,
        /// The least.
        needs: Bytes,
    },
    /// More than a computer could hold.
    #[error(
        "{stages} stages x {micro_batches} micro-batches are more than the {LIMIT} pairs that \
             the automatic scheduler takes; use fewer micro-batches"
    )]
    TooMany {
        /// Stages.
        stages: usize,
        /// Micro-batches.
        micro_batches: u32,
    },
}

/// Most pairs of stage and micro-batch.
const LIMIT: u64 = 1 << 22;

/// Finds a schedule. See the module for how.
///
/// ```
/// use pipewright_core::ids::LaneId;
/// use pipewright_core::schedule::{Automatic, StageLoad, automatic};
/// use pipewright_core::units::{Bytes, Nanos};
///
/// let stage = StageLoad {
///     forward: Nanos(2),
///     backward_input: Nanos(2),
///     backward_weight: Nanos(2),
///     stash: Bytes(1),
///     weight_stash: Bytes(1),
///     ..StageLoad::default()
/// };
/// let found = automatic(&Automatic {
///     stages: vec![stage; 4],
///     lane_of: (0..4).map(LaneId).collect(),
///     micro_batches: 8,
///     memory: vec![Bytes(8); 4],
/// });
/// // Only the start of the last lane waits: zero bubble.
/// assert_eq!(found.unwrap().step, Nanos(8 * 6 + 3 * 2));
/// ```
///
/// # Errors
/// Input that does not fit together, or memory below one micro-batch's.
pub fn automatic(input: &Automatic) -> Result<Found, AutomaticError> {
    let problem = Problem::new(input)?;
    let bound = problem.bound();
    let mut best: Option<Filled> = None;
    let mut starts = vec![];
    let orders = orders::candidates(&problem);
    for order in &orders.complete {
        keep(&mut best, problem.fill(order, Rule::Given));
    }
    for order in orders.open {
        let mut own: Option<(Filled, Rule)> = None;
        for rule in problem.rules(bound) {
            if let Some(filled) = problem.fill(&order, rule)
                && own.as_ref().is_none_or(|(best, _)| filled.score() < best.score())
            {
                own = Some((filled, rule));
            }
        }
        if let Some((filled, rule)) = own {
            starts.push((filled.score(), order, rule));
            keep(&mut best, Some(filled));
        }
    }
    let mut budget = improve::Budget::new(problem.passes());
    // The order of candidates decides between equals.
    starts.sort_by_key(|(score, ..)| *score);
    for (_, order, rule) in starts.into_iter().take(improve::STARTS) {
        let better = improve::warm_ups(&problem, order, rule, bound, &mut budget);
        keep(&mut best, better);
    }
    let best = best.expect("one micro-batch at a time always fits");
    let best = improve::critical(&problem, best, bound, &mut budget);
    Ok(Found { schedule: problem.schedule(&best), step: Nanos(best.step), bound: Nanos(bound) })
}

fn keep(best: &mut Option<Filled>, other: Option<Filled>) {
    if let Some(other) = other
        && best.as_ref().is_none_or(|best| other.score() < best.score())
    {
        *best = Some(other);
    }
}

/// A pass of a stage in one number: three a stage, F, I, W. The n-th one of a number is that of
/// micro-batch n, because equal micro-batches are best served in turn.
type Code = u32;

const KINDS: [ActionKind; 3] =
    [ActionKind::Forward, ActionKind::BackwardInput, ActionKind::BackwardWeight];

/// Stage and kind of `code`: 0 F, 1 I, 2 W.
fn decode(code: Code) -> (usize, usize) {
    (code as usize / 3, code as usize % 3)
}

fn encode(action: &Action) -> Code {
    let kind = KINDS.iter().position(|kind| *kind == action.kind);
    3 * action.stage.0 + kind.expect("zero-bubble schedules split backward passes") as u32
}

impl Problem {
    /// `filled` as a schedule.
    fn schedule(&self, filled: &Filled) -> Schedule {
        let mut next = vec![0; 3 * self.stages.len()];
        let mut action = |code: &Code| {
            let (stage, kind) = decode(*code);
            let micro_batch = next[*code as usize];
            next[*code as usize] += 1;
            Action::new(stage as u32, KINDS[kind], micro_batch)
        };
        let lanes: Vec<Vec<Action>> =
            filled.lanes.iter().map(|lane| lane.iter().map(&mut action).collect()).collect();
        Schedule {
            overlaps: vec![vec![]; lanes.len()],
            lanes,
            routes: vec![self.lane_of.iter().map(|lane| LaneId(*lane as u32)).collect()],
            route_of: vec![0; self.micro_batches],
            micro_batches: self.micro_batches as u32,
            updates: Updates::Synchronous,
        }
    }
}
