//! Simulated lives: which sizes a plan can have, and what a policy makes of a scenario.

use super::scenario::Scenario;
use crate::base::texts::t;
use pipewright_core::elastic::life::{Job, Life, live};
use pipewright_core::elastic::{Facts, Limits, ScalePolicy, Size, Verdict, replan};
use pipewright_core::plan::Plan;

/// Replicas that are looked at, at most.
const REPLICAS_MOST: u32 = 64;
/// Actions of a step beyond which the network is not cut anew for fewer ranks than a replica has: it
/// would take seconds a size.
const ACTIONS_MOST: u32 = 2048;
/// Milliseconds that all questions to a policy may take together.
pub const PATIENCE_MS: f64 = 1000.0;

/// Numbers of ranks whose plans are worth predicting, where at most `slots` are offered.
pub fn wanted(plan: &Plan, slots: u32) -> Vec<u32> {
    let (lanes, groups) = (plan.lanes().max(1), slots / plan.tensor);
    let below = groups.min(lanes - 1);
    let few = lanes.saturating_mul(plan.micro_batches) <= ACTIONS_MOST;
    let fewer = 1..=if few { below } else { 0 };
    let replicas = (groups / lanes).min(REPLICAS_MOST);
    let wanted = fewer.chain((1..=replicas).map(|replicas| replicas * lanes));
    wanted.map(|groups| groups * plan.tensor).collect()
}

/// Ranks of a replica.
pub fn replica(plan: &Plan) -> u32 {
    plan.lanes().max(1) * plan.tensor
}

/// Adds the size of at most so many ranks, unless there is none or it is known.
pub fn predict(plan: &Plan, ranks: u32, scenario: &Scenario, sizes: &mut Vec<Size>) {
    let Ok(found) = replan(plan, ranks, scenario.rule) else { return };
    let size = found.size();
    if let Err(at) = sizes.binary_search_by_key(&size.ranks, |size| size.ranks) {
        sizes.insert(at, size);
    }
}

/// What is trained: so many steps of the plan as the work takes.
pub fn job(scenario: &Scenario, plan: &Plan, sizes: &[Size]) -> Job {
    let step = plan.prediction.step_ns.0.max(1);
    let steps = scenario.work.saturating_mul(1_000_000).div_ceil(step).max(1);
    let samples_total = steps.saturating_mul(plan.mini_batch);
    let ranks = |size: Option<&Size>| size.map_or(plan.ranks(), |size| size.ranks);
    Job {
        samples_total,
        samples_epoch: (samples_total / scenario.epochs.max(1)).max(1),
        limits: Limits {
            least: ranks(sizes.first()),
            most: ranks(sizes.last()),
            asked: plan.ranks(),
        },
        sizes: sizes.to_vec(),
        time_limit: None,
    }
}

/// The life that a scenario and a policy give; `now` is a clock in milliseconds, by which a slow
/// script ends.
pub fn simulate(
    scenario: &Scenario,
    replica: u32,
    job: &Job,
    policy: &dyn ScalePolicy,
    now: &dyn Fn() -> f64,
) -> Life {
    let patient = Patient { policy, now, until: now() + PATIENCE_MS };
    live(job, &patient, &scenario.incidents(replica), scenario.pauses(), scenario.horizon())
}

/// A policy that may take only so long: a page that waits for a script is dead.
struct Patient<'a> {
    policy: &'a dyn ScalePolicy,
    now: &'a dyn Fn() -> f64,
    until: f64,
}

