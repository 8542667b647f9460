//! Plans for whoever is there: they pass every check, keep the mini-batch and come out the same each
//! time.

use pipewright_core::cost::Cluster;
use pipewright_core::elastic::{BatchRule, ReplanError, Replanned, replan, sizes};
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition::uniform;
use pipewright_core::plan::{DataParallel, Draft, Model, Plan, RateRule, Resized, ScheduleText};
use pipewright_core::predict::predict;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use proptest::prelude::*;

fn draft(stages: u32, replicas: u32, mini_batch: u64, micro_batches: u32) -> Draft {
    let model: Preset = "fc32:64".parse().expect("a preset");
    let cuts = uniform(&model.graph().expect("a network"), stages).expect("few stages");
    let mut draft = Draft::new(Model::Preset(model), Cluster::preset("dgx-a100").unwrap(), cuts);
    (draft.mini_batch, draft.micro_batches) = (mini_batch, micro_batches);
    draft.data_parallel = DataParallel::ddp(replicas);
    draft
}

/// 4 stages x 2 replicas.
fn plan() -> Plan {
    draft(4, 2, 96, 4).plan().expect("a plan").0
}

fn keep(plan: &Plan, ranks: u32) -> Replanned {
    replan(plan, ranks, BatchRule::Keep).unwrap_or_else(|e| panic!("{ranks} ranks: {e}"))
}

#[test]
fn the_whole_size_gives_the_very_plan() {
    assert_eq!(keep(&plan(), 8).plan, plan());
    assert_eq!(keep(&plan(), 9).plan, plan(), "one rank is left over");
}

#[test]
fn replicas_come_and_go_and_stages_stay() {
    for (ranks, replicas, micro_batches) in
        [(7, 1, 8), (4, 1, 8), (12, 3, 4), (16, 4, 2), (23, 4, 2)]
    {
        let Replanned { plan: found, kept_stages } = keep(&plan(), ranks);
        assert!(kept_stages);
        assert_eq!((found.cuts, found.mini_batch), (plan().cuts, 96));
        let division = (found.data_parallel.replicas, found.micro_batches);
        assert_eq!(division, (replicas, micro_batches), "{ranks} ranks");
    }
}

#[test]
fn too_few_ranks_for_the_stages_cut_the_network_anew() {
    for ranks in 1..4 {
        let found = keep(&plan(), ranks);
        assert!(!found.kept_stages && found.plan.lanes() < 4);
        assert_eq!((found.plan.ranks(), found.plan.mini_batch), (ranks, 96));
    }
}

#[test]
fn tensor_groups_are_left_whole() {
    let mut draft = draft(2, 2, 96, 4);
    draft.tensor = 2;
    let plan = draft.plan().unwrap().0;
    assert_eq!(plan.ranks(), 8);
    for (ranks, (lanes, replicas)) in
        [(8, (2, 2)), (7, (2, 1)), (4, (2, 1)), (3, (1, 1)), (2, (1, 1)), (13, (2, 3))]
    {
        let found = keep(&plan, ranks).plan;
        assert_eq!((found.lanes(), found.data_parallel.replicas), (lanes, replicas), "{ranks}");
        assert_eq!((found.tensor, found.mini_batch), (2, 96));
        assert_eq!(predict(&found).unwrap().expectation(), found.prediction);
    }
    assert_eq!(
        replan(&plan, 1, BatchRule::Keep).unwrap_err().to_string(),
        "a tensor group of 2 ranks is left whole, and 1 of them are there"
    );
    let all = sizes(&plan, 13, BatchRule::Keep).unwrap();
    let ranks: Vec<u32> = all.iter().map(|size| size.ranks).collect();
    assert_eq!(ranks, [2, 4, 8, 12]);
}

