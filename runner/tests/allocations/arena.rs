//! Memory is planned, not discovered: what a rank allocates is what the simulation says, to the
//! byte, and training allocates nothing more.
//!
//! The allocator watches the thread of the rank, but for what `gemm` takes.

use crate::allocator::{held, our_allocations};
use crate::common::recompute::{at_random, just_in_time, recomputing};
use crate::common::{draft, draft_of, networks};
use pipewright_core::graph::presets::{PRESETS, Preset};
use pipewright_core::graph::{Graph, Op};
use pipewright_core::plan::{
    BatchNorm, DataParallel, Draft, Model, Plan, Precision, Program, StageProgram,
};
use pipewright_core::predict::{Prediction, predict};
use pipewright_core::schedule::{ScheduleKind, Updates};
use pipewright_core::units::Bytes;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::local;
use std::collections::BTreeSet;

/// What a rank may hold besides tensors: the record of its last 8 steps, 112 bytes an instruction
/// and step, and some lists.
fn overhead(program: &Program) -> u64 {
    let divided = |stage: &StageProgram| stage.buckets.iter().any(|b| b.divided.is_some());
    let stages = program.stages.iter().filter(|stage| divided(stage));
    // A rank's pieces of parameters that are divided, in vectors that grow.
    let pieces = stages.map(|stage| 2 * 112 * stage.params.len() as u64).sum::<u64>();
    8 * 112 * program.train.len() as u64 + pieces + 4096
}

/// A draft of small mini-batches.
fn small(mut draft: Draft, schedule: ScheduleKind, mini_batch: u64) -> Draft {
    draft.schedule = schedule;
    (draft.mini_batch, draft.micro_batches) = (mini_batch, 4);
    draft
}

/// Every family of operations.
fn families() -> Vec<(String, Model)> {
    let graph = |graph: Graph| (graph.name().to_string(), Model::Graph(graph));
    let preset = |name: &str| (name.to_string(), Model::Preset(name.parse().unwrap()));
    let presets = [
        "resnet18:32",
        "transformer:layers=2,hidden=32,heads=4,sequence=16,vocabulary=50,tied",
        "transformer:layers=2,hidden=32,heads=4,kv=2,sequence=16,vocabulary=50,gated",
    ];
    networks::all().into_iter().map(graph).chain(presets.map(preset)).collect()
}

/// Clipping, deferred statistics, half the bytes, two replicas.
fn with_features(mut draft: Draft) -> Draft {
    draft.training.clip_norm = Some(0.5);
    draft.training.batch_norm = BatchNorm::Deferred;
    draft.training.precision = Precision::Bf16;
    draft.data_parallel = DataParallel::ddp(2);
    draft
}

fn data(plan: &Plan, prediction: &Prediction) -> DataSet {
    open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap()
}

/// Numbers of stages that the layers of a model suffice for.
fn stage_counts(preset: Preset) -> impl Iterator<Item = u32> {
    let layers = preset.graph().unwrap().layers().len() as u32;
    [1, 2, 4, 8].into_iter().filter(move |stages| *stages <= layers)
}

/// The same for a draft, and again with recomputation.
fn ranks_hold_what_is_predicted(what: &str, draft: Draft) {
    let plan = draft.plan().unwrap().0;
    ranks_of_plan_hold(what, &plan);
    ranks_of_plan_hold(&format!("{what}, again"), &recomputing(&plan, at_random(1)));
}

/// Makes every rank of a plan, one after the other.
fn ranks_of_plan_hold(what: &str, plan: &Plan) {
    let what = format!("{what}, {} stages, {}", plan.stages(), plan.schedule.name);
    let prediction = predict(plan).unwrap();
    let data = data(plan, &prediction);
    let handles = prediction.programs.iter().map(|p| p.handles).max().unwrap();
    let transports = local(plan.ranks(), handles as usize);
    for (index, transport) in transports.into_iter().enumerate() {
        let what = format!("{what}, rank {index}");
        let (lane, _) = plan.mesh().place(index as u32);
        let program = &prediction.programs[lane.index()];
        // Ranks that share devices have rows of their own.
        let by_rank = prediction.timeline.lanes.len() == plan.ranks() as usize;
        let row = if by_rank { index } else { lane.index() };
        let predicted = prediction.timeline.lanes[row].arena.0;
        let before = held();
        let rank = Rank::new((plan, &prediction.graph, program), &data, transport, 1);
        let grown = (held() - before) as u64;
        assert_eq!(rank.arena_bytes(), predicted, "{what}");
        assert_eq!(plan.prediction.arena[lane.index()].0, predicted, "{what}");
        assert!(grown >= predicted, "{what}: {grown} bytes of {predicted}");
        let most = predicted + overhead(program);
        assert!(grown <= most, "{what}: {grown} bytes, at most {most}");
        drop(rank);
        assert!(held() <= before, "{what}: memory stays behind");
    }
}

fn all_splits(preset: Preset) {
    for stages in stage_counts(preset) {
        for schedule in ScheduleKind::STRAIGHT {
            let draft = small(draft(preset, stages), schedule, 4);
            ranks_of_plan_hold(&preset.to_string(), &draft.plan().unwrap().0);
        }
    }
}

