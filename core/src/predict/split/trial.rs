//! A split laid out and simulated: what [`crate::predict::predict`] says of its step and memory. Where the
//! schedule does not flush, the step is that of a full pipeline, [`crate::predict::steady`]'s.

use super::SplitError;
use crate::cost::Costs;
use crate::graph::Graph;
use crate::plan::{
    Draft, Inputs, Plan, Program, ScheduleText, groups, lay_out, lower, training_graphs,
};
use crate::predict::PredictError;
use crate::predict::steady::{busiest, filling};
use crate::schedule::{Schedule, ScheduleKind, Updates};
use crate::simulate::{StageCost, simulate, simulate_chain};
use crate::timeline::Timeline;
use crate::units::{Bytes, Nanos};

/// What does not depend on the cuts.
pub(super) struct Trials {
    pub plan: Plan,
    pub graph: Graph,
    pub schedule: Schedule,
    pub costs: Costs,
    /// Where the schedule does not flush.
    full: Option<Full>,
}

/// Windows between which a mini-batch passes a full pipeline.
struct Full {
    /// None for the schedule itself.
    before: Option<Schedule>,
    after: Schedule,
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
        let kind = order.name.parse::<ScheduleKind>().ok();
        let kind = kind.filter(|kind| kind.updates() != Updates::Synchronous);
        let m = plan.micro_batches;
        let full = kind.and_then(|kind| {
            let filling = filling(stages, m);
            let before = (filling > 1).then(|| kind.generate(stages, filling * m).ok());
            let after = kind.generate(stages, (filling + 1) * m).ok()?;
            Some(Full { before: before.flatten(), after })
        });
        Ok(Self { plan, graph, schedule, costs, full })
    }

    /// Simulates a split of ascending cuts inside of the graph.
    pub fn run(&self, cuts: &[u32]) -> Result<Trial, PredictError> {
        let (timeline, programs) = self.window(cuts, &self.schedule)?;
        let step = match &self.full {
            Some(Full { before, after }) => {
                let before = match before {
                    Some(before) => self.window(cuts, before)?.0.step,
                    None => timeline.step,
                };
                let after = self.window(cuts, after)?.0.step;
                after.saturating_sub(before).max(busiest(&timeline))
            }
            None => timeline.step,
        };
        let memory = self.plan.cluster.device.memory;
        let peak = programs.iter().map(|program| program.arena).max().unwrap_or_default();
        Ok(Trial { step, peak, fits: peak <= memory })
    }

    /// One window of `schedule`, and what lies where.
    fn window(
        &self,
        cuts: &[u32],
        schedule: &Schedule,
    ) -> Result<(Timeline, Vec<Program>), PredictError> {
        let inputs = Inputs { cuts, ..self.plan.inputs(&self.graph, schedule) };
        let graphs = training_graphs(&inputs);
        let programs = lay_out(&inputs, &graphs);
        let stages: Vec<StageCost> =
            graphs.iter().map(|g| StageCost::new(g, &self.costs)).collect();
        let groups = groups(&inputs);
        let copies = self.plan.copies(&groups);
        let timeline = match simulate_chain(&inputs, &graphs, &programs, &stages, copies) {
            Some(timeline) => timeline,
            None => simulate(&lower(&inputs, &graphs), &stages, &self.plan.cluster, copies)?,
        };
        Ok((timeline, programs))
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

    /// Whether the step is that of a full pipeline.
    pub fn is_steady(&self) -> bool {
        self.full.is_some()
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
