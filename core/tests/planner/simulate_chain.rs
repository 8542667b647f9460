//! Steps from schedules alone against those of the programs that the same plans are lowered to.

use pipewright_core::cost::{Cluster, Costs, Halves, Link};
use pipewright_core::graph::presets::Preset;
use pipewright_core::graph::{Graph, GraphBuilder};
use pipewright_core::partition::uniform;
use pipewright_core::plan::{
    Communication, DataParallel, Draft, Inputs, Model, Optimizer, Plan, Sequence, Training, groups,
    lay_out, lower, training_graphs,
};
use pipewright_core::predict::{outline, predict};
use pipewright_core::schedule::{Schedule, ScheduleKind};
use pipewright_core::simulate::{Copies, StageCost, simulate, simulate_chain};
use pipewright_core::units::Nanos;
use proptest::prelude::*;

/// A chain with one layer a stage.
fn chain(stages: u32) -> (Graph, Vec<u32>) {
    let mut g = GraphBuilder::new("chain");
    g.layer("0");
    let mut x = g.input(vec![6]);
    let mut cuts = vec![];
    for i in 0..stages {
        x = g.linear(&format!("fc{i}"), x, 6);
        if i > 0 {
            cuts.push(x.0);
        }
    }
    g.loss(x, 6);
    (g.finish().unwrap(), cuts)
}

/// Whether the chain was simulated; if so, it was what the programs do.
fn same(inputs: &Inputs, costs: Option<&[StageCost]>) -> bool {
    let graphs = training_graphs(inputs);
    let costs: Vec<StageCost> = match costs {
        Some(costs) => costs.to_vec(),
        None => {
            let costs =
                Costs::new(inputs.graph, inputs.cluster, inputs.samples, inputs.training.precision);
            let costs = costs.with_backward(inputs.schedule.splits_backward());
            graphs.iter().map(|graph| StageCost::new(graph, &costs)).collect()
        }
    };
    let groups = groups(inputs);
    let data_parallel = inputs.data_parallel;
    let copies = Copies { data_parallel, groups: &groups, by_hosts: false };
    let places = lay_out(inputs, &graphs);
    let mut programs = lower(inputs, &graphs);
    let found = simulate_chain(inputs, &graphs, &places, &costs, copies);
    let truth = simulate(&programs, &costs, inputs.cluster, copies).unwrap();
    programs.iter_mut().for_each(|program| program.train.clear());
    assert_eq!(places, programs);
    let Some(found) = found else { return false };
    assert_eq!(found.messages, truth.messages);
    for (at, (ours, theirs)) in found.lanes.iter().zip(&truth.lanes).enumerate() {
        assert_eq!(ours.spans, theirs.spans, "lane {at}");
        assert_eq!(ours.asides, theirs.asides, "lane {at}");
        assert_eq!(ours, theirs, "lane {at}");
    }
    assert_eq!(found, truth);
    true
}

fn inputs<'a>(
    (graph, cuts): (&'a Graph, &'a [u32]),
    schedule: &'a Schedule,
    cluster: &'a Cluster,
    communication: &'a Communication,
    data_parallel: DataParallel,
) -> Inputs<'a> {
    Inputs {
        graph,
        cuts,
        schedule,
        samples: 2,
        data_parallel,
        communication,
        cluster,
        optimizer: Optimizer::default(),
        training: Training::default(),
        halves: Halves::Unpacked,
    }
}

fn stage_cost() -> impl Strategy<Value = StageCost> {
    [1u64..1000, 1u64..1000, 1u64..1000, 0u64..300].prop_map(|times| {
        let [forward, backward_input, backward_weight, update] = times.map(Nanos);
        StageCost { forward, backward_input, backward_weight, update }
    })
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let kinds = prop::sample::select(ScheduleKind::ALL.into_iter().collect::<Vec<_>>());
    let numbers = (kinds, prop::sample::select(vec![1u32, 4, 8, 12]), 1u32..25);
    let generate = |(kind, stages, m): (ScheduleKind, u32, u32)| kind.generate(stages, m).ok();
    numbers.prop_filter_map("numbers that the schedule can have", generate)
}

