//! Plans that a search found: what they are called, and what they make of the inputs.

#[cfg(feature = "page")]
pub mod search;

use crate::planner::choices::{ClusterChoice, ModelChoice};
use crate::planner::inputs::Inputs;
use pipewright_core::plan::{Communication, Optimizer, Training};
use pipewright_core::schedule::ScheduleKind;
use pipewright_worker::protocol::FoundPlan;

/// What a search depends on; found plans answer no other question.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    model: ModelChoice,
    cluster: ClusterChoice,
    mini_batch: u64,
    communication: Communication,
    optimizer: Optimizer,
    training: Training,
    /// Devices to use at most.
    pub devices: u32,
}

impl Question {
    /// What `inputs` would be searched for.
    pub fn of(inputs: &Inputs, devices: u32) -> Self {
        Self {
            model: inputs.model.clone(),
            cluster: inputs.cluster.clone(),
            mini_batch: inputs.mini_batch,
            communication: inputs.rest.communication.clone(),
            optimizer: inputs.rest.optimizer,
            training: inputs.rest.training,
            devices,
        }
    }
}

/// Devices that a plan uses.
pub fn devices(inputs: &Inputs) -> u32 {
    inputs.ranks()
}

/// Whether the inputs are this plan, given that they are an answer to the same question.
pub fn is(found: &FoundPlan, inputs: &Inputs) -> bool {
    let again: Vec<String> = inputs.sequences().iter().map(ToString::to_string).collect();
    found.cuts == inputs.cuts
        && found.micro_batches == inputs.micro_batches
        && found.replicas == inputs.rest.data_parallel.replicas
        && found.schedule == inputs.schedule.to_string()
        && found.recompute == again
}

/// `4 stages × 2, m 64, 1F1B, R 3`
pub fn name(found: &FoundPlan) -> String {
    let stages = found.cuts.len() + 1;
    let copies = if found.replicas > 1 { format!(" × {}", found.replicas) } else { String::new() };
    let kind = found.schedule.parse::<ScheduleKind>().map_or("", ScheduleKind::title);
    let again = found.recompute.iter().filter(|text| !text.is_empty()).count();
    let again = if again > 0 { format!(", R {again}") } else { String::new() };
    format!("{stages}{copies}, m {}, {kind}{again}", found.micro_batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::found::apply;
    use crate::planner::presets::{EXAMPLES, first};
    use pipewright_worker::Session;
    use pipewright_worker::protocol::{Reply, Request};

    /// What a search for `inputs` finds.
    fn searched(inputs: &Inputs) -> Vec<FoundPlan> {
        let (plan, _) = inputs.plan().unwrap();
        let mut session = Session::default();
        let devices = devices(inputs);
        session.receive(Request::Plans { plan: plan.to_json(), devices });
        session.receive(Request::Run { on: true });
        for _ in 0..60 {
            session.step(2000);
        }
        session.report();
        match session.take() {
            Some(Reply::Plans(plans)) => plans.found,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_found_plan_that_is_taken_is_what_it_said() {
        let inputs = EXAMPLES[2].inputs();
        let found = searched(&inputs);
        assert!(found.len() > 5 && found.iter().any(|f| !f.recompute.is_empty()));
        for plan in &found {
            let next = apply(plan, &inputs).unwrap();
            assert!(is(plan, &next) && !is(plan, &inputs), "{}", name(plan));
            assert_eq!(Question::of(&next, 8), Question::of(&inputs, 8));
            let figures = solve(&next, &Ground::of(&next)).unwrap().figures;
            let said = (plan.step, plan.peak, plan.traffic);
            assert_eq!((figures.step.0, figures.peak.0, figures.traffic.0), said, "{}", name(plan));
        }
    }

    #[test]
    fn plans_are_named_and_a_foreign_schedule_is_refused() {
        let mut found = FoundPlan {
            cuts: vec![3, 9],
            schedule: "gpipe".into(),
            micro_batches: 8,
            replicas: 2,
            recompute: vec![String::new(), "0-4".into(), String::new()],
            ..FoundPlan::default()
        };
        assert_eq!(name(&found), "3 × 2, m 8, GPipe, R 1");
        assert_eq!(devices(&apply(&found, &first()).unwrap()), 6);
        found.schedule = "zigzag".into();
        assert!(apply(&found, &first()).is_err());
    }
}