#[test]
fn large_networks() {
    // VGG16 needs 1.7 GB for its parameters alone: one after the other.
    all_splits(Preset::Vgg16);
    all_splits(Preset::Resnet50);
}

#[test]
fn small_networks() {
    for preset in PRESETS {
        match preset {
            // At the paper's width it needs 9 GB.
            Preset::Fc32 { .. } => all_splits(Preset::Fc32 { width: 200 }),
            Preset::Mlp4 | Preset::DigitsCnn => all_splits(preset),
            // Large, as those above, or without kernels here.
            _ => {}
        }
    }
}

/// A plan of each family of operations under every schedule that it can have.
fn every_plan() -> Vec<(String, ScheduleKind, Draft)> {
    let mut all = vec![];
    for (name, model) in families() {
        for schedule in ScheduleKind::ALL {
            let graph = model.graph().unwrap();
            let tied = graph.nodes().iter().any(|n| matches!(n.op, Op::TiedLinear { .. }));
            if tied && schedule.updates() != Updates::Synchronous {
                // No such plan exists.
                continue;
            }
            let draft = small(draft_of(graph, schedule.placement().stages(2)), schedule, 8);
            all.push((name.clone(), schedule, draft));
        }
    }
    all
}

/// Whatever they keep in flight.
#[test]
fn families_of_operations() {
    for (name, schedule, draft) in every_plan() {
        if schedule.updates() == Updates::Synchronous {
            ranks_hold_what_is_predicted(&name, with_features(draft.clone()));
        }
        ranks_hold_what_is_predicted(&name, draft);
    }
}

/// Replicas that divide what the optimizer keeps.
#[test]
fn divided_updates() {
    for (name, schedule, draft) in every_plan() {
        let both_ways = matches!(schedule, ScheduleKind::Chimera | ScheduleKind::DualPipe);
        let mut gradients = dividing(draft.clone());
        gradients.data_parallel.zero = 2;
        ranks_hold_what_is_predicted(&format!("{name}, zero 1"), dividing(draft));
        if !both_ways {
            ranks_hold_what_is_predicted(&format!("{name}, zero 2"), gradients);
        }
    }
}

/// AdamW among two replicas that divide what it keeps, in buckets of few parameters.
fn dividing(mut draft: Draft) -> Draft {
    draft.optimizer = "adamw".parse().unwrap();
    draft.data_parallel = DataParallel { bucket: Bytes(3000), ..DataParallel::zero1(2) };
    draft
}

/// The ranks of tensor groups, under every schedule, with replicas and without.
#[test]
fn tensor_groups() {
    for (name, model) in families() {
        let graph = model.graph().unwrap();
        let tied = graph.nodes().iter().any(|n| matches!(n.op, Op::TiedLinear { .. }));
        if graph.shard(2).is_err() {
            continue;
        }
        for schedule in ScheduleKind::ALL {
            let synchronous = schedule.updates() == Updates::Synchronous;
            if tied && !synchronous {
                continue;
            }
            let draft = draft_of(graph.clone(), schedule.placement().stages(2));
            let mut draft = small(draft, schedule, 8);
            draft.tensor = 2;
            if graph.divided(2, true).is_ok() {
                let sliced = Draft { sequence_parallel: true, ..draft.clone() };
                ranks_hold_what_is_predicted(&format!("{name}, slices"), sliced);
            }
            if synchronous {
                let name = format!("{name}, groups with features");
                ranks_hold_what_is_predicted(&name, with_features(draft.clone()));
            }
            ranks_hold_what_is_predicted(&format!("{name}, groups"), draft);
        }
    }
}

/// The names of all operations, from the schema of plan files.
#[test]
fn families_are_all_operations() {
    let schema = schemars::schema_for!(Op).to_value();
    let kinds = schema["oneOf"].as_array().unwrap().iter();
    let of_kind = |kind: &serde_json::Value| kind["properties"]["op"]["const"].clone();
    let all: BTreeSet<String> =
        kinds.map(|kind| of_kind(kind).as_str().unwrap().to_string()).collect();
    let graphs = families().into_iter().map(|(_, model)| model.graph().unwrap());
    let op = |op: &Op| serde_json::to_value(op).unwrap()["op"].as_str().unwrap().to_string();
    let used: BTreeSet<String> =
        graphs.flat_map(|g| g.nodes().iter().map(|n| op(&n.op)).collect::<Vec<_>>()).collect();
    let missing: Vec<&String> = all.difference(&used).collect();
    assert_eq!(missing, ["opaque"], "what is never executed; {} are used", used.len());
}

/// What `rank` allocates in later steps.
fn later_steps<T: Transport>(mut rank: Rank<T>) -> u64 {
    for step in 0..2 {
        rank.step(step).unwrap();
    }
    our_allocations(|| {
        for step in 2..5 {
            rank.step(step).unwrap();
        }
    })
}

