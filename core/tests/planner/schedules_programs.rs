//! Estimates of schedules against the programs that the same schedules are lowered to.

use pipewright_core::cost::{Cluster, Halves, Link};
use pipewright_core::graph::{Graph, GraphBuilder};
use pipewright_core::plan::{
    Communication, DataParallel, DataParallelMode, Draft, Inputs, Model, Optimizer, Program,
    Training, lower, training_graphs,
};
use pipewright_core::predict::predict;
use pipewright_core::schedule::{Schedule, ScheduleKind, Updates};
use pipewright_core::simulate::{
    Copies, Footprint, Hop, Sends, StageCost, estimate, lanes_over_time, simulate,
};
use pipewright_core::units::{Bytes, Nanos};
use proptest::prelude::*;

const WIDTH: u64 = 6;
const SAMPLES: u64 = 2;

/// A chain with one layer a stage.
fn chain(stages: u32) -> (Graph, Vec<u32>) {
    let mut g = GraphBuilder::new("chain");
    g.layer("0");
    let mut x = g.input(vec![WIDTH]);
    let mut cuts = vec![];
    for i in 0..stages {
        x = g.linear(&format!("fc{i}"), x, WIDTH);
        if i > 0 {
            cuts.push(x.0);
        }
    }
    g.loss(x, WIDTH);
    (g.finish().unwrap(), cuts)
}

fn programs(schedule: &Schedule) -> Vec<Program> {
    let (graph, cuts) = chain(schedule.stages());
    let inputs = Inputs {
        graph: &graph,
        cuts: &cuts,
        schedule,
        samples: SAMPLES,
        data_parallel: DataParallel::default(),
        communication: &Communication::default(),
        cluster: &cluster(schedule.stages(), 0),
        optimizer: Optimizer::default(),
        training: Training::default(),
        halves: Halves::Unpacked,
    };
    lower(&inputs, &training_graphs(&inputs))
}

/// Two lanes a node, links of different lengths, a device for every lane.
fn cluster(lanes: u32, latency: u64) -> Cluster {
    let mut cluster = Cluster::preset("dgx-a100").unwrap();
    cluster.local = Link { latency_ns: Nanos(latency), bytes_per_sec: 1e30 };
    cluster.network = Link { latency_ns: Nanos(3 * latency), bytes_per_sec: 1e30 };
    (cluster.ranks_per_node, cluster.devices_per_node) = (2, 2);
    cluster.nodes = lanes.div_ceil(2);
    cluster
}

/// What each stage keeps, from the programs.
fn footprints(programs: &[Program], stages: u32) -> Vec<Footprint> {
    let mut footprints = vec![Footprint::default(); stages as usize];
    for stage in programs.iter().flat_map(|p| &p.stages) {
        footprints[stage.stage.index()] = Footprint {
            stash: stage.slots.bytes,
            forward: stage.transient_forward,
            backward: stage.transient_backward + stage.outbox.total(),
            ..Footprint::default()
        };
    }
    footprints
}

fn stage_cost() -> impl Strategy<Value = StageCost> {
    [1u64..1000, 1u64..1000, 1u64..1000, 0u64..300].prop_map(|times| {
        let [forward, backward_input, backward_weight, update] = times.map(Nanos);
        StageCost { forward, backward_input, backward_weight, update }
    })
}

/// Schedules with one route, pairs run one after the other. With stashing, programs update after
/// every micro-batch; estimates leave that out.
fn schedule() -> impl Strategy<Value = Schedule> {
    let kinds = ScheduleKind::ALL
        .into_iter()
        .filter(|kind| kind.generate(8, 16).unwrap().placement().is_some())
        .filter(|kind| kind.updates() != Updates::Stashed);
    let kinds = prop::sample::select(kinds.collect::<Vec<_>>());
    (kinds, prop::sample::select(vec![4u32, 8, 12]), 1u32..25).prop_filter_map(
        "numbers that the schedule can have",
        |(kind, stages, m)| {
            let mut schedule = kind.generate(stages, m).ok()?;
            schedule.overlaps.iter_mut().for_each(Vec::clear);
            Some(schedule)
        },
    )
}

