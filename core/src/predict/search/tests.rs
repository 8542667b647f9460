//! Bounds are bounds, and what is found is what trying everything finds.

use super::*;
use crate::cost::Costs;
use crate::graph::presets::Preset;
use crate::graph::{Graph, Precision};
use crate::plan::{Draft, Model};
use crate::schedule::{Placement, ScheduleKind};

struct Case {
    preset: Preset,
    graph: Graph,
    cluster: Cluster,
}

impl Case {
    fn new(preset: Preset, cluster: &str) -> Self {
        let cluster = Cluster::preset(cluster).unwrap();
        Self { preset, graph: preset.graph().unwrap(), cluster }
    }

    fn work(&self, samples: u64) -> Workload {
        Workload::of(&self.graph, &Costs::new(&self.graph, &self.cluster, samples, Precision::F32))
    }

    fn space<'a>(&self, model: &'a (dyn Fn(u64) -> Workload + Sync), devices: u32) -> Space<'a> {
        Space {
            model,
            blocks: self.graph.layers().iter().map(|l| l.first_node.0).collect(),
            cluster: self.cluster.clone(),
            devices,
            memory: self.cluster.device.memory,
            mini_batch: 32,
            states: States::MOMENTUM,
            parameter_bytes: 4,
            fixed: Fixed::default(),
            encodings: usual_encodings(),
            seed: 1,
        }
    }
}

#[test]
fn no_choice_is_better_than_its_bound() {
    for (preset, cluster) in [(Preset::Vgg16, "dgx-a100"), (Preset::Resnet50, "reedbush-l")] {
        let case = Case::new(preset, cluster);
        let model = |samples| case.work(samples);
        let space = case.space(&model, 8);
        let (chains, candidates) = enumerate::candidates(&space).unwrap();
        let mut scored = 0;
        for candidate in candidates.iter().step_by(7) {
            let choice = candidate.choice.clone();
            let Some(found) = evaluate::evaluate(&space, &chains, choice) else { continue };
            let bound = candidate.bound;
            assert!(bound.covers(&found.figures()), "{:?}: {bound:?} {found}", candidate.choice);
            scored += 1;
        }
        assert!(scored > 300, "{scored}");
    }
}

#[test]
fn replicas_leave_room_for_fixed_micro_batches() {
    let case = Case::new(Preset::Vgg16, "dgx-a100");
    let model = |samples| case.work(samples);
    let mut space = case.space(&model, 32);
    // Eight replicas would fill the devices, and leave four samples each.
    space.fixed = Fixed { stages: Some(4), micro_batches: Some(16), ..Fixed::default() };
    let (_, candidates) = enumerate::candidates(&space).unwrap();
    assert!(candidates.iter().any(|c| c.choice.lanes == 4 && c.choice.replicas == 2));
    assert!(candidates.iter().all(|c| c.choice.replicas <= 2 && c.choice.micro_batches == 16));
    space.fixed.micro_batches = Some(5);
    let none = enumerate::candidates(&space).err().unwrap().to_string();
    assert!(none.contains("does not divide the mini-batch of 32"), "{none}");
}

#[test]
fn a_plain_choice_is_worth_what_its_plan_predicts() {
    let case = Case::new(Preset::Vgg16, "dgx-a100");
    let model = |samples| case.work(samples);
    let mut space = case.space(&model, 4);
    // Sums of gradients, which the search does not overlap with backward passes, are left out.
    let alone = Fixed { lanes: Some(4), replicas: Some(1), one_route: true, ..Fixed::default() };
    space.fixed = Fixed { recompute: Some(false), ..alone.plain() };
    let (chains, candidates) = enumerate::candidates(&space).unwrap();
    let mut compared = 0;
    for candidate in candidates.iter().step_by(5) {
        let choice = candidate.choice.clone();
        let Some(found) = evaluate::evaluate(&space, &chains, choice) else { continue };
        let choice = &found.choice;
        let first = |block: &u32| case.graph.layers()[*block as usize].first_node.0;
        let cuts = choice.starts.iter().map(first).collect();
        let mut draft = Draft::new(Model::Preset(case.preset), case.cluster.clone(), cuts);
        (draft.mini_batch, draft.micro_batches) = (32, choice.micro_batches);
        draft.schedule = choice.schedule;
        let step = draft.plan().unwrap().1.timeline.step;
        // The program also computes the loss on its last stage, and updates one tensor at a time.
        let error = found.step.secs() / step.secs() - 1.0;
        assert!(error.abs() < 0.01, "{}: {error}", choice.describe(&[]));
        compared += 1;
    }
    assert!(compared > 15, "{compared}");
}

