//! Plans that do not fit their devices are made to, by recomputation.
//!
//! A lane holds `fixed + Σ (slots x slot + outbox) + max transient` over its stages. Where that is
//! more than the device's memory,
//! 1. each of the lane's stages gets its front: sequences that trade time for memory, each laid out,
//!    so that gaps between values count;
//! 2. one of each stage is chosen, the least price within the memory (`choose.rs`). A price is what
//!    the simulated step grows by when a stage takes longer: nothing where there is slack;
//! 3. what room is then left, a search for just that many bytes may turn into time, and so may
//!    transient memory that another stage of the lane needs anyway; then is chosen again.

mod choose;
mod stage;

use super::{PredictError, Prediction, predict};
use crate::ids::LaneId;
use crate::plan::{Plan, PlanError, Program, Sequence, groups, lower, training_graphs};
use crate::recompute::ProblemError;
use crate::simulate::{StageCost, simulate};
use crate::units::{Bytes, Nanos};
use choose::{Held, Room, choose, least};
use stage::{Context, Stage, Variant};
use std::fmt::Write;
use thiserror::Error;

/// How often prices follow a choice, and a choice prices.
const ROUNDS: u32 = 3;

/// How often a choice that is laid out and takes more than was thought is made anew.
const TRIES: u32 = 8;

/// Searches for what room is left, where a lane has several stages: each stage sees what the others
/// did.
const PASSES: u32 = 2;

/// Instructions that are simulated for prices, at most; beyond, time has the same price everywhere.
const MOST_SIMULATED: usize = 20_000_000;

/// A stage's time is priced where the step does not depend on it too: of equal steps the one with
/// less work.
const LEAST_PRICE: f64 = 1e-3;

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
/// each with as little as searches of `effort` moves for each node of a stage find; without any where
/// everything fits. The same plan and effort give the same plan.
///
/// # Errors
/// What does not fit about the plan, or the lanes that do not fit their device.
pub fn fit(plan: &Plan, effort: u64) -> Result<(Plan, Prediction), FitError> {
    let mut plan = Plan { recompute: vec![], ..plan.clone() };
    let (graph, schedule) = plan.check()?;
    let costs = plan.costs(&graph, plan.samples());
    let costs = costs.with_backward(schedule.splits_backward());
    let inputs = plan.inputs(&graph, &schedule);
    let context = Context { inputs: &inputs, costs: &costs, effort };
    let graphs = training_graphs(&inputs);
    let programs = lower(&inputs, &graphs);
    if programs.iter().any(|program| program.arena > plan.cluster.device.memory) {
        let stages: Vec<Stage> =
            graphs.into_iter().map(|graph| Stage::new(&context, graph)).collect();
        let mut fitting = Fitting {
            plan: &plan,
            context,
            groups: groups(&inputs),
            rooms: rooms(&plan, &programs),
            chosen: vec![0; stages.len()],
            stages,
            programs,
        };
        fitting.fit()?;
        let sequence = |stage: usize| fitting.variant(stage).sequence.clone();
        plan.recompute = (0..fitting.stages.len()).map(sequence).collect();
    }
    let prediction = predict(&plan)?;
    plan.prediction = prediction.expectation();
    Ok((plan, prediction))
}

/// By lane: what devices have beyond what does not depend on sequences.
fn rooms(plan: &Plan, programs: &[Program]) -> Vec<Room> {
    let room = |program: &Program| {
        let held = program.stages.iter().map(|stage| Held {
            stage: stage.stage.index(),
            slots: u64::from(stage.slots.count),
            outboxes: u64::from(stage.outbox.count),
        });
        let areas = program.stages.iter().map(|s| s.slots.total() + s.outbox.total());
        let transient = program.stages.iter().map(|s| s.transient.bytes).max().unwrap_or_default();
        let fixed = program.arena.saturating_sub(areas.sum::<Bytes>() + transient);
        let bytes = plan.cluster.device.memory.saturating_sub(fixed).0;
        Room { bytes, stages: held.collect() }
    };
    programs.iter().map(room).collect()
}

struct Fitting<'a> {
    plan: &'a Plan,
    context: Context<'a>,
    /// Ranks that sum gradients together.
    groups: Vec<Vec<LaneId>>,
    /// Without recomputation.
    programs: Vec<Program>,
    /// By lane.
    rooms: Vec<Room>,
    stages: Vec<Stage>,
    /// By stage: its variant.
    chosen: Vec<usize>,
}

