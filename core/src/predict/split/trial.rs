//! A split laid out and simulated: what [`crate::predict::predict`] says of its step and memory.

use super::SplitError;
use crate::cost::Costs;
use crate::graph::Graph;
use crate::plan::{Draft, Inputs, Plan, ScheduleText, groups, lay_out, lower, training_graphs};
use crate::predict::PredictError;
use crate::schedule::Schedule;
use crate::simulate::{StageCost, simulate, simulate_chain};
use crate::units::{Bytes, Nanos};

/// What does not depend on the cuts.
pub(super) struct Trials {
    pub plan: Plan,
    pub graph: Graph,
    pub schedule: Schedule,
    pub costs: Costs,
}

/// What a split is worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub step: Nanos,
    /// Most memory of a device.
    pub peak: Bytes,
    pub fits: bool,
}

/// Values of splits that do not fit are above those of all that do.
const FULL: u64 = 1 << 62;

impl Trials {
    /// Checks everything but the cuts.
    pub fn new(draft: &Draft, order: &ScheduleText) -> Result<Self, SplitError> {
        let draft = Draft { recompute: vec![], cuts: vec![], ..draft.clone() };
        let mut plan = draft.unpredicted(order.clone());
        let graph = plan.model.graph().map_err(|e| PredictError::Plan(e.into()))?;
        let stages = order.parse().map_err(|e| PredictError::Plan(e.into()))?.stages();
        crate::partition::uniform(&graph, stages)?;
        plan.cuts = (1..stages).collect();
        let (graph, schedule) = plan.check().map_err(PredictError::Plan)?;
        let costs = plan.costs(&graph, plan.samples());
        let costs = costs.with_backward(schedule.splits_backward());
        Ok(Self { plan, graph, schedule, costs })
    }

    /// Simulates a split of ascending cuts inside of the graph.
    pub fn run(&self, cuts: &[u32]) -> Result<Trial, PredictError> {
        let inputs = Inputs { cuts, ..self.plan.inputs(&self.graph, &self.schedule) };
        let graphs = training_graphs(&inputs);
        let programs = lay_out(&inputs, &graphs);
        let cluster = &self.plan.cluster;
        let stages: Vec<StageCost> =
            graphs.iter().map(|g| StageCost::new(g, &self.costs)).collect();
        let groups = groups(&inputs);
        let copies = self.plan.copies(&groups);
        let timeline = match simulate_chain(&inputs, &graphs, &programs, &stages, copies) {
            Some(timeline) => timeline,
            None => simulate(&lower(&inputs, &graphs), &stages, cluster, copies)?,
        };
        let peak = programs.iter().map(|program| program.arena).max().unwrap_or_default();
        Ok(Trial { step: timeline.step, peak, fits: peak <= cluster.device.memory })
    }

    /// What a search makes less: the step, or where memory counts the bytes that are too many.
    pub fn value(&self, cuts: &[u32], memory_counts: bool) -> Nanos {
        let Ok(trial) = self.run(cuts) else { return Nanos(u64::MAX) };
        let memory = self.plan.cluster.device.memory;
        match trial.fits || !memory_counts {
            true => trial.step,
            false => Nanos(FULL.saturating_add(trial.peak.saturating_sub(memory).0)),
        }
    }

    /// Actions of a step.
    pub fn actions(&self) -> u64 {
        self.schedule.lanes.iter().map(|lane| lane.len() as u64).sum()
    }

    /// What a trial takes, in nodes and actions.
    pub fn work(&self) -> u64 {
        self.graph.nodes().len() as u64 + self.actions()
    }
}
