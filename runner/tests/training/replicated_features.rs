//! Dropout, clipping, deferred batch normalisation and bf16 in replicas of a pipeline.
//!
//! Replicas add the gradients of their own micro-batches before they are summed over replicas, so
//! the bits are not those of one pipeline. What is the same to the last bit, with two replicas
//! because a sum of two does not depend on their order:
//! - the training, however each replica is divided into stages, under every schedule that adds
//!   gradients in the order of micro-batches;
//! - the training by threads and by processes, by all-reduce and through the first replica.
//!
//! A table that two stages share is summed over four ranks, in the order in which the transport
//! does it: there losses are within rounding instead.
//!
//! What a sample sees is the same under any number of replicas: before the first update the losses
//! differ by rounding in f64 alone, for which every dropout mask must be the same, and later ones
//! by what rounding in f32 becomes.

use crate::common::bits::{Trained, order_of_sums};
use crate::common::{draft_of, networks, scratch};
use pipewright_core::graph::Graph;
use pipewright_core::plan::{BatchNorm, DataParallel, DataParallelMode, Draft, Plan, Precision};
use pipewright_core::schedule::{ScheduleKind, Updates};
use std::collections::BTreeMap;
use std::path::Path;

/// Of all replicas together: one pipeline has four, each of two replicas two.
const MICRO_BATCHES: u32 = 4;

/// A network and how it is trained.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    graph: fn() -> Graph,
    precision: Precision,
    /// Largest relative difference of a loss to that of one pipeline.
    tolerance: f64,
    /// Whether two stages share a table.
    shares: bool,
}

impl Case {
    fn draft(&self, stages: u32, replicas: u32) -> Draft {
        let mut draft = draft_of((self.graph)(), stages);
        (draft.mini_batch, draft.micro_batches) = (16, MICRO_BATCHES / replicas);
        (draft.schedule, draft.steps) = (ScheduleKind::GPipe, 6);
        draft.data_parallel = DataParallel::ddp(replicas);
        draft.optimizer = "sgd:lr=0.01,momentum=0.9,weight_decay=0.001".parse().unwrap();
        draft.training.clip_norm = Some(0.5);
        draft.training.batch_norm = BatchNorm::Deferred;
        draft.training.precision = self.precision;
        draft
    }

    /// The same bits where stages share nothing.
    fn compare(&self, what: &str, found: &Trained, expected: &Trained) {
        match self.shares {
            true => found.is_near(what, expected, self.tolerance),
            false => found.is(what, expected),
        }
    }

    fn plan(&self, stages: u32, replicas: u32) -> Plan {
        self.draft(stages, replicas).plan().unwrap().0
    }
}

/// Running statistics of a stage's second holder are saved under its rank, which depends on the
/// number of lanes; with two replicas there is one of each.
fn without_ranks(mut trained: Trained) -> Trained {
    let free = |(name, bits): (String, Vec<u32>)| match name.split_once("@rank-") {
        Some((of, _)) => (format!("{of}@other"), bits),
        None => (name, bits),
    };
    trained.tensors = trained.tensors.into_iter().map(free).collect::<BTreeMap<_, _>>();
    trained
}

/// Two replicas, divided in every way, against two replicas of one stage.
fn divided(case: &Case, dir: &Path, expected: &Trained) {
    let m = MICRO_BATCHES / 2;
    let forth: Vec<u32> = (0..m).collect();
    let mut tried = 0;
    for (kind, lanes) in ScheduleKind::ALL.into_iter().flat_map(|kind| [(kind, 2), (kind, 4)]) {
        let stages = kind.placement().stages(lanes);
        let Ok(schedule) = kind.generate(stages, m) else { continue };
        let in_order = order_of_sums(&schedule).is_some_and(|order| order == forth);
        if kind.updates() != Updates::Synchronous || !in_order {
            continue;
        }
        let mut draft = case.draft(stages, 2);
        draft.schedule = kind;
        let found = Trained::over_threads(dir, &draft.plan().unwrap().0);
        let what = format!("{}, {kind} on {lanes} lanes, 2 replicas", case.name);
        case.compare(&what, &without_ranks(found), expected);
        tried += 1;
    }
    assert!(tried >= 10, "{tried}");
}

fn check(case: &Case) {
    let dir = scratch(&format!("replicated-{}", case.name));
    let one = Trained::over_threads(&dir, &case.plan(1, 1));
    for replicas in [2, 4] {
        let what = format!("{}, {replicas} replicas", case.name);
        let found = Trained::over_threads(&dir, &case.plan(1, replicas));
        found.is_near(&what, &one, case.tolerance);
        let first = |trained: &Trained| trained.losses[0].parse::<f64>().unwrap();
        let off = (first(&found) / first(&one) - 1.0).abs();
        assert!(off < 1e-14, "{what}, before the first update: {off:e}");
    }
    let two = Trained::over_threads(&dir, &case.plan(1, 2));
    if let Some(found) = Trained::over_mpi(&dir, &case.plan(1, 2)) {
        found.is(&format!("{}, mpirun", case.name), &two);
    }
    let two_by_two = without_ranks(Trained::over_threads(&dir, &case.plan(2, 2)));
    if let Some(found) = Trained::over_mpi(&dir, &case.plan(2, 2)) {
        let what = format!("{}, 2 x 2, mpirun", case.name);
        case.compare(&what, &without_ranks(found), &two_by_two);
    }
    through_first(case, &dir, &two);
    divided(case, &dir, &without_ranks(two));
    std::fs::remove_dir_all(dir).ok();
}

/// The first replica sums, updates and hands out: it alone has running statistics and state.
fn through_first(case: &Case, dir: &Path, expected: &Trained) {
    let mut draft = case.draft(1, 2);
    draft.data_parallel.mode = DataParallelMode::Dp;
    let found = Trained::over_threads(dir, &draft.plan().unwrap().0);
    let mut of_first = expected.clone();
    of_first.tensors.retain(|name, _| !name.contains("@rank-"));
    found.is(&format!("{}, through the first", case.name), &of_first);
}

const IMAGES: Case = Case {
    name: "images",
    graph: networks::images,
    precision: Precision::F32,
    tolerance: 1e-6,
    shares: false,
};

#[test]
fn images() {
    check(&IMAGES);
}

/// A rounding in f32 now and then moves a value to the next bf16, which is 0.4 % away.
#[test]
fn images_in_bf16() {
    check(&Case { name: "images-bf16", precision: Precision::Bf16, tolerance: 1e-3, ..IMAGES });
}

/// With a table that the first and the last stage share.
#[test]
fn sequence() {
    check(&Case { name: "sequence", graph: networks::sequence, shares: true, ..IMAGES });
}