impl Fitting<'_> {
    fn fit(&mut self) -> Result<(), FitError> {
        self.open()?;
        if !self.settle()? {
            return Err(self.least()?);
        }
        let several = self.rooms.iter().any(|room| room.stages.len() > 1);
        for _ in 0..if several { PASSES } else { 1 } {
            for stage in 0..self.stages.len() {
                self.refine(stage)?;
            }
            self.settle()?;
        }
        Ok(())
    }

    fn variant(&self, stage: usize) -> &Variant {
        &self.stages[stage].variants[self.chosen[stage]]
    }

    /// Finds trade-offs of all stages of lanes that are too full.
    fn open(&mut self) -> Result<(), FitError> {
        let memory = self.plan.cluster.device.memory;
        let full = self.programs.iter().filter(|program| program.arena > memory);
        for stage in full.flat_map(|program| &program.stages).map(|s| s.stage) {
            let open = &mut self.stages[stage.index()];
            if open.is_open() {
                continue;
            }
            let held = self.programs.iter().filter_map(|program| program.stage(stage));
            let copies = held.map(|stage| stage.slots.count).max().unwrap_or(1);
            open.open(&self.context, copies)
                .map_err(|error| FitError::Problem { stage: stage.index(), error })?;
        }
        Ok(())
    }

    /// Chooses a variant of each stage so that all lanes fit. Whether there is such a choice; the one
    /// before stays where none is found.
    fn settle(&mut self) -> Result<bool, FitError> {
        let memory = self.plan.cluster.device.memory;
        for _ in 0..TRIES {
            let Some(chosen) = self.best()? else { return Ok(false) };
            let before = std::mem::replace(&mut self.chosen, chosen);
            let programs = self.lower()?;
            let over: Vec<Bytes> =
                programs.iter().map(|program| program.arena.saturating_sub(memory)).collect();
            if over.iter().all(|over| *over == Bytes::ZERO) {
                return Ok(true);
            }
            // Where a gradient is sent from may decide how many slots there are.
            self.chosen = before;
            for (room, over) in self.rooms.iter_mut().zip(over) {
                room.bytes = room.bytes.saturating_sub(over.0);
            }
        }
        Ok(false)
    }

    /// The choice of the shortest step, of the present one and those that prices lead to.
    fn best(&self) -> Result<Option<Vec<usize>>, FitError> {
        let way = |stage: usize| self.variant(stage).way([0.0; 2]);
        let mut best = None;
        if self.rooms.iter().all(|room| room.taken(way) <= room.bytes) {
            best = Some((self.worth(&self.chosen)?, self.chosen.clone()));
        }
        let mut prices = vec![[1.0; 2]; self.stages.len()];
        for _ in 0..ROUNDS {
            let variants = self.stages.iter().zip(&prices);
            let ways = variants.map(|(stage, prices)| {
                stage.variants.iter().map(|variant| variant.way(*prices)).collect()
            });
            let Some(choice) = choose(&ways.collect::<Vec<_>>(), &self.rooms) else { break };
            let worth = self.worth(&choice)?;
            let more = self.find_prices(&self.costs(&choice), worth.0, &mut prices)?;
            let better = best.as_ref().is_none_or(|(least, _)| worth < *least);
            if better {
                best = Some((worth, choice));
            }
            if !more {
                break;
            }
        }
        Ok(best.map(|(_, choice)| choice))
    }

    /// The step with a choice, then the work of all stages: the least is best.
    fn worth(&self, choice: &[usize]) -> Result<(Nanos, Nanos), FitError> {
        let costs = self.costs(choice);
        let work = costs.iter().map(|cost| cost.forward + cost.backward()).sum();
        Ok((self.step(&costs)?, work))
    }

    fn costs(&self, choice: &[usize]) -> Vec<StageCost> {
        self.stages.iter().zip(choice).map(|(stage, at)| stage.variants[*at].cost).collect()
    }

    /// The step when stages take these times.
    fn step(&self, costs: &[StageCost]) -> Result<Nanos, PredictError> {
        let copies = self.plan.copies(&self.groups);
        Ok(simulate(&self.programs, costs, &self.plan.cluster, copies)?.step)
    }

    /// By how much the step grows with the time of the parts of each stage's backward pass, where
    /// stages compete for a lane. Whether some do, and few enough to try.
    fn find_prices(
        &self,
        costs: &[StageCost],
        step: Nanos,
        prices: &mut [[f64; 2]],
    ) -> Result<bool, FitError> {
        /// Part of a stage's time by which it is made longer.
        const PART: u64 = 64;
        let competes = |stage: &usize| {
            let holds = |room: &&Room| room.stages.iter().any(|held| held.stage == *stage);
            let mut lanes = self.rooms.iter().filter(holds);
            self.stages[*stage].is_open() && lanes.any(|room| room.stages.len() > 1)
        };
        let compete: Vec<usize> = (0..self.stages.len()).filter(competes).collect();
        let instructions: usize = self.programs.iter().map(|program| program.train.len()).sum();
        if compete.is_empty() || 2 * compete.len() * instructions > MOST_SIMULATED {
            return Ok(false);
        }
        let split = self.context.inputs.schedule.splits_backward();
        for stage in compete {
            let longer = Nanos((costs[stage].forward + costs[stage].backward()).0 / PART + 1);
            let price = |part: usize| -> Result<f64, FitError> {
                let mut costs = costs.to_vec();
                match part {
                    0 => costs[stage].backward_input += longer,
                    _ => costs[stage].backward_weight += longer,
                }
                let more = self.step(&costs)?.saturating_sub(step);
                Ok(more.0 as f64 / longer.0 as f64 + LEAST_PRICE)
            };
            let input = price(0)?;
            prices[stage] = [input, if split { price(1)? } else { input }];
        }
        Ok(true)
    }

    /// All lanes, as their stages are now.
    fn lower(&self) -> Result<Vec<Program>, FitError> {
        let sequences: Vec<Sequence> =
            (0..self.stages.len()).map(|stage| self.variant(stage).sequence.clone()).collect();
        let plan = Plan { recompute: sequences, ..self.plan.clone() };
        let graphs = plan.training_graphs(self.context.inputs).map_err(PlanError::from)?;
        Ok(lower(self.context.inputs, &graphs))
    }

    /// Searches for a faster variant of a stage in the room that its lanes have left, and takes it.
    fn refine(&mut self, stage: usize) -> Result<(), FitError> {
        if !self.stages[stage].is_open() || self.variant(stage).sequence.0.is_empty() {
            return Ok(());
        }
        let holds = |room: &&Room| room.stages.iter().any(|held| held.stage == stage);
        let lanes: Vec<&Room> = self.rooms.iter().filter(holds).collect();
        let way = |stage: usize| self.variant(stage).way([0.0; 2]);
        let nothing = choose::Way { slot: 0, outbox: 0, transient: 0, price: 0.0 };
        let only_outbox = choose::Way { outbox: way(stage).outbox, ..nothing };
        let (mut floor, mut limit) = (u64::MAX, u64::MAX);
        for lane in &lanes {
            let others = || lane.stages.iter().map(|held| held.stage).filter(|s| *s != stage);
            let beside = others().map(|other| way(other).transient).max().unwrap_or(0);
            let taken = lane.taken(|s| if s == stage { only_outbox } else { way(s) });
            floor = floor.min(beside);
            limit = limit.min((lane.bytes + beside).saturating_sub(taken));
        }
        let excess = |variant: &Variant| {
            let taken = |lane: &&Room| {
                let own = variant.way([0.0; 2]);
                lane.taken(|s| if s == stage { own } else { way(s) }).saturating_sub(lane.bytes)
            };
            lanes.iter().map(taken).max().unwrap_or(0)
        };
        let limit = limit + self.variant(stage).spare;
        let found = self.stages[stage].faster(&self.context, floor, limit, excess);
        let found = found.map_err(|error| FitError::Problem { stage, error })?;
        let time = |variant: &Variant| variant.cost.backward();
        let faster =
            |variant: &Variant| excess(variant) == 0 && time(variant) < time(self.variant(stage));
        let known = self.stages[stage].variants.len();
        let best = (known..).zip(&found).filter(|(_, variant)| faster(variant));
        let best = best.min_by_key(|(_, variant)| time(variant)).map(|(index, _)| index);
        self.stages[stage].variants.extend(found);
        self.chosen[stage] = best.unwrap_or(self.chosen[stage]);
        Ok(())
    }

    /// What the lanes that are too full need at least.
    fn least(&mut self) -> Result<FitError, FitError> {
        let memory = self.plan.cluster.device.memory;
        let ways = self
            .stages
            .iter()
            .map(|stage| stage.variants.iter().map(|variant| variant.way([0.0; 2])).collect());
        self.chosen = least(&ways.collect::<Vec<_>>(), &self.rooms);
        let programs = self.lower()?.into_iter().filter(|program| program.arena > memory);
        let lanes = programs.map(|program| (program.lane, program.arena)).collect();
        Ok(FitError::Memory { lanes, memory })
    }
}