impl ScalePolicy for Patient<'_> {
    fn decide(&self, facts: &Facts) -> Verdict {
        if (self.now)() > self.until {
            return Verdict::fail(t("its answers took longer than a second in total"));
        }
        self.policy.decide(facts)
    }

    fn name(&self) -> String {
        self.policy.name()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::screens::elastic::model::presets;
    use crate::screens::elastic::model::scenario::Chosen;
    use pipewright_core::elastic::life::{Cause, End};
    use pipewright_core::elastic::{Policy, Script};

    /// The first plan's sizes for a scenario.
    pub fn ground(scenario: &Scenario) -> (Plan, Job, u32) {
        of(crate::planner::presets::first().plan().unwrap().0, scenario)
    }

    fn of(plan: Plan, scenario: &Scenario) -> (Plan, Job, u32) {
        let replica = replica(&plan);
        let mut sizes = vec![];
        for ranks in wanted(&plan, scenario.most_slots(replica)) {
            predict(&plan, ranks, scenario, &mut sizes);
        }
        let job = job(scenario, &plan, &sizes);
        (plan, job, replica)
    }

    fn life(scenario: &Scenario, at: usize) -> Life {
        let (_, job, replica) = ground(scenario);
        let policy: Box<dyn ScalePolicy> = match &scenario.policies[at] {
            Chosen::Text(text) => Box::new(Chosen::built_in(text).unwrap()),
            Chosen::Script(text) => Box::new(Script::compile("policy", text).unwrap()),
        };
        simulate(scenario, replica, &job, &*policy, &|| 0.0)
    }

    #[test]
    fn pieces_give_the_sizes_that_the_core_gives() {
        let scenario = Scenario::default();
        let (plan, job, replica) = ground(&scenario);
        let slots = scenario.most_slots(replica);
        assert_eq!(slots, 4 * replica);
        let expected = pipewright_core::elastic::sizes(&plan, slots, scenario.rule).unwrap();
        assert_eq!(job.sizes, expected);
        assert!(job.sizes.iter().any(|size| size.ranks == plan.ranks()) && job.samples_epoch > 0);
    }

    #[test]
    fn tensor_groups_are_offered_whole() {
        let mut inputs = crate::planner::presets::first();
        inputs.rest.tensor = 2;
        let scenario = Scenario::default();
        let (plan, job, replica) = of(inputs.plan().unwrap().0, &scenario);
        assert_eq!((plan.tensor, replica), (2, inputs.ranks_of_replica()));
        let slots = scenario.most_slots(replica);
        let expected = pipewright_core::elastic::sizes(&plan, slots, scenario.rule).unwrap();
        assert_eq!(job.sizes, expected);
        assert!(job.sizes.iter().all(|size| size.ranks.is_multiple_of(2)));
    }

    #[test]
    fn every_preset_shows_what_it_promises() {
        let all: Vec<[Life; 2]> =
            presets::ALL.iter().map(|p| [0, 1].map(|at| life(&p.scenario(), at))).collect();
        let replicas =
            |life: &Life| life.generations.iter().map(|g| g.replicas).collect::<Vec<_>>();
        assert_eq!(replicas(&all[0][0]), [2, 4, 2]);
        assert_eq!(all[0][0].end, Some(End::Done));
        assert!(matches!(all[0][1].end, Some(End::Failed(_))), "B ends when nodes leave");
        for [a, _] in &all {
            assert_eq!(a.end, Some(End::Done), "{:?}", replicas(a));
        }
        let losses = |life: &Life| life.generations.iter().filter(|g| g.loss.is_some()).count();
        assert!(losses(&all[1][0]) > 5 && losses(&all[2][0]) > 5);
        assert!(all[3][0].generations.len() > all[3][1].generations.len(), "bursts are one change");
    }

    #[test]
    fn what_ends_a_job_is_said() {
        let mut scenario = Scenario::default();
        scenario.policies[0] = Chosen::Script("loop {}".into());
        let found = life(&scenario, 0);
        let Some(End::Failed(why)) = &found.end else { panic!("{:?}", found.end) };
        assert!(why.contains("operations"), "{why}");
        // A clock that runs: the second question comes too late.
        let (_, job, replica) = ground(&scenario);
        let time = std::cell::Cell::new(0.0);
        let now = || time.replace(time.get() + 0.6 * PATIENCE_MS);
        let found = simulate(&scenario, replica, &job, &Policy::Any, &now);
        assert!(matches!(&found.end, Some(End::Failed(why)) if why.contains("a second")));
        assert_eq!(found.generations[0].ended.unwrap().1, Cause::Failed);
    }
}
