//! Plans in an order that was made for them: never slower than the best schedule by name in the same memory.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Model};
use pipewright_core::predict::{AUTOMATIC, automatic_plan};
use pipewright_core::schedule::{Placement, ScheduleKind, Updates, check};
use pipewright_core::units::{Bytes, Nanos};
use proptest::prelude::*;

/// A dense network that is cut anywhere, on links between 1 and 100 GB/s.
fn draft(cuts: &[u32], micro_batches: u32, bandwidth: u64) -> Draft {
    let preset: Preset = "fc32:256".parse().unwrap();
    let mut cluster = Cluster::preset("dgx-a100").unwrap();
    cluster.local.bytes_per_sec = bandwidth as f64 * 1e9;
    let mut draft = Draft::new(Model::Preset(preset), cluster, cuts.to_vec());
    draft.micro_batches = micro_batches;
    draft.mini_batch = 64 * u64::from(micro_batches);
    draft
}

/// The largest arena and the step of every schedule by name that trains what one device trains.
fn named(draft: &Draft, lanes: u32) -> Vec<(Bytes, Nanos)> {
    let stages = draft.cuts.len() as u32 + 1;
    let kinds = ScheduleKind::ALL.into_iter().filter(|kind| {
        kind.lanes(stages) == Ok(lanes)
            && kind.updates() == Updates::Synchronous
            && kind.placement() != Placement::TwoWay
            && *kind != ScheduleKind::LoopedBfs { chunks: 2 }
    });
    let plans = kinds.filter_map(|schedule| Draft { schedule, ..draft.clone() }.plan().ok());
    let figures = |(_, prediction): (_, pipewright_core::predict::Prediction)| {
        let arena = prediction.expectation().arena.into_iter().max().unwrap();
        (arena, prediction.timeline.step)
    };
    plans.map(figures).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_named_schedule_is_faster_in_the_same_memory(
        places in prop::collection::btree_set(2u32..64, 1..6),
        two_chunks in any::<bool>(),
        micro_batches in 1u32..13,
        bandwidth in 1u64..100,
        room in 60u64..200,
    ) {
        let cuts: Vec<u32> = places.into_iter().collect();
        let stages = cuts.len() as u32 + 1;
        let lanes = if two_chunks && stages.is_multiple_of(2) { stages / 2 } else { stages };
        let mut draft = draft(&cuts, micro_batches, bandwidth);
        let all = named(&draft, lanes);
        // From too little memory for any of them to enough for all.
        let most = all.iter().map(|(arena, _)| arena.0).max().unwrap();
        draft.cluster.device.memory = Bytes(most * room / 120);
        let found = automatic_plan(&draft, lanes).unwrap();
        let memory = draft.cluster.device.memory;
        let arena = found.prediction.expectation().arena.into_iter().max().unwrap();
        let fitting = all.iter().filter(|(arena, _)| *arena <= memory).map(|(_, step)| *step);
        if let Some(least) = fitting.min() {
            prop_assert!(arena <= memory, "{} of {}", arena, memory);
            prop_assert!(found.prediction.timeline.step <= least);
            prop_assert!(found.named.is_some_and(|(_, step)| step <= least));
        }
        let (_, schedule) = found.plan.check().unwrap();
        prop_assert!(check(&schedule).is_ok());
        if let Some(bound) = found.bound.filter(|_| found.plan.schedule.name == AUTOMATIC) {
            prop_assert!(bound <= found.prediction.timeline.step);
        }
    }
}

#[test]
fn uneven_stages_gain_by_an_order_of_their_own() {
    let draft = draft(&[4, 30, 40], 12, 100);
    let found = automatic_plan(&draft, 4).unwrap();
    let (kind, step) = found.named.unwrap();
    println!("{kind} {step}, automatic {}", found.prediction.timeline.step);
    assert_eq!(automatic_plan(&draft, 4).unwrap().plan, found.plan, "deterministic");
    let error = automatic_plan(&draft, 3).unwrap_err().to_string();
    assert!(error.contains("4 stages") && error.contains("multiple of 3 lanes"), "{error}");
}
