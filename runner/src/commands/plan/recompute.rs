//! Recomputation of stages: as asked for, or as much as the memory of devices demands.

use super::Question;
use crate::args::Recompute;
use crate::commands::show;
use crate::failure::{Code, Failure};
use pipewright_core::graph::{Graph, Node, Op};
use pipewright_core::plan::{Plan, PlanError, Sequence, training_graphs};
use pipewright_core::predict::{FitError, PredictError, Prediction, fit, fits, predict};

/// Moves of the searches for a stage, for each of its nodes: about a second for some hundred. The plan
/// depends on their number and on nothing of the machine.
pub(super) const EFFORT: u64 = 2_000;

/// The same for finding out which of several plans is worth it.
pub(super) const GLANCE: u64 = 100;

/// Refuses to compute attentions again where there are none.
pub(super) fn can(what: Recompute, graph: &Graph) -> Result<(), Failure> {
    let attends =
        |node: &Node| matches!(node.op, Op::Attention { .. } | Op::ScaledDotProduct { .. });
    if what != Recompute::Selective || graph.nodes().iter().any(attends) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--recompute selective is for attention, and `{}` has none: give auto or full",
        graph.name()
    )))
}

/// The plan with the recomputation that was asked for, within the memory that was asked for; found
/// by searches of `effort` moves for each node of a stage.
pub(super) fn recompute(
    question: &Question,
    plan: Plan,
    prediction: Prediction,
    effort: u64,
) -> Result<(Plan, Prediction), FitError> {
    let (plan, prediction) = match question.recompute {
        Recompute::None => (plan, prediction),
        Recompute::Auto => return fit(&plan, effort),
        Recompute::Selective | Recompute::Full => always(question.recompute, plan)?,
    };
    // The cluster's own memory is said to be exceeded, not held: the runner may have another machine.
    if question.holds_memory {
        fits(&plan, &prediction)?;
    }
    Ok((plan, prediction))
}

/// The plan with everything computed again that stages can, or attentions alone.
pub(super) fn always(what: Recompute, mut plan: Plan) -> Result<(Plan, Prediction), PredictError> {
    let (graph, schedule) = plan.check().map_err(PredictError::Plan)?;
    let graphs = training_graphs(&plan.inputs(&graph, &schedule));
    let again = |stage| match what {
        Recompute::Selective => Sequence::selective(&graph, stage),
        _ => Sequence::full(stage),
    };
    plan.recompute = graphs.iter().map(again).collect();
    let prediction = predict(&plan)?;
    plan.prediction = prediction.expectation();
    Ok((plan, prediction))
}

/// Why the plan was not made.
pub(super) fn failure(error: &FitError) -> Failure {
    let code = match error {
        FitError::Memory { .. } | FitError::AsItIs { .. } => Code::Hardware,
        FitError::Predict(PredictError::Plan(PlanError::Recompute(_))) => Code::Failed,
        FitError::Predict(_) | FitError::Problem { .. } => Code::Usage,
    };
    Failure::new(code, error.to_string())
}

/// Says what is computed again, and which lanes are too full.
pub(super) fn report(plan: &Plan, prediction: &Prediction) {
    show::recomputation(prediction).iter().for_each(|line| note!("{line}"));
    too_full(plan, prediction).iter().for_each(|line| warn!("{line}"));
}

/// A sentence for each lane that does not fit.
pub(in crate::commands) fn too_full(plan: &Plan, prediction: &Prediction) -> Vec<String> {
    let memory = plan.cluster.device.memory;
    let over = prediction.programs.iter().filter(|program| program.arena > memory);
    over.map(|program| {
        let (lane, takes) = (program.lane, program.arena);
        let more = takes.saturating_sub(memory);
        format!("lane {lane} takes {takes}, {more} more than the {memory} of a device")
    })
    .collect()
}
