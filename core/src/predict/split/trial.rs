//! A split laid out and simulated: what [`crate::predict::predict`] says of its step and memory. Where the
//! schedule does not flush, the step is that of a full pipeline, [`crate::predict::steady`]'s.

use super::SplitError;
use crate::cost::Costs;
use crate::graph::Graph;
use crate::plan::{Draft, Inputs, Plan, ScheduleText, training_graphs};
use crate::predict::steady::{busiest, filling};
use crate::predict::{Outline, PredictError};
use crate::schedule::{Schedule, ScheduleKind, Updates};
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
        let outline = self.window(cuts, &self.schedule)?;
        let step = match &self.full {
            Some(Full { before, after }) => {
                let before = match before {
                    Some(before) => self.window(cuts, before)?.timeline.step,
                    None => outline.timeline.step,
                };
                let after = self.window(cuts, after)?.timeline.step;
                after.saturating_sub(before).max(busiest(&outline.timeline))
            }
            None => outline.timeline.step,
        };
        let memory = self.plan.cluster.device.memory;
        let peak = outline.peak();
        Ok(Trial { step, peak, fits: peak <= memory })
    }

    /// One window of `schedule`.
    fn window(&self, cuts: &[u32], schedule: &Schedule) -> Result<Outline, PredictError> {
        let inputs = Inputs { cuts, ..self.plan.inputs(&self.graph, schedule) };
        Ok(Outline::new(&inputs, &training_graphs(&inputs), &self.costs)?)
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
