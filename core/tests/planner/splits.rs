//! The best split: never slower than the balanced one, never below its bound, and what all splits say.

use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Precision;
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition::balanced;
use pipewright_core::plan::{Draft, Model, ScheduleText};
use pipewright_core::predict::{BestSplit, Borders, USUAL, best_split, steady};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::{Bytes, Nanos};
use proptest::prelude::*;

fn draft(model: &str, cluster: &str, micro_batches: u32) -> Draft {
    let preset: Preset = model.parse().unwrap();
    let cluster = Cluster::preset(cluster).unwrap();
    let mut draft = Draft::new(Model::Preset(preset), cluster, vec![]);
    draft.micro_batches = micro_batches;
    draft.mini_batch = 2 * u64::from(micro_batches);
    draft
}

fn best(draft: &Draft, kind: ScheduleKind, stages: u32) -> BestSplit {
    let order = ScheduleText::of(kind, stages, draft.micro_batches).unwrap();
    best_split(draft, &order, Borders::Nodes, USUAL).unwrap()
}

/// The step of a split, as a plan's prediction has it.
fn step(draft: &Draft, kind: ScheduleKind, cuts: &[u32]) -> Nanos {
    let draft = Draft { cuts: cuts.to_vec(), schedule: kind, ..draft.clone() };
    let (plan, prediction) = draft.plan().unwrap();
    let full = steady(&plan, &prediction.timeline).unwrap();
    full.map_or(prediction.timeline.step, |full| full.step)
}

#[test]
fn every_schedule_gets_cuts_that_are_no_slower() {
    for kind in ScheduleKind::ALL {
        let stages = kind.placement().stages(2);
        for (model, cluster) in [("resnet18:64", "dgx-1-p100"), ("vgg16:32", "laptop")] {
            let draft = draft(model, cluster, 8);
            let found = best(&draft, kind, stages);
            assert_eq!(found, best(&draft, kind, stages), "deterministic");
            assert_eq!(found.cuts.len() as u32 + 1, stages);
            assert!(found.step <= found.balanced, "{model}, {kind}: {found:?}");
            assert!(found.bound <= found.step && found.bound.0 > 0, "{model}, {kind}: {found:?}");
            assert_eq!(step(&draft, kind, &found.cuts), found.step, "{model}, {kind}");
        }
    }
}

/// All ways to cut `nodes` nodes into so many stages.
fn all_cuts(nodes: u32, stages: u32) -> Vec<Vec<u32>> {
    let mut all = vec![vec![]];
    for _ in 1..stages {
        let longer = |cuts: &Vec<u32>| {
            let first = cuts.last().map_or(1, |last| last + 1);
            let cuts = cuts.clone();
            (first..nodes).map(move |cut| [&cuts[..], &[cut]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

#[test]
fn no_split_at_all_is_below_the_bound_and_few_are_faster() {
    for (model, kind, stages) in [
        ("digits-cnn", ScheduleKind::OneFOneB, 3),
        ("digits-cnn", ScheduleKind::ZbH1, 3),
        ("digits-cnn", ScheduleKind::GPipe, 4),
        ("mlp4", ScheduleKind::Interleaved { chunks: 2 }, 4),
        ("caffenet-mini", ScheduleKind::OneFOneB, 3),
    ] {
        for cluster in ["dgx-a100", "laptop"] {
            let draft = draft(model, cluster, 6);
            let nodes = draft.model.graph().unwrap().nodes().len() as u32;
            let found = best(&draft, kind, stages);
            let least = all_cuts(nodes, stages).iter().map(|cuts| step(&draft, kind, cuts)).min();
            let least = least.unwrap();
            assert!(found.bound <= least, "{model}, {kind}: bound {}, {least}", found.bound);
            let off = found.step.secs() / least.secs();
            assert!(off < 1.015, "{model}, {kind} on {cluster}: {} where {least} is", found.step);
        }
    }
}

#[test]
fn what_fits_comes_before_what_is_fast() {
    let mut draft = draft("resnet18:64", "dgx-a100", 4);
    let free = best(&draft, ScheduleKind::OneFOneB, 4);
    let with = |draft: &Draft, cuts: &[u32]| {
        let draft = Draft { cuts: cuts.to_vec(), ..draft.clone() };
        let arenas = draft.plan().unwrap().1.expectation().arena;
        arenas.into_iter().max().unwrap()
    };
    let even = {
        let graph = draft.model.graph().unwrap();
        let costs = Costs::new(&graph, &draft.cluster, 2, Precision::F32);
        let cuts = balanced(&graph, &costs, 4).unwrap();
        assert_eq!(free.balanced, step(&draft, ScheduleKind::OneFOneB, &cuts));
        with(&draft, &cuts)
    };
    assert!(free.fits && free.balanced_fits);
    draft.cluster.device.memory = Bytes(even.0 * 9 / 10);
    let tight = best(&draft, ScheduleKind::OneFOneB, 4);
    assert!(tight.fits && !tight.balanced_fits, "{tight:?}");
    assert!(with(&draft, &tight.cuts) <= draft.cluster.device.memory);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pipeline(
        model in prop::sample::select(vec!["fc32:64", "resnet18:32", "vgg16:32", "googlenet-mini"]),
        cluster in prop::sample::select(vec!["dgx-a100", "dgx-1-p100", "laptop", "reedbush-l"]),
        kind in prop::sample::select(ScheduleKind::ALL.to_vec()),
        lanes in 1u32..5,
        micro_batches in 1u32..9,
    ) {
        let draft = draft(model, cluster, micro_batches);
        let stages = kind.placement().stages(lanes);
        let Ok(order) = ScheduleText::of(kind, stages, micro_batches) else { return Ok(()) };
        let Ok(found) = best_split(&draft, &order, Borders::Nodes, USUAL / 10) else { return Ok(()) };
        prop_assert!(found.bound <= found.step && found.step <= found.balanced, "{:?}", found);
    }
}
