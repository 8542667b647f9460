//! Outline of a step: its time, memory and waits, without the instructions that a runner executes.
//!
//! What is drawn, split, advised or compared is outlined; what is written to a file is lowered whole, by
//! [`super::predict`]. Both say the same: property tests hold them together.

use super::PredictError;
use crate::cost::Costs;
use crate::graph::Graph;
use crate::graph::autodiff::TrainingGraph;
use crate::plan::{Expectation, Inputs, Plan, PlanError, Program, groups, lay_out, lower};
use crate::schedule::Schedule;
use crate::simulate::{Copies, StageCost, Stuck, simulate, simulate_chain};
use crate::timeline::Timeline;
use crate::units::Bytes;

/// A step in outline.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Times of its stages for one micro-batch.
    pub stages: Vec<StageCost>,
    /// What of them tensor groups and expert groups exchange within passes; empty where there are no groups.
    pub exchanged: Vec<StageCost>,
    /// One per lane, without instructions: where everything lies.
    pub programs: Vec<Program>,
    /// One predicted step.
    pub timeline: Timeline,
}

impl Outline {
    /// Lays out and simulates what was checked. `graphs` are those of `inputs`, in the sequences of the stages
    /// that compute again; `costs` are of a micro-batch. Linear in actions where the plan is a chain, else what
    /// lowering takes.
    ///
    /// # Errors
    /// When programs would wait for each other.
    pub fn new(inputs: &Inputs, graphs: &[TrainingGraph], costs: &Costs) -> Result<Self, Stuck> {
        Self::of(inputs, graphs, costs, lay_out(inputs, graphs))
    }

    fn of(
        inputs: &Inputs,
        graphs: &[TrainingGraph],
        costs: &Costs,
        programs: Vec<Program>,
    ) -> Result<Self, Stuck> {
        let split = inputs.schedule.splits_backward().then(|| costs.clone().with_backward(true));
        let costs = split.as_ref().unwrap_or(costs);
        let stages: Vec<StageCost> = graphs.iter().map(|g| StageCost::new(g, costs)).collect();
        let exchanges = inputs.mesh().tensor > 1 || inputs.mesh().experts > 1;
        let exchanged = match exchanges {
            false => vec![],
            true => graphs.iter().map(|graph| StageCost::exchanged(graph, costs)).collect(),
        };
        let groups = groups(inputs);
        let copies = Copies {
            data_parallel: inputs.data_parallel,
            groups: &groups,
            by_hosts: inputs.communication.hierarchical,
        };
        // Most plans are chains: a quarter of the work, so that a picture comes within a frame.
        let timeline = match simulate_chain(inputs, graphs, &programs, &stages, copies) {
            Some(timeline) => timeline,
            None => simulate(&lower(inputs, graphs), &stages, inputs.cluster, copies)?,
        };
        Ok(Self { stages, exchanged, programs, timeline })
    }

    /// The most that a device reserves.
    pub fn peak(&self) -> Bytes {
        peak(&self.programs)
    }

    /// What goes into the plan file.
    pub fn expectation(&self) -> Expectation {
        expectation(&self.timeline, &self.programs)
    }
}

/// What [`super::predict`] says of a plan's step and memory, in outline.
///
/// # Errors
/// The first thing about the plan that does not fit.
pub fn outline(plan: &Plan) -> Result<Outline, PredictError> {
    Ok(LaidOut::new(plan)?.outline(plan)?)
}

/// A plan that was checked and laid out, before it is simulated.
pub(super) struct LaidOut {
    graph: Graph,
    schedule: Schedule,
    pub graphs: Vec<TrainingGraph>,
    programs: Vec<Program>,
}

impl LaidOut {
    /// Checks and lays out.
    ///
    /// # Errors
    /// The first thing about the plan that does not fit.
    pub fn new(plan: &Plan) -> Result<Self, PlanError> {
        let (graph, schedule) = plan.check()?;
        let inputs = plan.inputs(&graph, &schedule);
        let graphs = plan.training_graphs(&inputs)?;
        let programs = lay_out(&inputs, &graphs);
        Ok(Self { graph, schedule, graphs, programs })
    }

    /// The most that a device reserves.
    pub fn peak(&self) -> Bytes {
        peak(&self.programs)
    }

    /// Simulates `plan`, of which this is the layout.
    ///
    /// # Errors
    /// When programs would wait for each other.
    pub fn outline(self, plan: &Plan) -> Result<Outline, Stuck> {
        let inputs = plan.inputs(&self.graph, &self.schedule);
        let costs = plan.costs(&self.graph, plan.samples());
        Outline::of(&inputs, &self.graphs, &costs, self.programs)
    }
}

fn peak(programs: &[Program]) -> Bytes {
    programs.iter().map(|program| program.arena).max().unwrap_or_default()
}

pub(super) fn expectation(timeline: &Timeline, programs: &[Program]) -> Expectation {
    Expectation {
        step_ns: timeline.step,
        bubble: timeline.bubble(),
        arena: programs.iter().map(|program| program.arena).collect(),
    }
}
