//! Plans that do not fit their devices are made to, by recomputation.
//!
//! A lane holds `fixed + Σ slots x copies + max transient` over its stages. Where that is more than
//! the device's memory,
//! 1. each of the lane's stages gets its front: sequences that trade time for memory;
//! 2. stages go down their fronts, where a byte costs least time, until the lanes are laid out within
//!    the memory: what fronts leave out (scratch memory, gaps between values) shows there;
//! 3. what room is then left, a search for just that many bytes may turn into time.

use super::{PredictError, Prediction, predict};
use crate::cost::Costs;
use crate::graph::autodiff::TrainingGraph;
use crate::ids::LaneId;
use crate::plan::{Inputs, Plan, PlanError, Program, Sequence, StageProblem, in_sequences, lower};
use crate::recompute::{Answer, Goal, ProblemError, Search};
use crate::units::Bytes;
use std::fmt::Write;
use thiserror::Error;

/// Parts in which a lane of several stages gives up bytes, each part where it costs least.
const PARTS: u64 = 8;

/// The seed of searches.
const SEED: u64 = 1;

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
    /// With what is computed again as it is.
    #[error(
        "{}; a device has {memory}. Let stages recompute more, use more stages or micro-batches, \
         or a device with more memory", least_of(.lanes)
    )]
    AsItIs {
        /// The lanes that do not fit, and the memory that they take.
        lanes: Vec<(LaneId, Bytes)>,
        /// Memory of a device.
        memory: Bytes,
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

/// Whether every lane of a plan fits the memory of its device, as it is.
///
/// # Errors
/// The lanes that do not.
pub fn fits(plan: &Plan, prediction: &Prediction) -> Result<(), FitError> {
    let memory = plan.cluster.device.memory;
    let full = prediction.programs.iter().filter(|program| program.arena > memory);
    let lanes: Vec<_> = full.map(|program| (program.lane, program.arena)).collect();
    if lanes.is_empty() { Ok(()) } else { Err(FitError::AsItIs { lanes, memory }) }
}

/// The plan with recomputation on the lanes that need it to fit the memory of the plan's devices,
/// each with as little as two searches of `effort` moves for each node of a stage find; without any
/// where everything fits. The same plan and effort give the same plan.
///
/// # Errors
/// What does not fit about the plan, or the lanes that do not fit their device.
pub fn fit(plan: &Plan, effort: u64) -> Result<(Plan, Prediction), FitError> {
    let mut plan = Plan { recompute: vec![], ..plan.clone() };
    let (graph, schedule) = plan.check()?;
    let costs = Costs::new(&graph, &plan.cluster, plan.samples());
    let costs = costs.with_backward(schedule.splits_backward());
    let inputs = plan.inputs(&graph, &schedule);
    let base = crate::plan::training_graphs(&inputs);
    let mut fitting = Fitting {
        inputs,
        memory: plan.cluster.device.memory,
        costs: &costs,
        effort,
        open: base.iter().map(|_| None).collect(),
        base,
    };
    fitting.fit()?;
    plan.recompute = fitting.sequences();
    let prediction = predict(&plan)?;
    plan.prediction = prediction.expectation();
    Ok((plan, prediction))
}

struct Fitting<'a> {
    inputs: Inputs<'a>,
    memory: Bytes,
    costs: &'a Costs,
    effort: u64,
    /// By stage, without recomputation.
    base: Vec<TrainingGraph>,
    /// By stage, where some lane is or was too full.
    open: Vec<Option<Open>>,
}

/// A stage that is to take less.
struct Open {
    stage: StageProblem,
    /// Ascending in memory, descending in time; the last one computes nothing again.
    front: Vec<Answer>,
    /// The answer that is taken.
    chosen: usize,
}

impl Open {
    fn answer(&self) -> &Answer {
        &self.front[self.chosen]
    }

    /// The fastest answer that takes at least `bytes` less, or the one of least memory: with the time
    /// that each byte costs, and how many they are.
    fn less(&self, bytes: u64) -> Option<(f64, u64, usize)> {
        let now = self.answer().cost;
        let faster = &self.front[..self.chosen];
        let most = now.peak.saturating_sub(bytes);
        let index = faster.partition_point(|answer| answer.cost.peak <= most).saturating_sub(1);
        let cost = faster.get(index)?.cost;
        let saved = now.peak - cost.peak;
        Some(((cost.time - now.time) / saved as f64, saved, index))
    }

    /// Empty where nothing is computed again and the order is the usual one.
    fn sequence(&self) -> Sequence {
        let sequence = self.stage.sequence(&self.answer().sequence);
        match sequence.0.iter().copied().eq(0..sequence.0.len() as u32) {
            true => Sequence::default(),
            false => sequence,
        }
    }
}

