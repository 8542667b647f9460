//! Every schedule that a plan can hold trains what one stage trains: after ten steps all tensors
//! of the checkpoint, weights, running statistics and the optimizer's state, have the same bits,
//! by threads and by processes.
//!
//! Floating-point sums depend on their order, so two kinds of schedules cannot have these bits:
//! - Looped BFS takes the backward passes of micro-batches in reverse. It has the bits of one
//!   stage that takes them in reverse.
//! - DualPipe and Chimera hold two copies of every stage, each of which adds up its own
//!   micro-batches before the two are added. `two_copies.rs` says how close their weights are; here
//!   their losses are held to those of one stage, and processes to the bits of threads.

mod common;

use common::{draft, draft_of, losses, mpirun_in, networks, runner_in, scratch, tensors, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Plan};
use pipewright_core::schedule::{Action, ActionKind, Placement, Schedule, ScheduleKind, Updates};
use std::collections::BTreeMap;
use std::path::Path;

const MICRO_BATCHES: u32 = 8;
const STEPS: u64 = 10;

/// Largest relative difference of a loss where sums are made in another order.
const TOLERANCE: f64 = 1e-5;

/// Everything that a run saved: bits by name.
type Tensors = BTreeMap<String, Vec<u32>>;

/// A network and how it is trained.
struct Case {
    name: &'static str,
    draft: fn(u32) -> Draft,
    optimizer: &'static str,
}

impl Case {
    fn plan(&self, kind: ScheduleKind, stages: u32) -> Plan {
        let mut draft = (self.draft)(stages);
        (draft.schedule, draft.steps) = (kind, STEPS);
        (draft.mini_batch, draft.micro_batches) = (32, MICRO_BATCHES);
        draft.optimizer = self.optimizer.parse().unwrap();
        draft.plan().unwrap_or_else(|e| panic!("{}, {kind}: {e}", self.name)).0
    }
}

/// The losses of a run, and what it saved at its end.
fn trained(out: &Path) -> (Vec<String>, Tensors) {
    (losses(out), tensors(&out.join(format!("checkpoints/step-{STEPS}"))))
}

fn over_threads(dir: &Path, plan: &Plan) -> (Vec<String>, Tensors) {
    write(dir, "plan.json", plan.to_json());
    let args = ["plan.json", "--out", "threads", "--overwrite", "--save-every", "0"];
    runner_in(dir, &args).done();
    trained(&dir.join("threads"))
}

/// `None` where there is no MPI.
fn over_mpi(dir: &Path, plan: &Plan) -> Option<(Vec<String>, Tensors)> {
    write(dir, "plan.json", plan.to_json());
    let args = ["plan.json", "--out", "mpi", "--overwrite", "--save-every", "0"];
    mpirun_in(dir, plan.ranks(), &args)?.done();
    Some(trained(&dir.join("mpi")))
}

/// In which order a stage adds the gradients of micro-batches, if all stages do in the same one.
fn order_of_sums(schedule: &Schedule) -> Option<Vec<u32>> {
    let adds = |a: &&Action| matches!(a.kind, ActionKind::Backward | ActionKind::BackwardWeight);
    let of_stage = |stage: u32| -> Vec<Vec<u32>> {
        let of_lane = |lane: &Vec<Action>| -> Vec<u32> {
            let mine = lane.iter().filter(adds).filter(|a| a.stage.0 == stage);
            mine.map(|a| a.micro_batch.0).collect()
        };
        schedule.lanes.iter().map(of_lane).filter(|order| !order.is_empty()).collect()
    };
    let mut orders: Vec<Vec<u32>> = (0..schedule.stages()).flat_map(of_stage).collect();
    orders.dedup();
    match &orders[..] {
        [order] if order.len() == MICRO_BATCHES as usize => orders.pop(),
        _ => None,
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
    let expected = over_threads(&dir, &alone(case, &forth));
    let first: f64 = expected.0[0].parse().unwrap();
    let last: f64 = expected.0[STEPS as usize - 1].parse().unwrap();
    assert!(last < 0.99 * first, "{} learns: {first} .. {last}", case.name);
    let synchronous =
        ScheduleKind::ALL.into_iter().filter(|kind| kind.updates() == Updates::Synchronous);
    for kind in synchronous {
        let what = format!("{}, {kind}", case.name);
        let chunks = kind.placement().stages(1);
        let plan = case.plan(kind, if chunks > 1 { 2 * chunks } else { 4 });
        let found = over_threads(&dir, &plan);
        match order_of_sums(&plan.schedule.parse().unwrap()) {
            Some(order) if order == forth => same(&what, &found, &expected),
            Some(order) => same(&what, &found, &over_threads(&dir, &alone(case, &order))),
            None => assert_eq!(kind.placement(), Placement::TwoWay, "{what}: sums in no order"),
        }
        close(&what, &found.0, &expected.0);
        if let Some(by_mpi) = over_mpi(&dir, &plan) {
            same(&format!("{what}, mpirun"), &by_mpi, &found);
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// The same text of every loss, the same bits of every tensor.
#[track_caller]
fn same(what: &str, found: &(Vec<String>, Tensors), expected: &(Vec<String>, Tensors)) {
    assert_eq!(found.0, expected.0, "{what}");
    assert!(found.1.keys().eq(expected.1.keys()), "{what}: {:?}", found.1.keys());
    for (name, bits) in &found.1 {
        let off = bits.iter().zip(&expected.1[name]).filter(|(a, b)| a != b).count();
        assert_eq!(off, 0, "{what}: so many of {} elements of {name} differ", bits.len());
    }
}

/// All losses within [`TOLERANCE`].
#[track_caller]
fn close(what: &str, found: &[String], expected: &[String]) {
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (found, expected): (f64, f64) = (found.parse().unwrap(), expected.parse().unwrap());
        let off = (found / expected - 1.0).abs();
        assert!(off < TOLERANCE, "{what}, step {step}: {found} instead of {expected}");
    }
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