fn allocates_nothing(what: &str, draft: Draft) {
    let plan = draft.plan().unwrap().0;
    steps_of_plan_allocate_nothing(what, &plan);
    let again = recomputing(&plan, just_in_time);
    steps_of_plan_allocate_nothing(&format!("{what}, again"), &again);
}

fn steps_of_plan_allocate_nothing(what: &str, plan: &Plan) {
    let what = format!("{what}, {} stages, {}", plan.stages(), plan.schedule.name);
    let prediction = predict(plan).unwrap();
    let data = data(plan, &prediction);
    let handles = prediction.programs.iter().map(|p| p.handles).max().unwrap();
    std::thread::scope(|scope| {
        for (index, transport) in (0..).zip(local(plan.ranks(), handles as usize)) {
            let (prediction, data, what) = (&prediction, &data, &what);
            scope.spawn(move || {
                let (lane, _) = plan.mesh().place(index);
                let parts = (plan, &prediction.graph, &prediction.programs[lane.index()]);
                let mut rank = Rank::new(parts, data, transport, 1);
                rank.connect(&prediction.groups).unwrap();
                let count = later_steps(rank);
                assert_eq!(count, 0, "{what}, rank {index}");
            });
        }
    });
}

#[test]
fn steps_allocate_nothing() {
    for preset in [Preset::DigitsCnn, Preset::Fc32 { width: 64 }] {
        for (stages, schedule) in
            [1, 2, 4].into_iter().flat_map(|s| ScheduleKind::STRAIGHT.map(|kind| (s, kind)))
        {
            let draft = small(draft(preset, stages), schedule, 16);
            allocates_nothing(&preset.to_string(), draft);
        }
    }
}

#[test]
fn steps_of_all_families_allocate_nothing() {
    for (name, model) in families() {
        for (schedule, stages) in [(ScheduleKind::OneFOneB, 2), (ScheduleKind::ZbV, 4)] {
            let draft = small(draft_of(model.graph().unwrap(), stages), schedule, 8);
            allocates_nothing(&format!("{name} with features"), with_features(draft.clone()));
            allocates_nothing(&name, draft);
        }
    }
}

#[test]
fn steps_of_divided_updates_allocate_nothing() {
    for (name, model) in families() {
        for (schedule, stages) in [(ScheduleKind::OneFOneB, 2), (ScheduleKind::ZbV, 4)] {
            let draft = small(draft_of(model.graph().unwrap(), stages), schedule, 8);
            for zero in 1..=2 {
                let what = format!("{name}, zero {zero}");
                let mut plain = dividing(draft.clone());
                plain.data_parallel.zero = zero;
                let mut featured = plain.clone();
                featured.training.clip_norm = Some(0.5);
                allocates_nothing(&format!("{what}, clipped"), featured);
                allocates_nothing(&what, plain);
            }
        }
    }
}

#[test]
fn steps_of_tensor_groups_allocate_nothing() {
    let divided = families().into_iter().filter(|(_, m)| m.graph().unwrap().shard(2).is_ok());
    for (name, model) in divided {
        for (schedule, stages) in [(ScheduleKind::OneFOneB, 2), (ScheduleKind::ZbV, 4)] {
            let mut draft = small(draft_of(model.graph().unwrap(), stages), schedule, 8);
            draft.tensor = 2;
            let what = format!("{name}, groups");
            allocates_nothing(&format!("{what} with features"), with_features(draft.clone()));
            if model.graph().unwrap().divided(2, true).is_ok() {
                let sliced = Draft { sequence_parallel: true, ..draft.clone() };
                allocates_nothing(&format!("{name}, slices"), sliced);
            }
            allocates_nothing(&what, draft);
        }
    }
}

/// Replicas that divide experts, under every schedule that sums gradients at the end: memory is as planned, and a step
/// allocates nothing.
#[test]
fn expert_groups() {
    let preset = "transformer:layers=4,hidden=16,heads=4,sequence=8,vocabulary=29,gated,experts=4";
    let graph = preset.parse::<Preset>().unwrap().graph().unwrap();
    let synchronous = |kind: &ScheduleKind| kind.updates() == Updates::Synchronous;
    for schedule in ScheduleKind::ALL.into_iter().filter(synchronous) {
        let draft = draft_of(graph.clone(), schedule.placement().stages(2));
        let mut draft = small(draft, schedule, 8);
        draft.data_parallel = DataParallel::ddp(2).with_experts(2);
        ranks_hold_what_is_predicted("experts", draft.clone());
        if let ScheduleKind::OneFOneB | ScheduleKind::ZbV = schedule {
            let data_parallel = draft.data_parallel;
            let features = Draft { data_parallel, ..with_features(draft.clone()) };
            allocates_nothing("experts, features", features);
            allocates_nothing("experts", draft);
        }
    }
}

#[test]
fn the_counter_counts() {
    let (mut block, before) = (vec![], held());
    assert_eq!(our_allocations(|| block = std::hint::black_box(vec![1.0f32; 9])), 1);
    assert_eq!(held() - before, 36);
    drop(block);
    assert_eq!(held(), before);
}
