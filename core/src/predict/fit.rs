//! Plans that do not fit their devices are made to, by recomputation.
//!
//! A lane holds `fixed + Σ slots x copies + max transient` over its stages. Where that is more than
//! the device's memory, each of the lane's stages gets a limit, a solver finds its sequence, and the
//! lane is laid out with it: what the solver leaves out (scratch memory, gaps between values) shows
//! there, and is taken off the limits of the next round.

use super::{PredictError, Prediction, predict};
use crate::cost::Costs;
use crate::graph::autodiff::TrainingGraph;
use crate::ids::LaneId;
use crate::plan::{
    Inputs, Plan, PlanError, Program, RecomputeError, Sequence, StageProblem, lower,
};
use crate::recompute::{Problem, ProblemError};
use crate::units::Bytes;
use std::fmt::Write;
use thiserror::Error;

/// Rounds in which limits are lowered before everything is computed again that can be.
const ROUNDS: u32 = 8;

/// Finds a sequence of a problem's nodes whose memory is at most that many bytes, or if it finds
/// none, the one with the least.
pub type Solver<'a> = dyn Fn(&Problem, Bytes) -> Vec<u32> + 'a;

/// Why a plan cannot be made to fit.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FitError {
    /// It is no plan to begin with.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// A stage has sizes beyond those of any machine.
    #[error("stage {stage}: {error}")]
    Problem {
        /// The stage.
        stage: usize,
        /// What is wrong.
        error: ProblemError,
    },
    /// However much is computed again.
    #[error(
        "with all recomputation that helps, {}; a device has {memory}. \
         Use more stages or micro-batches, or a device with more memory", least_of(.lanes)
    )]
    Memory {
        /// The lanes that do not fit, and the least memory found for each.
        lanes: Vec<(LaneId, Bytes)>,
        /// Memory of a device.
        memory: Bytes,
    },
}

fn least_of(lanes: &[(LaneId, Bytes)]) -> String {
    let mut text = String::new();
    for (index, (lane, least)) in lanes.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(text, "{comma}lane {lane} needs {least}").expect("a string takes everything");
    }
    text
}

impl From<PlanError> for FitError {
    fn from(error: PlanError) -> Self {
        Self::Predict(error.into())
    }
}

/// The plan with recomputation on the lanes that need it to fit the memory of the plan's devices,
/// each with as little as `solve` finds; without any where everything fits.
///
/// # Errors
/// What does not fit about the plan, or the lanes that do not fit their device.
pub fn fit(plan: &Plan, solve: &Solver) -> Result<(Plan, Prediction), FitError> {
    let mut plan = Plan { recompute: vec![], ..plan.clone() };
    let (graph, schedule) = plan.check()?;
    let costs = Costs::new(&graph, &plan.cluster, plan.samples());
    let costs = costs.with_backward(schedule.splits_backward());
    let inputs = plan.inputs(&graph, &schedule);
    plan.recompute = Fitting::new(inputs, plan.cluster.device.memory, &costs, solve).sequences()?;
    let prediction = predict(&plan)?;
    plan.prediction = prediction.expectation();
    Ok((plan, prediction))
}

struct Fitting<'a> {
    inputs: Inputs<'a>,
    memory: Bytes,
    costs: &'a Costs,
    solve: &'a Solver<'a>,
    /// By stage, without recomputation.
    base: Vec<TrainingGraph>,
    /// By stage, with the recomputation found so far.
    graphs: Vec<TrainingGraph>,
    /// By stage.
    sequences: Vec<Sequence>,
    /// By stage, where some lane is too full.
    open: Vec<Option<Open>>,
}

/// A stage that is to take less.
struct Open {
    problem: StageProblem,
    /// Bytes that its slots and its transient area may take together.
    limit: Bytes,
    /// The limit that its sequence was found for.
    solved: Option<Bytes>,
}

impl<'a> Fitting<'a> {
    fn new(inputs: Inputs<'a>, memory: Bytes, costs: &'a Costs, solve: &'a Solver<'a>) -> Self {
        let base = crate::plan::training_graphs(&inputs);
        let (open, sequences) =
            (base.iter().map(|_| None).collect(), vec![Sequence::default(); base.len()]);
        Self { inputs, memory, costs, solve, graphs: base.clone(), base, sequences, open }
    }