proptest! {
    #[test]
    fn estimates_are_what_the_programs_do(
        schedule in schedule(),
        costs in prop::collection::vec(stage_cost(), 12),
        latency in 0u64..500,
    ) {
        let costs = &costs[..schedule.stages() as usize];
        let cluster = cluster(schedule.lanes.len() as u32, latency);
        let programs = programs(&schedule);
        let timeline = simulate(&programs, costs, &cluster, Copies::default()).unwrap();
        let footprints = footprints(&programs, schedule.stages());
        let bytes = vec![Bytes(4 * SAMPLES * WIDTH); costs.len()];
        let hop = |hop: Hop| {
            cluster.link(hop.from, hop.to).time(bytes[hop.boundary.index()])
        };
        let lanes = lanes_over_time(&schedule, costs, &footprints, Sends::Outbox, hop).unwrap();
        let found = estimate(&schedule, costs, &footprints, Sends::Outbox, hop).unwrap();
        prop_assert_eq!(found.makespan, timeline.step);
        for (index, (ours, theirs)) in lanes.iter().zip(&timeline.lanes).enumerate() {
            prop_assert_eq!(&ours.spans, &theirs.spans, "lane {}", index);
            // The programs' parameters lie below.
            let base = programs[index].persistent;
            let raised: Vec<_> = ours.memory.iter().map(|(at, held)| (*at, *held + base)).collect();
            prop_assert_eq!(&raised, &theirs.memory, "lane {}", index);
            prop_assert_eq!(found.lanes[index].busy, theirs.busy());
            prop_assert_eq!(found.lanes[index].peak + base, theirs.peak());
        }
        let crossing = |m: &&pipewright_core::timeline::Message| m.from != m.to;
        let messages = timeline.messages.iter().filter(crossing).count() as u64;
        prop_assert_eq!(found.messages, messages);
    }
}

#[test]
fn several_stages_a_lane_make_a_plan() {
    let (graph, cuts) = chain(8);
    let cluster = cluster(8, 100);
    for kind in [
        ScheduleKind::Interleaved { chunks: 2 },
        ScheduleKind::LoopedBfs { chunks: 2 },
        ScheduleKind::Hanayo { waves: 1 },
        ScheduleKind::DualPipeV,
    ] {
        let mut draft = Draft::new(Model::Graph(graph.clone()), cluster.clone(), cuts.clone());
        (draft.schedule, draft.mini_batch, draft.micro_batches) = (kind, 64, 16);
        let (plan, prediction) = draft.plan().unwrap();
        assert_eq!(plan.ranks(), 4, "{kind}");
        assert_eq!(prediction.programs.iter().map(|p| p.stages.len()).sum::<usize>(), 8);
        let read = pipewright_core::plan::Plan::from_json(&plan.to_json()).unwrap();
        assert_eq!(predict(&read).unwrap().timeline, prediction.timeline, "{kind}");
    }
}

#[test]
fn what_does_not_go_together_is_no_plan() {
    let (graph, cuts) = chain(4);
    let draft = |kind| {
        let mut draft = Draft::new(Model::Graph(graph.clone()), cluster(4, 100), cuts.clone());
        (draft.schedule, draft.mini_batch, draft.micro_batches) = (kind, 8, 8);
        draft
    };
    let error = |draft: Draft| draft.plan().unwrap_err().to_string();
    let two = ScheduleKind::Interleaved { chunks: 3 };
    assert!(error(draft(two)).contains("needs a multiple of 3"));
    let mut clipped = draft(ScheduleKind::PipeDream);
    clipped.training.clip_norm = Some(1.0);
    assert!(error(clipped).contains("under way, which rules out clipping"));
    let mut through_first = draft(ScheduleKind::GPipe);
    through_first.data_parallel =
        DataParallel { mode: DataParallelMode::Dp, ..DataParallel::ddp(2) };
    (through_first.mini_batch, through_first.micro_batches) = (16, 8);
    assert!(error(through_first).contains("this plan has 4"));
    for kind in [ScheduleKind::PipeDream, ScheduleKind::PipeDream2Bw] {
        let mut one_lane = draft(kind);
        one_lane.cuts.clear();
        one_lane.data_parallel =
            DataParallel { mode: DataParallelMode::Dp, ..DataParallel::ddp(2) };
        (one_lane.mini_batch, one_lane.micro_batches) = (16, 8);
        assert!(error(one_lane).contains("rules out data-parallel mode"), "{kind}");
    }
    let mut uneven = draft(ScheduleKind::GPipe);
    uneven.data_parallel = DataParallel::ddp(3);
    assert!(error(uneven).contains("on each of 3 replicas"));
}

#[test]
fn copies_of_stages_and_of_parameters_make_plans() {
    let (graph, cuts) = chain(4);
    for (kind, lanes, copies, versions) in [
        (ScheduleKind::DualPipe, 4, 2, 1),
        (ScheduleKind::Chimera, 4, 2, 1),
        (ScheduleKind::PipeDream, 4, 1, 4),
        (ScheduleKind::PipeDream2Bw, 4, 1, 2),
    ] {
        let mut draft = Draft::new(Model::Graph(graph.clone()), cluster(4, 100), cuts.clone());
        (draft.schedule, draft.mini_batch, draft.micro_batches) = (kind, 64, 16);
        let (plan, prediction) = draft.plan().unwrap();
        assert_eq!(plan.ranks(), lanes, "{kind}");
        let stages = prediction.programs.iter().map(|p| p.stages.len()).sum::<usize>();
        assert_eq!(stages, 4 * copies, "{kind}");
        assert_eq!(prediction.programs[0].stages[0].versions.count, versions, "{kind}");
        // Two copies of a stage are a group that sums gradients.
        assert_eq!(prediction.groups.is_empty(), copies == 1, "{kind}");
        assert!(prediction.groups.iter().all(|ranks| ranks.len() == 2));
    }
}
