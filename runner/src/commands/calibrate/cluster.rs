//! A plan's cluster as a trace of its run shows it.
//!
//! Every node's times are multiplied so that the passes of its stage take what the trace says; the
//! link is the one fitted to the messages. The result is a profile like one that was measured
//! node by node, so planner, explorer and `runner simulate` read it.

use crate::failure::Failure;
use pipewright_core::cost::calibrate::StageFit;
use pipewright_core::cost::{Cluster, Link, MeasuredNode, Profile, Sample};
use pipewright_core::ids::{NodeId, StageId};
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Prediction, predict};
use pipewright_core::schedule::ActionKind;
use pipewright_core::units::Nanos;
use std::collections::BTreeMap;

/// What a lane is busy with: a pass, or the update of a stage's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Busy {
    /// A pass.
    Pass(ActionKind),
    /// The update.
    Update,
}

/// Mean seconds over predicted ones.
type Factors = BTreeMap<(StageId, Busy), f64>;

/// The cluster of `plan` with the times of `fits`, and with `link` where there is one.
pub(super) fn calibrated(
    plan: &Plan,
    fits: &[StageFit<Busy>],
    link: Option<Link>,
) -> Result<Cluster, Failure> {
    let prediction = predict(plan)?;
    let mut factors = Factors::new();
    for fit in fits {
        let Some(cost) = prediction.stages.get(fit.stage.index()) else {
            let why = format!("the trace has a stage {}, which is not in the plan", fit.stage);
            return Err(Failure::usage(why));
        };
        let predicted = match fit.kind {
            Busy::Pass(kind) => cost.of(kind),
            Busy::Update => cost.update,
        };
        if predicted.0 > 0 {
            factors.insert((fit.stage, fit.kind), fit.mean.value / predicted.secs());
        }
    }
    let mut cluster = plan.cluster.clone();
    cluster.name = format!("{}, calibrated", cluster.name);
    cluster.local = link.unwrap_or(cluster.local);
    cluster.profile = Some(profile(&prediction, plan.samples(), &factors));
    Ok(cluster)
}

fn profile(prediction: &Prediction, samples: u64, factors: &Factors) -> Profile {
    let kernels = prediction.programs.iter().flat_map(|program| &program.stages).flat_map(|s| {
        let stage = s.stage;
        s.kernels.iter().map(move |kernel| (kernel.node, stage))
    });
    let stage_of: BTreeMap<NodeId, StageId> = kernels.collect();
    let graph = &prediction.graph;
    let node = |(node, stage): (&NodeId, &StageId)| {
        let cost = prediction.costs.node(*node);
        // A backward pass in one piece says the same of both of its parts.
        let factor = |busy: &[Busy]| {
            busy.iter().find_map(|busy| factors.get(&(*stage, *busy))).copied().unwrap_or(1.0)
        };
        let whole = Busy::Pass(ActionKind::Backward);
        let forward = factor(&[Busy::Pass(ActionKind::Forward)]);
        let input = factor(&[Busy::Pass(ActionKind::BackwardInput), whole]);
        let weight = factor(&[Busy::Pass(ActionKind::BackwardWeight), whole]);
        let times = |time: Nanos, factor: f64| Nanos::from_secs(time.secs() * factor);
        let sample = Sample {
            samples,
            forward_ns: times(cost.forward, forward),
            input_gradient_ns: times(cost.input_gradient, input),
            weight_gradient_ns: times(cost.weight_gradient, weight),
            sum_gradients_ns: times(cost.sum_gradients, input),
            update_ns: times(cost.update, factor(&[Busy::Update])),
            split: None,
        };
        MeasuredNode { node: graph.node(*node).name.clone(), samples: vec![sample] }
    };
    Profile { model: graph.name().into(), nodes: stage_of.iter().map(node).collect() }
}