    /// A sequence for each stage, none at all where all lanes fit as they are.
    fn sequences(mut self) -> Result<Vec<Sequence>, FitError> {
        let mut programs = lower(&self.inputs, &self.graphs);
        if self.too_full(&programs).is_empty() {
            return Ok(vec![]);
        }
        for _ in 0..ROUNDS {
            self.open(&programs)?;
            if !self.lower_limits(&programs) {
                break;
            }
            programs = self.solved()?;
            if self.too_full(&programs).is_empty() {
                return Ok(self.sequences);
            }
        }
        // What the limits asked for is not there; what is the least?
        self.open(&programs)?;
        for stage in self.too_full(&programs).into_iter().flat_map(|program| &program.stages) {
            let open = self.open[stage.stage.index()].as_mut().expect("it was just opened");
            open.limit = Bytes::ZERO;
        }
        let programs = self.solved()?;
        let full = self.too_full(&programs).into_iter();
        let lanes: Vec<(LaneId, Bytes)> = full.map(|p| (p.lane, p.arena)).collect();
        match lanes.is_empty() {
            true => Ok(self.sequences),
            false => Err(FitError::Memory { lanes, memory: self.memory }),
        }
    }

    fn too_full<'p>(&self, programs: &'p [Program]) -> Vec<&'p Program> {
        programs.iter().filter(|program| program.arena > self.memory).collect()
    }

    /// Opens the stages of lanes that are too full, each with what it takes so far as its limit.
    fn open(&mut self, programs: &[Program]) -> Result<(), FitError> {
        for stage in self.too_full(programs).into_iter().flat_map(|program| &program.stages) {
            let index = stage.stage.index();
            if self.open[index].is_some() {
                continue;
            }
            let held = programs.iter().filter_map(|p| p.stage(stage.stage));
            let copies = held.map(|stage| stage.slots.count).max().unwrap_or(1);
            let limit = stage.slots.bytes * u64::from(copies) + stage.transient.bytes;
            let problem = StageProblem::new(&self.inputs, &self.base[index], self.costs, copies)
                .map_err(|error| FitError::Problem { stage: index, error })?;
            self.open[index] = Some(Open { problem, limit, solved: None });
        }
        Ok(())
    }

    /// Takes what lanes are over off the limits of their stages, in proportion. Whether there was
    /// enough to take.
    fn lower_limits(&mut self, programs: &[Program]) -> bool {
        let mut next: Vec<Option<Bytes>> = vec![None; self.open.len()];
        for program in self.too_full(programs) {
            let over = program.arena - self.memory;
            let stages = program.stages.iter().map(|stage| stage.stage.index());
            let limit = |stage: usize| self.open[stage].as_ref().map(|open| (stage, open.limit));
            let limits: Vec<(usize, Bytes)> = stages.filter_map(limit).collect();
            let all: Bytes = limits.iter().map(|(_, limit)| *limit).sum();
            if all <= over {
                return false;
            }
            for (stage, limit) in limits {
                let share = u128::from(limit.0) * u128::from(over.0) / u128::from(all.0) + 1;
                let lower = limit.saturating_sub(Bytes(share as u64));
                next[stage] = Some(next[stage].map_or(lower, |other| other.min(lower)));
            }
        }
        for (open, next) in self.open.iter_mut().zip(next) {
            if let (Some(open), Some(next)) = (open, next) {
                open.limit = next;
            }
        }
        true
    }

    /// Solves the stages whose limit changed and lays all lanes out.
    fn solved(&mut self) -> Result<Vec<Program>, FitError> {
        for (stage, open) in self.open.iter_mut().enumerate() {
            let Some(open) = open.as_mut().filter(|open| open.solved != Some(open.limit)) else {
                continue;
            };
            open.solved = Some(open.limit);
            let sequence = open.problem.sequence(&(self.solve)(&open.problem.problem, open.limit));
            let error = |error| PlanError::Recompute(RecomputeError::Sequence { stage, error });
            self.graphs[stage] = self.base[stage].in_sequence(&sequence.0).map_err(error)?;
            self.sequences[stage] = sequence;
        }
        Ok(lower(&self.inputs, &self.graphs))
    }
}
