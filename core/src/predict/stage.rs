//! One stage of a plan by itself, as a problem of recomputation with names: what the explorer shows.

use super::{FitError, PredictError};
use crate::graph::Graph;
use crate::graph::autodiff::{ComputationKind, TrainingGraph};
use crate::ids::StageId;
use crate::plan::{Plan, StageProblem, lower, training_graphs};
use crate::recompute::file::Label;

/// A stage of a plan without recomputation.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStage {
    /// What it computes for one micro-batch; times are in nanoseconds.
    pub stage: StageProblem,
    /// What each node of the problem is called.
    pub labels: Vec<Label>,
    /// Bytes that a device has for this stage when all else on its lanes stays as it is; 0 where
    /// that alone is too much.
    pub room: u64,
}

impl PlannedStage {
    /// Stage `stage` of `plan`, whatever that recomputes.
    ///
    /// # Errors
    /// What does not fit about the plan, or sizes beyond those of any machine.
    ///
    /// # Panics
    /// When the plan has no such stage.
    pub fn new(plan: &Plan, stage: StageId) -> Result<Self, FitError> {
        let index = stage.index();
        let (graph, schedule) = plan.check().map_err(PredictError::from)?;
        let costs = plan.costs(&graph, plan.samples());
        let costs = costs.with_backward(schedule.splits_backward());
        let inputs = plan.inputs(&graph, &schedule);
        let graphs = training_graphs(&inputs);
        let programs = lower(&inputs, &graphs);
        let held = || programs.iter().filter(|p| p.stage(stage).is_some());
        let copies = held().filter_map(|p| p.stage(stage)).map(|s| s.slots.count).max();
        let problem = StageProblem::new(&inputs, &graphs[index], &costs, copies.unwrap_or(1))
            .map_err(|error| FitError::Problem { stage: index, error })?;
        let own = crate::recompute::without_recomputation(&problem.problem);
        let own = crate::recompute::cost(&problem.problem, &own).peak;
        let memory = plan.cluster.device.memory;
        let others = held().map(|p| p.arena.0.saturating_sub(own)).max().unwrap_or(0);
        let end = problem.problem.marks().first().copied().unwrap_or(0);
        let label = |node: u32| {
            let name = name(&graph, &graphs[index], &problem, node);
            Label { name: name.0, op: name.1.into(), forward: node < end, rng: false }
        };
        let labels = (0..problem.problem.len() as u32).map(label).collect();
        Ok(Self { stage: problem, labels, room: memory.0.saturating_sub(others) })
    }
}

/// What a node of a stage's problem is called, and its operation.
fn name(
    graph: &Graph,
    stage: &TrainingGraph,
    problem: &StageProblem,
    node: u32,
) -> (String, &'static str) {
    let Some(at) = problem.computation(node) else {
        // Small values lie beside what made them; what comes from nowhere comes from elsewhere.
        let maker = problem.problem.inputs(node).iter().find_map(|i| problem.computation(*i));
        return match maker {
            Some(at) => {
                let node = graph.node(stage.computations[at as usize].node);
                (format!("{}, statistics", node.name), node.op.name())
            }
            None => ("received".into(), "received"),
        };
    };
    let computation = &stage.computations[at as usize];
    let node = graph.node(computation.node);
    let part = match computation.kind {
        ComputationKind::Forward => "",
        ComputationKind::InputGradient => ", input gradient",
        ComputationKind::WeightGradient => ", weight gradient",
        ComputationKind::SumGradients => ", sum of gradients",
        ComputationKind::PartialLoss => ", own logits",
        ComputationKind::AllGather => ", gathered",
        ComputationKind::ReduceScatter => ", summed and scattered",
        ComputationKind::Scatter => ", own slice",
        ComputationKind::RowsToExperts => ", rows to experts",
        ComputationKind::RowsToTokens => ", rows to tokens",
    };
    (format!("{}{part}", node.name), node.op.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::presets::Preset;
    use crate::plan::{Draft, Model};
    use crate::units::Bytes;

    #[test]
    fn a_stage_has_names_and_the_room_that_the_others_leave() {
        let cluster = crate::cost::Cluster::preset("laptop").unwrap();
        let draft = Draft::new(Model::Preset(Preset::DigitsCnn), cluster, vec![4]);
        let (mut plan, prediction) = draft.plan().unwrap();
        let own = |planned: &PlannedStage| {
            let problem = &planned.stage.problem;
            let order = crate::recompute::without_recomputation(problem);
            crate::recompute::cost(problem, &order).peak
        };
        let arena = prediction.programs[0].arena;
        plan.cluster.device.memory = arena + Bytes(1000);
        let planned = PlannedStage::new(&plan, StageId(0)).unwrap();
        assert_eq!(planned.room, own(&planned) + 1000);
        assert_eq!(planned.labels.len(), planned.stage.problem.len());
        assert!(planned.labels.iter().all(|label| !label.name.is_empty()));
        assert!(planned.labels.iter().any(|label| label.name.ends_with(", weight gradient")));
        assert!(planned.labels[0].forward && !planned.labels.last().unwrap().forward);
        plan.cluster.device.memory = Bytes(10);
        assert_eq!(PlannedStage::new(&plan, StageId(0)).unwrap().room, 0);
    }
}