#[test]
fn stages_that_do_not_fit_alone_are_not_put_together() {
    let mut plan = plan();
    let whole = keep(&plan, 1).plan.prediction.arena[0];
    plan.cluster.device.memory = Bytes(whole.0 - 1);
    plan.recompute.clear();
    let two = keep(&plan, 2).plan;
    assert!(two.prediction.arena.iter().all(|arena| *arena < whole), "{:?}", two.prediction);
    plan.cluster.device.memory = Bytes(1000);
    let error = replan(&plan, 3, BatchRule::Keep).unwrap_err();
    assert!(matches!(error, ReplanError::Nothing { ranks: 3, .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("no plan for 3 ranks: ") && text.contains("a device has 1000 B"),
        "{text}"
    );
    assert_eq!(replan(&plan, 0, BatchRule::Keep).unwrap_err(), ReplanError::NoRank);
}

#[test]
fn an_order_of_ones_own_keeps_its_numbers() {
    let mut plan = plan();
    plan.schedule.name = "mine".into();
    assert_eq!(keep(&plan, 8).plan, plan);
    let own = ScheduleText::of(ScheduleKind::GPipe, 4, 8).unwrap();
    // Half as many replicas need twice as many micro-batches, which the name does not tell.
    let found = keep(&plan, 7);
    assert!(!found.kept_stages, "{:?}", found.plan.schedule.name);
    plan.schedule = ScheduleText { lanes: own.lanes, name: "1f1b".into() };
    (plan.micro_batches, plan.mini_batch) = (8, 96);
    assert!(!keep(&plan, 4).kept_stages, "the name says what the lanes do not");
}

#[test]
fn updates_with_every_micro_batch_leave_one_size() {
    let mut draft = draft(2, 2, 32, 4);
    draft.schedule = ScheduleKind::PipeDream;
    let plan = draft.plan().expect("a plan").0;
    assert_eq!((keep(&plan, 4).plan, keep(&plan, 9).plan), (plan.clone(), plan.clone()));
    let error = replan(&plan, 3, BatchRule::Keep).unwrap_err().to_string();
    assert!(error.contains("updates parameters with every micro-batch"), "{error}");
    let ranks = |ranks| {
        let sizes = sizes(&plan, ranks, BatchRule::Keep).unwrap();
        sizes.iter().map(|size| size.ranks).collect::<Vec<_>>()
    };
    assert_eq!((ranks(3), ranks(9)), (vec![], vec![4]));
}

#[test]
fn schedules_with_conditions_get_smaller_micro_batches() {
    let mut draft = draft(4, 2, 96, 4);
    draft.schedule = ScheduleKind::Interleaved { chunks: 2 };
    let plan = draft.plan().expect("2 lanes of 2 chunks").0;
    assert_eq!(plan.lanes(), 2);
    for ranks in 1..=12 {
        let found = keep(&plan, ranks).plan;
        assert_eq!(found.schedule.name, "interleaved:2", "{ranks}");
        found.check().unwrap();
    }
}

#[test]
fn the_learning_rate_follows_a_mini_batch_that_changes() {
    let scaled = |plan: &Plan, ranks, rate| {
        replan(plan, ranks, BatchRule::Scale(rate)).unwrap_or_else(|e| panic!("{e}")).plan
    };
    let half = scaled(&plan(), 4, RateRule::Linear);
    assert_eq!((half.mini_batch, half.micro_batches, half.rate_factor()), (48, 4, 0.5));
    let resized = Resized { mini_batch: 96, rate: RateRule::Linear };
    assert_eq!((half.resized, half.samples_total()), (Some(resized), plan().samples_total()));
    // All else that says what is computed is the job's own.
    assert_eq!((half.optimizer, half.training), (plan().optimizer, plan().training));
    assert_eq!(half.steps, plan().steps);

    let four = scaled(&plan(), 32, RateRule::SquareRoot);
    assert_eq!((four.mini_batch, four.rate_factor()), (384, 2.0));
    assert_eq!(scaled(&plan(), 12, RateRule::None).rate_factor(), 1.0);
    // The size that the job was planned with, and back to it.
    assert_eq!(scaled(&plan(), 8, RateRule::Linear), plan());
    let back = scaled(&half, 8, RateRule::Linear);
    assert_eq!((back.mini_batch, back.resized, back.rate_factor()), (96, None, 1.0));
}

#[test]
fn sizes_are_all_that_there_are() {
    let sizes = sizes(&plan(), 17, BatchRule::Keep).unwrap();
    let ranks: Vec<u32> = sizes.iter().map(|size| size.ranks).collect();
    assert_eq!(ranks, [1, 2, 3, 4, 8, 12, 16]);
    assert!(sizes.iter().all(|size| size.mini_batch == 96 && size.step_ns.is_some()));
    for size in sizes {
        assert_eq!(keep(&plan(), size.ranks).size(), size);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn whatever_comes_out_is_a_plan(
        stages in 1u32..6, replicas in 1u32..5, micro_batches in 1u32..6, samples in 1u64..5,
        ranks in 1u32..24, kind in 0usize..4, scale: bool,
    ) {
        let mini_batch = samples * u64::from(replicas * micro_batches);
        let mut draft = draft(stages, replicas, mini_batch, micro_batches);
        draft.schedule = [
            ScheduleKind::OneFOneB, ScheduleKind::GPipe, ScheduleKind::ZbH1, ScheduleKind::PipeDream2Bw,
        ][kind];
        let Ok((plan, _)) = draft.plan() else { return Ok(()) };
        let rule = if scale { BatchRule::Scale(RateRule::Linear) } else { BatchRule::Keep };
        let Ok(found) = replan(&plan, ranks, rule) else { return Ok(()) };
        let new = found.plan;
        prop_assert!(new.ranks() <= ranks);
        prop_assert!(scale || new.mini_batch == mini_batch);
        prop_assert!(new.samples() <= plan.samples());
        prop_assert_eq!(predict(&new).unwrap().expectation(), new.prediction.clone());
        let read = Plan::from_json(&new.to_json()).unwrap();
        // Numbers with many digits are read to within their last bit.
        prop_assert_eq!(Plan { prediction: new.prediction.clone(), ..read }, new.clone());
        prop_assert_eq!(new.samples_total(), plan.samples_total());
        prop_assert_eq!(replan(&plan, ranks, rule).unwrap().plan, new);
    }
}

/// Expert groups are as many replicas as those that are there fall into evenly.
#[test]
fn expert_groups_follow_the_replicas() {
    let model = "transformer:layers=2,hidden=32,heads=4,sequence=8,vocabulary=53,experts=4";
    let model = Model::Preset(model.parse().unwrap());
    let mut draft = Draft::new(model, Cluster::preset("dgx-a100").unwrap(), vec![]);
    (draft.mini_batch, draft.micro_batches) = (96, 2);
    draft.data_parallel = DataParallel::ddp(4).with_experts(4);
    let plan = draft.plan().unwrap().0;
    for (ranks, experts) in [(1, 1), (2, 2), (3, 1), (4, 4), (6, 2), (8, 4)] {
        let found = keep(&plan, ranks).plan.data_parallel;
        assert_eq!((found.replicas, found.expert_parallel), (ranks, experts), "{ranks} ranks");
    }
}