#[test]
fn finds_what_trying_everything_finds() {
    let case = Case::new(Preset::Mlp4, "laptop");
    let model = |samples| case.work(samples);
    let space = case.space(&model, 4);
    let (chains, candidates) = enumerate::candidates(&space).unwrap();
    let score = |c: &Candidate| evaluate::evaluate(&space, &chains, c.choice.clone());
    let all = candidates.iter().filter_map(score).filter(|s| s.peak <= space.memory);
    let best = all.map(|s| s.step).min().unwrap();
    let mut search = Search::new(&space).unwrap();
    search.advance(1_000_000).unwrap();
    // Refinement also moves cuts, so it may be better than any listed choice.
    assert!(search.front().fastest().unwrap().step <= best);
    let (_, skipped) = search.counts();
    assert!(skipped > 0, "bounds skip something");
}

#[test]
fn the_same_seed_and_budget_give_the_same_and_more_is_never_worse() {
    let case = Case::new(Preset::Vgg16, "reedbush-l");
    let model = |samples| case.work(samples);
    let space = case.space(&model, 8);
    let run = |budgets: &[u64]| {
        let mut search = Search::new(&space).unwrap();
        for budget in budgets {
            search.advance(*budget).unwrap();
        }
        search.front().clone()
    };
    let (few, some, more) = (run(&[64]), run(&[512]), run(&[2048]));
    assert_eq!(some, run(&[512]));
    let fastest = |front: &Front| front.fastest().unwrap().step;
    assert!(fastest(&more) <= fastest(&some) && fastest(&some) <= fastest(&few));
}

#[test]
fn little_memory_means_recomputation_and_too_little_is_said() {
    let case = Case::new(Preset::Resnet50, "dgx-a100");
    let model = |samples| case.work(samples);
    let mut space = case.space(&model, 4);
    space.fixed = Fixed {
        lanes: Some(4),
        micro_batches: Some(8),
        replicas: Some(1),
        schedule: Some(ScheduleKind::OneFOneB),
        ..Fixed::default()
    };
    let (chains, candidates) = enumerate::candidates(&space).unwrap();
    let nothing_again = |c: &&Candidate| !c.choice.recompute.contains(&true);
    let choice = candidates.iter().find(nothing_again).unwrap().choice.clone();
    let roomy = evaluate::evaluate(&space, &chains, choice.clone()).unwrap();
    assert!(!roomy.choice.recompute.contains(&true));
    space.memory = Bytes(roomy.peak.0 - 1);
    let tight = evaluate::evaluate(&space, &chains, choice).unwrap();
    assert!(tight.choice.recompute.contains(&true));
    assert!(tight.step > roomy.step && tight.peak < roomy.peak, "{tight} {roomy}");
    space.memory = Bytes(1 << 20);
    let error = Search::new(&space).unwrap().advance(2000).unwrap_err().to_string();
    assert!(error.contains("it has 1.0 MiB"), "{error}");
}

#[test]
fn what_cannot_be_is_said() {
    let case = Case::new(Preset::Mlp4, "laptop");
    let model = |samples| case.work(samples);
    let why = |fixed: Fixed| {
        let space = Space { fixed: fixed.plain(), ..case.space(&model, 4) };
        Search::new(&space).err().unwrap().to_string()
    };
    let kind = |kind| Fixed { schedule: Some(kind), ..Fixed::default() };
    let cases = [
        (Fixed { lanes: Some(3), ..kind(ScheduleKind::Chimera) }, "it needs an even number"),
        (Fixed { ranks: Some(3), ..kind(ScheduleKind::DualPipe) }, "even number"),
        (Fixed { stages: Some(3), ..kind(ScheduleKind::ZbV) }, "it needs a multiple of 2"),
        (Fixed { ranks: Some(3), ..kind(ScheduleKind::ZbV) }, "zb-v on 3 lanes has 6 stages"),
        (Fixed { replicas: Some(8), ..Fixed::default() }, "= 8 ranks, there is room for 4"),
        (Fixed { replicas: Some(3), ..Fixed::default() }, "3 x 1 does not divide"),
        (Fixed { stages: Some(5), ..Fixed::default() }, "the network has 4 layers"),
    ];
    for (fixed, words) in cases {
        let found = why(fixed.clone());
        assert!(found.contains(words), "{fixed:?}: {found}");
    }
}

