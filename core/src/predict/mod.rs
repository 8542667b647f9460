//! All arrows of the house in one call: costs, lowering, simulation.
//!
//! ```
//! use pipewright_core::cost::Cluster;
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::plan::{Draft, Model};
//! use pipewright_core::predict::predict;
//!
//! let cuts = vec![5, 10, 14];
//! let draft = Draft::new(Model::Preset(Preset::Vgg16), Cluster::preset("dgx-a100")?, cuts);
//! let (plan, _) = draft.plan()?;
//! let prediction = predict(&plan)?;
//! assert_eq!(prediction.programs.len(), 4, "one for each lane");
//! let memory = prediction.programs.iter().map(|program| program.arena).max();
//! assert!(memory < Some(plan.cluster.device.memory), "to the byte what the runner allocates");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advice;
mod automatic;
mod calibrate;
mod drift;
mod explain;
mod fit;
mod outline;
mod scaling;
pub mod search;
mod split;
mod stage;
mod steady;
mod sums;
mod throughput;

pub use advice::{Advice, Advisor, Change, Takes};
pub use automatic::{AUTOMATIC, AutomaticPlan, automatic_plan, named_orders};
pub use calibrate::{Busy, ForeignTrace, TraceFit};
pub use drift::{Drift, DriftError, Part, PartTimes, Rest};
pub use explain::{
    BestMicroBatches, Explanation, Move, Term, What, best_micro_batches, best_move, constant,
    explain,
};

pub use fit::{FitError, fit, fits};
pub use outline::{Outline, outline};
pub use scaling::{Price, Sizes, Speed, amount, samples_of};
pub use split::{BestSplit, Borders, SplitError, USUAL, best_split, reordered};
pub use stage::PlannedStage;
pub use steady::{Steady, steady};
pub use sums::{Offer, adaptive, offers};
pub use throughput::Throughput;

use crate::cost::{Costs, Halves};
use crate::graph::Graph;
use crate::graph::autodiff::{self, TrainingGraph};
use crate::ids::{LaneId, StageId};
use crate::plan::{
    Draft, Expectation, Inputs, Instruction, Kernel, Plan, PlanError, Program, ScheduleText,
    VERSION, groups, lower, lower_evaluation,
};
use crate::simulate::{Copies, StageCost, Stuck, simulate};
use crate::timeline::Timeline;
use crate::units::Nanos;
use thiserror::Error;

/// Why nothing follows from a plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PredictError {
    /// The plan does not fit together.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Its programs would wait for each other.
    #[error(transparent)]
    Stuck(#[from] Stuck),
}

/// What follows from a plan.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The network.
    pub graph: Graph,
    /// Times of its nodes for one micro-batch.
    pub costs: Costs,
    /// Times of its stages for one micro-batch.
    pub stages: Vec<StageCost>,
    /// Computations that take time, of each stage's forward, input-gradient and weight-gradient
    /// part.
    pub computations: Vec<[u64; 3]>,
    /// One per lane; see [`crate::plan::DataParallel::place`] for who executes which.
    pub programs: Vec<Program>,
    /// Ranks that sum gradients together, by the number that programs give them.
    pub groups: Vec<Vec<LaneId>>,
    /// One predicted step.
    pub timeline: Timeline,
}

/// Checks, lowers and simulates a plan.
///
/// # Errors
/// The first thing about the plan that does not fit.
pub fn predict(plan: &Plan) -> Result<Prediction, PredictError> {
    predict_with(plan, plan.cluster.device.halves())
}

/// The same for devices that may be others than the cluster's: their arenas differ, their times do not.
///
/// # Errors
/// As [`predict`].
pub fn predict_with(plan: &Plan, halves: Halves) -> Result<Prediction, PredictError> {
    let (graph, schedule) = plan.check()?;
    let costs = plan.costs(&graph, plan.samples());
    let costs = costs.with_backward(schedule.splits_backward());
    let inputs = Inputs { halves, ..plan.inputs(&graph, &schedule) };
    let graphs = plan.training_graphs(&inputs).map_err(PlanError::from)?;
    let programs = lower(&inputs, &graphs);
    let groups = groups(&inputs);
    let stages: Vec<StageCost> = graphs.iter().map(|g| StageCost::new(g, &costs)).collect();
    let computations = graphs.iter().map(|g| computations(g, &costs)).collect();
    let timeline = simulate(&programs, &stages, &plan.cluster, plan.copies(&groups))?;
    Ok(Prediction { graph, costs, stages, computations, programs, groups, timeline })
}

