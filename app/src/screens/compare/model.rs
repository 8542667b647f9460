//! Plans that a search found: what they are called, and what they make of the inputs.

#[cfg(feature = "page")]
pub mod scaling;
#[cfg(feature = "page")]
pub mod search;
pub mod sizes;

use crate::base::texts::{n, tr};
use crate::planner::choices::{ClusterChoice, ModelChoice};
use crate::planner::compare::layers_before;
use crate::planner::found::apply;
use crate::planner::inputs::Inputs;
use pipewright_core::cost::Cluster;
use pipewright_core::graph::Graph;
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

impl Question {
    /// Whether both ask the same but for how many hosts the cluster has.
    pub fn is_but_for_hosts(&self, other: &Self) -> bool {
        let plain = |question: &Self| {
            let cluster = (*question.cluster.cluster()).clone();
            Cluster { nodes: 1, name: String::new(), ..cluster }
        };
        Self { cluster: other.cluster.clone(), ..self.clone() } == *other
            && plain(self) == plain(other)
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
        && (found.tensor.max(1), found.sequence_parallel)
            == (inputs.rest.tensor, inputs.rest.sequence_parallel)
        && found.schedule == inputs.schedule.to_string()
        && found.recompute == again
}

/// `4 × 2, t 4, m 64, 1F1B, R 3`
pub fn name(found: &FoundPlan) -> String {
    let stages = found.cuts.len() + 1;
    let copies = if found.replicas > 1 { format!(" × {}", found.replicas) } else { String::new() };
    let kind = found.schedule.parse::<ScheduleKind>().map_or("", ScheduleKind::title);
    let again = found.recompute.iter().filter(|text| !text.is_empty()).count();
    let again = if again > 0 { format!(", R {again}") } else { String::new() };
    let groups = if found.tensor > 1 { format!(", t {}", found.tensor) } else { String::new() };
    format!("{stages}{copies}{groups}, m {}, {kind}{again}", found.micro_batches)
}

/// Its name in a front: with the cuts, in layers before them, where another plan of the front has the same name.
pub fn name_in(found: &FoundPlan, front: &[(u32, FoundPlan)], graph: &Graph) -> String {
    let mine = name(found);
    let other = |plan: &FoundPlan| plan.cuts != found.cuts && name(plan) == mine;
    match front.iter().any(|(_, plan)| other(plan)) {
        true => tr!("{mine}, cuts {cuts}", mine, cuts = layers_before(&found.cuts, graph)),
        false => mine,
    }
}

/// The inputs with a found plan in place of theirs. Where A only mirrors them it becomes what they were, so that
/// the found plan can be compared with it.
///
/// # Errors
/// As [`apply`].
pub fn taken(found: &FoundPlan, inputs: &Inputs) -> Result<Inputs, String> {
    let next = apply(found, inputs)?;
    let a = next.a.clone().unwrap_or_else(|| Box::new(inputs.alone()));
    Ok(Inputs { a: Some(a), ..next })
}

/// A share in which two plans of a list differ at least.
const APART: f64 = 0.005;

/// The plans of a front, fastest first, without those that differ from the one before by less than half a
/// percent in all three measures; the leanest and the one that sends least stay.
pub fn thinned(front: Vec<(u32, FoundPlan)>) -> Vec<(u32, FoundPlan)> {
    let least = |of: fn(&FoundPlan) -> u64| front.iter().map(|(_, plan)| of(plan)).min();
    let (lean, quiet) = (least(|plan| plan.peak), least(|plan| plan.traffic));
    let near = |a: u64, b: u64| a.abs_diff(b) as f64 <= APART * a.max(b) as f64;
    let mut kept: Vec<(u32, FoundPlan)> = vec![];
    for (number, plan) in front {
        let best = Some(plan.peak) == lean || Some(plan.traffic) == quiet;
        let alike = |(_, old): &(u32, FoundPlan)| {
            near(old.step, plan.step)
                && near(old.peak, plan.peak)
                && near(old.traffic, plan.traffic)
        };
        if best || !kept.iter().any(alike) {
            kept.push((number, plan));
        }
    }
    kept
}

/// What a plan of a front is best in, for [`crate::base::texts::t`].
pub fn best_in(plan: &FoundPlan, front: &[(u32, FoundPlan)]) -> Option<&'static str> {
    // Of equal ones the fastest.
    let least = |of: fn(&FoundPlan) -> u64| {
        front.iter().min_by_key(|(_, other)| of(other)).is_some_and(|(_, best)| best == plan)
    };
    match (least(|p| p.step), least(|p| p.peak), least(|p| p.traffic)) {
        (true, ..) => Some(n("fastest")),
        (_, true, _) => Some(n("least memory")),
        (_, _, true) => Some(n("least traffic")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_is_thinned_and_its_best_are_named() {
        let plan = |step, peak, traffic| FoundPlan { step, peak, traffic, ..FoundPlan::default() };
        let front = [
            plan(1000, 900, 500),
            plan(1001, 899, 501),
            plan(1002, 600, 500),
            plan(2000, 598, 500),
            plan(2001, 597, 499),
        ];
        let front: Vec<(u32, FoundPlan)> = (0..).zip(front).collect();
        let kept = thinned(front);
        // The second hardly differs from the first; the last two are the leanest and nearly so.
        assert_eq!(kept.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 2, 3, 4]);
        let names: Vec<_> = kept.iter().map(|(_, plan)| best_in(plan, &kept)).collect();
        assert_eq!(names, [Some("fastest"), None, None, Some("least memory")]);
        let even = thinned((0..).zip([plan(1, 9, 5), plan(2, 7, 5), plan(3, 5, 5)]).collect());
        let names: Vec<_> = even.iter().map(|(_, plan)| best_in(plan, &even)).collect();
        assert_eq!(names, [Some("fastest"), None, Some("least memory")]);
    }

    #[test]
    fn equal_names_are_told_apart_by_their_cuts() {
        let inputs = first();
        let graph = inputs.model.graph();
        let mut moved = inputs.cuts.clone();
        moved[0] = graph.layers()[6].first_node.0;
        let plan = |cuts: &[u32], micro_batches| FoundPlan {
            cuts: cuts.to_vec(),
            micro_batches,
            replicas: 1,
            schedule: "1f1b".into(),
            ..FoundPlan::default()
        };
        let front: Vec<(u32, FoundPlan)> =
            (0..).zip([plan(&inputs.cuts, 8), plan(&moved, 8), plan(&moved, 16)]).collect();
        let names: Vec<String> =
            front.iter().map(|(_, plan)| name_in(plan, &front, &graph)).collect();
        assert_eq!(
            names,
            ["4, m 8, 1F1B, cuts 7 13 20", "4, m 8, 1F1B, cuts 6 13 20", "4, m 16, 1F1B"]
        );
    }

    #[test]
    fn a_found_plan_is_compared_with_what_it_came_from() {
        let inputs = first();
        let found = searched(&inputs, devices(&inputs))
            .into_iter()
            .find(|plan| !is(plan, &inputs))
            .unwrap();
        let next = taken(&found, &inputs).unwrap();
        assert!(is(&found, &next));
        assert_eq!(next.a.as_deref(), Some(&inputs.alone()));
        // A plan that was pinned stays.
        let other = Inputs { micro_batches: 7, ..inputs.alone() };
        let pinned = Inputs { a: Some(Box::new(other.clone())), ..inputs };
        assert_eq!(taken(&found, &pinned).unwrap().a.as_deref(), Some(&other));
    }
    use crate::planner::engine::{Ground, solve};
    use crate::planner::found::apply;
    use crate::planner::presets::{EXAMPLES, first};
    use pipewright_worker::Session;
    use pipewright_worker::protocol::{Reply, Request};

    /// What a search for `inputs` on so many devices at most finds.
    pub(super) fn searched(inputs: &Inputs, devices: u32) -> Vec<FoundPlan> {
        let (plan, _) = inputs.plan().unwrap();
        let mut session = Session::default();
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
        let found = searched(&inputs, devices(&inputs));
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