impl Fitting<'_> {
    fn fit(&mut self) -> Result<(), FitError> {
        let mut programs = self.lower()?;
        while programs.iter().any(|program| program.arena > self.memory) {
            self.open(&programs)?;
            if !self.give_up(&programs) {
                return Err(self.least(&programs)?);
            }
            programs = self.lower()?;
        }
        self.use_room(programs)
    }

    /// What the lanes that are too full need at least.
    fn least(&mut self, programs: &[Program]) -> Result<FitError, FitError> {
        let full = programs.iter().filter(|program| program.arena > self.memory);
        for stage in full.flat_map(|program| &program.stages) {
            if let Some(open) = &mut self.open[stage.stage.index()] {
                open.chosen = 0;
            }
        }
        let programs = self.lower()?.into_iter().filter(|program| program.arena > self.memory);
        let lanes = programs.map(|program| (program.lane, program.arena)).collect();
        Ok(FitError::Memory { lanes, memory: self.memory })
    }

    /// None at all where no stage computes anything again.
    fn sequences(&self) -> Vec<Sequence> {
        let sequence = |open: &Option<Open>| open.as_ref().map(Open::sequence).unwrap_or_default();
        match self.open.iter().any(Option::is_some) {
            true => self.open.iter().map(sequence).collect(),
            false => vec![],
        }
    }

    /// All lanes, as their stages are now.
    fn lower(&self) -> Result<Vec<Program>, FitError> {
        let sequences = self.sequences();
        let graphs = in_sequences(self.base.clone(), &sequences).map_err(PlanError::Recompute)?;
        Ok(lower(&self.inputs, &graphs))
    }

    /// Finds the fronts of all stages of lanes that are too full.
    fn open(&mut self, programs: &[Program]) -> Result<(), FitError> {
        let full = programs.iter().filter(|program| program.arena > self.memory);
        for stage in full.flat_map(|program| &program.stages) {
            let index = stage.stage.index();
            if self.open[index].is_some() {
                continue;
            }
            let held = programs.iter().filter_map(|p| p.stage(stage.stage));
            let copies = held.map(|stage| stage.slots.count).max().unwrap_or(1);
            let stage = StageProblem::new(&self.inputs, &self.base[index], self.costs, copies)
                .map_err(|error| FitError::Problem { stage: index, error })?;
            let front = self.search(&stage, Goal::Front).front().to_vec();
            let chosen = front.len() - 1;
            self.open[index] = Some(Open { stage, front, chosen });
        }
        Ok(())
    }

    fn search<'p>(&self, stage: &'p StageProblem, goal: Goal) -> Search<'p> {
        let mut search = Search::new(&stage.problem, goal, SEED);
        search.advance(self.effort.saturating_mul(stage.problem.len() as u64));
        search
    }

    /// Makes the stages of too full lanes smaller by about what the lane is over. Whether all such
    /// lanes had something left to give.
    fn give_up(&mut self, programs: &[Program]) -> bool {
        let mut changed = vec![false; self.open.len()];
        for program in programs.iter().filter(|program| program.arena > self.memory) {
            let stages: Vec<usize> = program.stages.iter().map(|s| s.stage.index()).collect();
            // What another lane's turn changed shows when it is laid out.
            if stages.iter().any(|stage| changed[*stage]) {
                continue;
            }
            let mut over = (program.arena - self.memory).0;
            let part = if stages.len() == 1 { over } else { over.div_ceil(PARTS) };
            while over > 0 {
                let less = |stage: &usize| {
                    let (price, saved, index) = self.open[*stage].as_ref()?.less(part.min(over))?;
                    Some((price, saved, index, *stage))
                };
                let cheapest = stages.iter().filter_map(less).min_by(|a, b| a.0.total_cmp(&b.0));
                let Some((_, saved, index, stage)) = cheapest else { break };
                if let Some(open) = &mut self.open[stage] {
                    open.chosen = index;
                }
                changed[stage] = true;
                over = over.saturating_sub(saved);
            }
            if stages.iter().all(|stage| !changed[*stage]) {
                return false;
            }
        }
        true
    }

    /// Searches for a faster sequence of each stage in the room that its lanes have left.
    fn use_room(&mut self, mut programs: Vec<Program>) -> Result<(), FitError> {
        for index in 0..self.open.len() {
            let holds =
                |program: &&Program| program.stages.iter().any(|s| s.stage.index() == index);
            let room = programs.iter().filter(holds).map(|program| self.memory - program.arena);
            let room = room.min().unwrap_or_default();
            let Some(open) = &self.open[index] else { continue };
            let (before, limit) = (open.chosen, open.answer().cost.peak + room.0);
            let best = self.search(&open.stage, Goal::Budget(limit)).best().clone();
            let Some(open) = &mut self.open[index] else { continue };
            if best.cost.time >= open.answer().cost.time {
                continue;
            }
            open.front.push(best);
            open.chosen = open.front.len() - 1;
            let found = self.lower()?;
            if found.iter().all(|program| program.arena <= self.memory) {
                programs = found;
            } else if let Some(open) = &mut self.open[index] {
                open.chosen = before;
            }
        }
        Ok(())
    }
}