proptest! {
    #[test]
    fn a_chain_needs_no_programs(
        schedule in schedule(),
        costs in prop::collection::vec(stage_cost(), 12),
        latency in 0u64..800,
        seconds_per_gb in 0u64..40_000,
        replicas in 1u32..4,
        zero in 0u8..2,
    ) {
        let (graph, cuts) = chain(schedule.stages());
        let lanes = schedule.lanes.len() as u32;
        let mut cluster = Cluster::preset("dgx-a100").unwrap();
        let speed = 1e9 / (1e-9 + seconds_per_gb as f64);
        cluster.local = Link { latency_ns: Nanos(latency), bytes_per_sec: 4.0 * speed };
        cluster.network = Link { latency_ns: Nanos(3 * latency), bytes_per_sec: speed };
        (cluster.ranks_per_node, cluster.devices_per_node) = (2, 2);
        cluster.nodes = (lanes * replicas).div_ceil(2);
        let communication = Communication::default();
        let copies = DataParallel { zero, ..DataParallel::ddp(replicas) };
        let inputs = inputs((&graph, &cuts), &schedule, &cluster, &communication, copies);
        let stages = schedule.stages() as usize;
        let known = schedule.placement().is_some()
            && schedule.overlaps.iter().all(Vec::is_empty)
            && schedule.updates != pipewright_core::schedule::Updates::Stashed;
        prop_assert_eq!(same(&inputs, Some(&costs[..stages])), known);
    }
}

/// Whether plans of the preset are chains on every cluster and schedule.
fn is_chain(preset: Preset, stages: u32) -> bool {
    let graph = preset.graph().unwrap();
    let cuts = uniform(&graph, stages).unwrap();
    let communication = Communication::default();
    let plans = [(ScheduleKind::OneFOneB, 1), (ScheduleKind::GPipe, 2), (ScheduleKind::ZbH1, 1)];
    ["dgx-a100", "dgx-h100"].into_iter().all(|cluster| {
        let cluster = Cluster::preset(cluster).unwrap();
        plans.iter().all(|(kind, replicas)| {
            let schedule = kind.generate(stages, 12).unwrap();
            let parts = (&graph, cuts.as_slice());
            let copies = DataParallel::ddp(*replicas);
            same(&inputs(parts, &schedule, &cluster, &communication, copies), None)
        })
    })
}

#[test]
fn presets_are_chains_or_left_to_their_programs() {
    for preset in [Preset::Vgg16, Preset::Gpt3, Preset::Llama7b] {
        assert!(is_chain(preset, 4), "{preset}");
    }
    assert!(is_chain(Preset::Gpt3, 16), "the explorer's large example");
    // Skip connections cross its cuts.
    assert!(!is_chain(Preset::Unet { blocks: 6, channels: 72 }, 4));
    // Ranks share devices; sends take their lane's time.
    let shared = Cluster { devices_per_node: 1, ..Cluster::preset("dgx-a100").unwrap() };
    let blocking = Cluster::preset("reedbush-l").unwrap();
    let (graph, cuts) = chain(4);
    let schedule = ScheduleKind::OneFOneB.generate(4, 8).unwrap();
    let communication = Communication::default();
    for cluster in [shared, blocking] {
        let (parts, alone) = ((&graph, cuts.as_slice()), DataParallel::default());
        assert!(!same(&inputs(parts, &schedule, &cluster, &communication, alone), None));
    }
}

/// Chains, networks with skip connections, tensor groups, recomputation, orders that split and that stash.
#[test]
fn outlines_say_what_predictions_say() {
    let plan = |preset: Preset, kind, change: fn(&mut Plan)| {
        let cluster = Cluster::preset("dgx-a100").unwrap();
        let cuts = uniform(&preset.graph().unwrap(), 4).unwrap();
        let draft = Draft::new(Model::Preset(preset), cluster, cuts);
        let (mut plan, _) = Draft { schedule: kind, ..draft }.plan().unwrap();
        change(&mut plan);
        plan
    };
    let again = |plan: &mut Plan| {
        let (graph, schedule) = plan.check().unwrap();
        let graphs = training_graphs(&plan.inputs(&graph, &schedule));
        plan.recompute = graphs.iter().map(Sequence::full_in_each_part).collect();
    };
    let as_it_is = |_: &mut Plan| {};
    let unet = Preset::Unet { blocks: 6, channels: 72 };
    for plan in [
        plan(Preset::Vgg16, ScheduleKind::OneFOneB, as_it_is),
        plan(Preset::Vgg16, ScheduleKind::ZbH1, again),
        plan(unet, ScheduleKind::GPipe, as_it_is),
        plan(unet, ScheduleKind::PipeDream, as_it_is),
        plan(Preset::Llama7b, ScheduleKind::OneFOneB, |plan| plan.tensor = 2),
    ] {
        let (outline, truth) = (outline(&plan).unwrap(), predict(&plan).unwrap());
        assert_eq!(outline.timeline, truth.timeline);
        assert_eq!(outline.stages, truth.stages);
        assert_eq!(outline.expectation(), truth.expectation());
        assert_eq!(outline.exchanged.is_empty(), plan.tensor == 1);
        let is_part = |(part, whole): (&StageCost, &StageCost)| {
            Nanos::ZERO < part.forward && part.forward < whole.forward
        };
        assert!(outline.exchanged.iter().zip(&outline.stages).all(is_part));
        assert_eq!(Some(outline.peak()), truth.timeline.peak().map(|(_, bytes)| bytes));
    }
}
