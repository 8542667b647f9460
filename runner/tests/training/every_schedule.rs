//! Every schedule that a plan can hold trains what one stage trains: after ten steps all tensors
//! of the checkpoint, weights, running statistics and the optimizer's state, have the same bits,
//! by threads and by processes.
//!
//! Floating-point sums depend on their order, so two kinds of schedules cannot have these bits:
//! - Looped BFS takes the backward passes of micro-batches in reverse. It has the bits of one
//!   stage that takes them in reverse.
//! - DualPipe and Chimera hold two copies of every stage, each of which adds up its own
//!   micro-batches before the two are added. `two_copies.rs` holds their weights to two replicas'; here
//!   their losses are held to those of one stage, and processes to the bits of threads.

use crate::common::bits::{Trained, order_of_sums};
use crate::common::{draft, draft_of, networks, scratch};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Plan};
use pipewright_core::predict::{AUTOMATIC, automatic_plan};
use pipewright_core::schedule::{Placement, ScheduleKind, Updates};
use pipewright_core::units::Nanos;

const MICRO_BATCHES: u32 = 8;
const STEPS: u64 = 10;

/// Largest relative difference of a loss where sums are made in another order.
const TOLERANCE: f64 = 1e-5;

/// A network and how it is trained.
struct Case {
    name: &'static str,
    draft: fn(u32) -> Draft,
    optimizer: &'static str,
}

impl Case {
    fn plan(&self, kind: ScheduleKind, stages: u32) -> Plan {
        let draft = Draft { schedule: kind, ..self.drafted(stages) };
        draft.plan().unwrap_or_else(|e| panic!("{}, {kind}: {e}", self.name)).0
    }

    fn drafted(&self, stages: u32) -> Draft {
        let mut draft = (self.draft)(stages);
        draft.steps = STEPS;
        (draft.mini_batch, draft.micro_batches) = (32, MICRO_BATCHES);
        draft.optimizer = self.optimizer.parse().unwrap();
        draft
    }

    /// In an order that is made for its stages, or in one by name that none beats.
    fn automatic(&self, stages: u32, lanes: u32) -> Plan {
        let mut draft = self.drafted(stages);
        draft.cluster.local.latency_ns = Nanos(200_000);
        automatic_plan(&draft, lanes).unwrap().plan
    }
}

/// One stage that takes backward passes in the order of some schedule.
fn alone(case: &Case, order: &[u32]) -> Plan {
    let mut plan = case.plan(ScheduleKind::GPipe, 1);
    let forwards = (0..MICRO_BATCHES).map(|m| format!("0F{m}"));
    let backwards = order.iter().map(|m| format!("0B{m}"));
    plan.schedule.lanes = vec![forwards.chain(backwards).collect::<Vec<_>>().join(" ")];
    plan.schedule.name = "one stage".into();
    plan
}

/// Every schedule against one stage.
fn check(case: &Case) {
    let dir = scratch(&format!("every-schedule-{}", case.name));
    let forth: Vec<u32> = (0..MICRO_BATCHES).collect();
    let expected = Trained::over_threads(&dir, &alone(case, &forth));
    let first: f64 = expected.losses[0].parse().unwrap();
    let last: f64 = expected.losses[STEPS as usize - 1].parse().unwrap();
    assert!(last < 0.99 * first, "{} learns: {first} .. {last}", case.name);
    let synchronous =
        ScheduleKind::ALL.into_iter().filter(|kind| kind.updates() == Updates::Synchronous);
    for kind in synchronous {
        let what = format!("{}, {kind}", case.name);
        let chunks = kind.placement().stages(1);
        let plan = case.plan(kind, if chunks > 1 { 2 * chunks } else { 4 });
        let found = Trained::over_threads(&dir, &plan);
        match order_of_sums(&plan.schedule.parse().unwrap()) {
            Some(order) if order == forth => found.is(&what, &expected),
            Some(order) => found.is(&what, &Trained::over_threads(&dir, &alone(case, &order))),
            None => assert_eq!(kind.placement(), Placement::TwoWay, "{what}: sums in no order"),
        }
        found.is_near(&what, &expected, TOLERANCE);
        if let Some(by_mpi) = Trained::over_mpi(&dir, &plan) {
            by_mpi.is(&format!("{what}, mpirun"), &found);
        }
    }
    // An order of its own, with one and with two stages a lane.
    for stages in [4, 8] {
        let what = format!("{}, automatic with {stages} stages", case.name);
        let plan = case.automatic(stages, 4);
        let own = plan.schedule.name == AUTOMATIC;
        assert!(own || case.name == "images", "{what}: {}", plan.schedule.name);
        let found = Trained::over_threads(&dir, &plan);
        found.is(&what, &expected);
        if let Some(by_mpi) = Trained::over_mpi(&dir, &plan) {
            by_mpi.is(&format!("{what}, mpirun"), &found);
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Linear layers and rectifiers.
#[test]
fn dense() {
    let draft = |stages| draft(Preset::Fc32 { width: 32 }, stages);
    check(&Case { name: "dense", draft, optimizer: "sgd:lr=0.002,momentum=0.9" });
}

/// Convolutions, every normalisation, dropout, values with readers in several stages.
#[test]
fn images() {
    let draft = |stages| draft_of(networks::images(), stages);
    check(&Case { name: "images", draft, optimizer: "sgd:lr=0.05,momentum=0.9,nesterov=true" });
}

/// A transformer with dropout whose first and last stage share a table.
#[test]
fn sequence() {
    let draft = |stages| draft_of(networks::sequence(), stages);
    check(&Case { name: "sequence", draft, optimizer: "adamw:lr=0.001" });
}
