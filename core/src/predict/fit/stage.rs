//! A stage and the ways to run it that are known, each laid out.

use super::choose::{Way, thinned};
use crate::cost::Costs;
use crate::graph::autodiff::{SequenceError, TrainingGraph};
use crate::plan::{AreaBytes, Inputs, Sequence, StageProblem, area_bytes};
use crate::recompute::{Answer, Goal, ProblemError, Search};
use crate::simulate::StageCost;

/// The seed of searches.
const SEED: u64 = 1;

/// Trade-offs of a front that are laid out, at most.
const MOST_VARIANTS: usize = 48;

/// Searches for a number of bytes, the later ones for less where the layout has gaps.
const SEARCHES: u32 = 2;

/// What all stages of a plan have in common.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub inputs: &'a Inputs<'a>,
    pub costs: &'a Costs,
    /// Moves of a search for each node of a stage.
    pub effort: u64,
}

/// A way to run a stage.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    /// Empty where nothing is computed again and the order is the usual one.
    pub sequence: Sequence,
    pub cost: StageCost,
    pub bytes: AreaBytes,
    /// Bytes that the search counted beyond those of the layout.
    pub spare: u64,
}

impl Variant {
    fn new(context: &Context, graph: &TrainingGraph, sequence: Sequence) -> Self {
        let cost = StageCost::new(graph, context.costs);
        Self { sequence, cost, bytes: area_bytes(context.inputs, graph), spare: 0 }
    }

    /// As something to choose from, when the input-gradient and the weight-gradient part have these
    /// prices.
    pub fn way(&self, prices: [f64; 2]) -> Way {
        let AreaBytes { slot, outbox, transient } = self.bytes;
        let times = [self.cost.backward_input, self.cost.backward_weight];
        // A sequence leaves the forward pass as it was.
        let price = prices.iter().zip(times).map(|(price, time)| price * time.0 as f64).sum();
        Way { slot: slot.0, outbox: outbox.0, transient: transient.0, price }
    }
}

/// A stage.
pub(super) struct Stage {
    base: TrainingGraph,
    /// What can be recomputed, once that is asked.
    problem: Option<StageProblem>,
    /// At least one, the first as the stage is without recomputation.
    pub variants: Vec<Variant>,
}

impl Stage {
    pub fn new(context: &Context, base: TrainingGraph) -> Self {
        let variants = vec![Variant::new(context, &base, Sequence::default())];
        Self { base, problem: None, variants }
    }

    /// Whether there is a choice.
    pub fn is_open(&self) -> bool {
        self.problem.is_some()
    }

    /// Finds trade-offs with `copies` micro-batches in flight.
    pub fn open(&mut self, context: &Context, copies: u32) -> Result<(), ProblemError> {
        let problem = StageProblem::new(context.inputs, &self.base, context.costs, copies)?;
        let found = search(context, &problem, Goal::Front);
        for answer in thinned(found.front(), MOST_VARIANTS) {
            let variant = self.lay_out(context, &problem, &answer, 0);
            self.variants.extend(variant);
        }
        self.problem = Some(problem);
        Ok(())
    }

    /// Variants that take at most `limit` bytes: slots, and the larger of transient memory and
    /// `floor`. `excess` says by how much one takes too much, laid out.
    pub fn faster(
        &self,
        context: &Context,
        floor: u64,
        mut limit: u64,
        excess: impl Fn(&Variant) -> u64,
    ) -> Result<Vec<Variant>, ProblemError> {
        let Some(problem) = &self.problem else { return Ok(vec![]) };
        let problem = if floor > 0 { &problem.beside(floor)? } else { problem };
        let mut found = vec![];
        for _ in 0..SEARCHES {
            let best = search(context, problem, Goal::Budget(limit)).best().clone();
            if best.cost.peak > limit {
                break;
            }
            let Some(variant) = self.lay_out(context, problem, &best, floor) else { break };
            let over = excess(&variant);
            found.push(variant);
            if over == 0 {
                break;
            }
            limit = limit.saturating_sub(over);
        }
        Ok(found)
    }

    /// Lays an answer out, unless it is known.
    fn lay_out(
        &self,
        context: &Context,
        problem: &StageProblem,
        answer: &Answer,
        floor: u64,
    ) -> Option<Variant> {
        let sequence = problem.sequence(&answer.sequence);
        let usual = 0..sequence.0.len() as u32;
        if sequence.0.iter().copied().eq(usual)
            || self.variants.iter().any(|variant| variant.sequence == sequence)
        {
            return None;
        }
        let graph: Result<TrainingGraph, SequenceError> = self.base.in_sequence(&sequence.0);
        let graph = graph.expect("answers of a stage's problem can be run");
        let variant = Variant::new(context, &graph, sequence);
        let slots = variant.bytes.slot.0 * u64::from(problem.problem.copies());
        let taken = slots + variant.bytes.transient.0.max(floor);
        Some(Variant { spare: answer.cost.peak.saturating_sub(taken), ..variant })
    }
}

fn search<'p>(context: &Context, problem: &'p StageProblem, goal: Goal) -> Search<'p> {
    let problem = &problem.problem;
    let mut search = Search::new(problem, goal, SEED);
    search.advance(context.effort.saturating_mul(problem.len() as u64));
    search
}