impl Plan {
    /// What the copies of its pipeline do together; `groups` are those that sum gradients.
    fn copies<'a>(&self, groups: &'a [Vec<LaneId>]) -> Copies<'a> {
        Copies {
            data_parallel: self.data_parallel,
            groups,
            by_hosts: self.communication.hierarchical,
        }
    }
}

/// The plans of several drafts with their predictions, in order; on all cores with the feature `parallel`.
pub fn plans(drafts: Vec<Draft>) -> Vec<Result<(Plan, Prediction), PredictError>> {
    #[cfg(feature = "parallel")]
    {
        use rayon::prelude::*;
        drafts.into_par_iter().map(Draft::plan).collect()
    }
    #[cfg(not(feature = "parallel"))]
    drafts.into_iter().map(Draft::plan).collect()
}

fn computations(graph: &TrainingGraph, costs: &Costs) -> [u64; 3] {
    let mut count = [0; 3];
    for (at, computation) in (0..).zip(&graph.computations) {
        if costs.node(computation.node).of(computation.kind).0 > 0 {
            count[match graph.part(at) {
                autodiff::Part::Forward => 0,
                autodiff::Part::InputGradient => 1,
                autodiff::Part::WeightGradient => 2,
            }] += 1;
        }
    }
    count
}

/// What each rank does to evaluate one mini-batch, in the arena that [`predict_with`] lays out for the same devices.
///
/// # Errors
/// The first thing about the plan that does not fit.
pub fn evaluation(plan: &Plan, halves: Halves) -> Result<Vec<Vec<Instruction>>, PredictError> {
    evaluation_of(plan, halves, plan.micro_batches)
}

/// The same for its first micro-batches alone.
///
/// # Errors
/// As [`evaluation`].
pub fn evaluation_of(
    plan: &Plan,
    halves: Halves,
    micro_batches: u32,
) -> Result<Vec<Vec<Instruction>>, PredictError> {
    let (graph, schedule) = plan.check()?;
    let inputs = Inputs { halves, ..plan.inputs(&graph, &schedule) };
    let graphs = plan.training_graphs(&inputs).map_err(PlanError::from)?;
    Ok(lower_evaluation(&inputs, &graphs, micro_batches))
}

impl Prediction {
    /// Kernels that a stage runs again for each micro-batch, and their time.
    pub fn again(&self, stage: StageId) -> (usize, Nanos) {
        let program = self.programs.iter().find_map(|program| program.stage(stage));
        let kernels = || program.iter().flat_map(|p| &p.kernels).filter(|kernel| kernel.again);
        let time = |kernel: &Kernel| self.costs.node(kernel.node).of(kernel.kind);
        (kernels().count(), kernels().map(time).sum())
    }

    /// What goes into the plan file.
    pub fn expectation(&self) -> Expectation {
        outline::expectation(&self.timeline, &self.programs)
    }
}

impl Draft {
    /// The checked plan with its prediction.
    ///
    /// # Errors
    /// The first choice that does not fit.
    pub fn plan(self) -> Result<(Plan, Prediction), PredictError> {
        let schedule = self.order()?;
        self.plan_in(schedule)
    }

    /// The checked plan in an order of one's own in place of [`Draft::schedule`], with its prediction.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn plan_in(self, schedule: ScheduleText) -> Result<(Plan, Prediction), PredictError> {
        let mut plan = self.unpredicted(schedule);
        let prediction = predict(&plan)?;
        plan.prediction = prediction.expectation();
        Ok((plan, prediction))
    }

    /// Whether the choices fit together, without predicting anything.
    ///
    /// # Errors
    /// The first one that does not.
    pub fn check(&self) -> Result<(), PlanError> {
        self.clone().unpredicted(self.order()?).check().map(drop)
    }

    fn order(&self) -> Result<ScheduleText, PlanError> {
        Ok(ScheduleText::of(self.schedule, self.cuts.len() as u32 + 1, self.micro_batches)?)
    }

    /// The plan in an order, neither checked nor predicted: what a question to the planner says.
    pub fn unpredicted(self, schedule: ScheduleText) -> Plan {
        Plan {
            version: VERSION,
            model: self.model,
            cluster: self.cluster,
            cuts: self.cuts,
            schedule,
            recompute: self.recompute,
            mini_batch: self.mini_batch,
            micro_batches: self.micro_batches,
            data_parallel: self.data_parallel,
            tensor: self.tensor,
            sequence_parallel: self.sequence_parallel,
            communication: self.communication,
            optimizer: self.optimizer,
            training: self.training,
            data: self.data,
            weights: None,
            resized: None,
            shuffle: self.shuffle,
            seed: self.seed,
            steps: self.steps,
            prediction: Expectation::default(),
            measured: None,
        }
    }
}