#[test]
fn ranks_are_lanes_times_replicas() {
    let case = Case::new(Preset::Mlp4, "laptop");
    let model = |samples| case.work(samples);
    let mut space = case.space(&model, 8);
    space.fixed = Fixed { ranks: Some(8), stages: Some(4), ..Fixed::default() }.plain();
    let (_, candidates) = enumerate::candidates(&space).unwrap();
    assert!(candidates.iter().all(|c| c.choice.lanes * c.choice.replicas == 8));
    let four_by_two = |c: &Candidate| (c.choice.lanes, c.choice.replicas) == (4, 2);
    assert!(candidates.iter().any(four_by_two));
}

/// Where sums are quick, two replicas are as fast as stages that run both ways on cuts that were made for one: these are
/// predicted all the same, for with cuts of their own they may be the fastest.
#[test]
fn replicas_do_not_hide_pipelines_that_run_both_ways() {
    let mut case = Case::new("resnet18:32".parse().unwrap(), "laptop");
    case.cluster.local.bytes_per_sec *= 10.0;
    let model = |samples| case.work(samples);
    let mut space = case.space(&model, 2);
    let fixed = Fixed { ranks: Some(2), encoding: Some(None), ..Fixed::default() };
    (space.fixed, space.memory) = (fixed.plain(), Bytes(1 << 60));
    let mut search = Search::new(&space).unwrap();
    search.advance(1200).unwrap();
    let both_ways = |scored: &Scored| scored.choice.schedule.placement() == Placement::TwoWay;
    assert!(search.shortlist(48).iter().any(both_ways));
}

/// Estimates only say which choices are predicted: how far they are off for those that are, and that
/// plain data parallelism, which shapes that look better must not hide, is always among them.
#[test]
fn the_shortlist_holds_every_kind_of_pipeline() {
    for (preset, cluster) in [
        (Preset::Gpt2, "dgx-a100"),
        (Preset::Vgg16, "reedbush-l"),
        (Preset::Resnet50, "dgx-a100"),
        (Preset::Mlp4, "laptop"),
    ] {
        let case = Case::new(preset, cluster);
        let model = |samples| case.work(samples);
        let mut space = case.space(&model, case.cluster.devices() as u32);
        let open = Fixed { encoding: Some(None), recompute: Some(false), ..Fixed::default() };
        (space.fixed, space.memory) = (open.plain(), Bytes(1 << 60));
        let mut search = Search::new(&space).unwrap();
        search.advance(4000).unwrap();
        let list = search.shortlist(48);
        assert!(list.is_sorted_by_key(|scored| scored.step), "{preset:?} {cluster}");
        let alone = list.iter().filter(|scored| scored.choice.lanes == 1);
        assert!(alone.count() > 0, "{preset:?} {cluster}: no data parallelism");
        let draft = |scored: &Scored| {
            let first = |block: &u32| case.graph.layers()[*block as usize].first_node.0;
            let cuts = scored.choice.starts.iter().map(first).collect();
            let mut draft = Draft::new(Model::Preset(case.preset), case.cluster.clone(), cuts);
            (draft.mini_batch, draft.micro_batches) = (32, scored.choice.micro_batches);
            draft.schedule = scored.choice.schedule;
            draft.data_parallel.replicas = scored.choice.replicas;
            draft
        };
        let plans = crate::predict::plans(list.iter().map(draft).collect());
        for (scored, made) in list.iter().zip(plans) {
            let step = made.unwrap().1.timeline.step;
            let off = step.secs() / scored.step.secs();
            let words = scored.choice.describe(&[]);
            assert!((0.5..2.5).contains(&off), "{preset:?} {cluster} {words}: {off}");
        }
    }
}
