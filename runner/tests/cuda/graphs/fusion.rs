//! Chains of computations done together train to the bits of computations done one by one.

use super::emulated::Emulated;
use super::lazy::Lazy;
use super::training::{Make, persistent_state, prepared};
use crate::common::recompute::{at_random, just_in_time, recomputing};
use crate::common::{chains, draft_of};
use crate::emulator;
use pipewright_core::cost::Halves;
use pipewright_core::graph::Graph;
use pipewright_core::plan::{BatchNorm, Draft, Plan, Precision, Program};
use pipewright_core::predict::evaluation;
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::data::DataSet;
use pipewright_runner::device::Accelerator;
use pipewright_runner::device::cuda::kernels::ImageOrder;
use pipewright_runner::device::cuda::{Driver, Engine, GraphReplay, gpus};
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local};

fn one_by_one(program: &Program) -> Box<dyn Accelerator> {
    let engine = Engine::new(Emulated::default(), program.tensors(), "a rank").unwrap();
    Box::new(engine.without_fusion())
}

fn last_one_by_one(program: &Program) -> Box<dyn Accelerator> {
    let engine = Engine::new(Emulated::default(), program.tensors(), "a rank").unwrap();
    Box::new(engine.without_fusion().with_images(ImageOrder::ChannelsLast))
}

fn last_together(program: &Program) -> Box<dyn Accelerator> {
    let engine = Engine::new(Emulated::default(), program.tensors(), "a rank").unwrap();
    Box::new(engine.with_images(ImageOrder::ChannelsLast))
}

fn last_in_graphs(program: &Program) -> Box<dyn Accelerator> {
    let recorder = GraphReplay::new(Lazy::default());
    let engine = Engine::new(recorder, program.tensors(), "a rank").unwrap();
    Box::new(engine.with_images(ImageOrder::ChannelsLast))
}

fn together(program: &Program) -> Box<dyn Accelerator> {
    Box::new(Engine::new(Emulated::default(), program.tensors(), "a rank").unwrap())
}

fn in_graphs(program: &Program) -> Box<dyn Accelerator> {
    let recorder = GraphReplay::new(Lazy::default());
    Box::new(Engine::new(recorder, program.tensors(), "a rank").unwrap())
}

/// By rank: losses of all steps and of an evaluation after each, and all that lasts.
type Trained = Vec<(Vec<u64>, Vec<(String, Vec<u32>)>)>;

fn train(plan: &Plan, make: &Make) -> Trained {
    let (prediction, data) = prepared(plan);
    let evaluations = evaluation(plan, Halves::AsTheyLie).unwrap();
    let on_rank = |transport: LocalTransport, data: &DataSet| {
        let lane = transport.rank() as usize;
        let parts = (plan, &prediction.graph, &prediction.programs[lane]);
        let mut rank = Rank::on(make(parts.2), parts, data, transport, 1);
        rank.connect(&prediction.groups).unwrap();
        let mut losses = vec![];
        for step in 0..plan.steps {
            losses.push(rank.step(step).unwrap().loss.to_bits());
            losses.push(rank.evaluate(&evaluations[lane], 0).unwrap().loss.to_bits());
        }
        (losses, persistent_state(&mut rank))
    };
    std::thread::scope(|scope| {
        let start = |transport| scope.spawn(|| on_rank(transport, &data));
        let ranks: Vec<_> = local(plan.ranks(), 64).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn draft(graph: Graph, stages: u32, precision: Precision) -> Draft {
    let mut draft = draft_of(graph, stages);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (4, 2, 2);
    draft.optimizer = "sgd:lr=0.01,momentum=0.9".parse().unwrap();
    draft.training.precision = precision;
    draft
}

#[track_caller]
fn alike(what: &str, plan: &Plan, makes: [&Make; 2]) {
    let [expected, found] = makes.map(|make| train(plan, make));
    for (rank, ((losses, values), (own, found))) in expected.iter().zip(&found).enumerate() {
        assert!(losses.iter().all(|loss| f64::from_bits(*loss).is_finite()), "{what}: {losses:?}");
        assert_eq!(losses, own, "{what}: losses of rank {rank}");
        for ((name, expected), (_, found)) in values.iter().zip(found) {
            assert!(expected == found, "{what}: `{name}` of rank {rank}");
        }
    }
}

#[test]
fn every_chain() {
    if !emulator::is_there() {
        return;
    }
    for graph in chains::all() {
        for (stages, precision) in
            [(1, Precision::F32), (2, Precision::Bf16), (3, Precision::F32), (1, Precision::F16)]
        {
            let what = format!("{}, {stages} stages, {precision:?}", graph.name());
            let plan = draft(graph.clone(), stages, precision).plan().unwrap().0;
            alike(&what, &plan, [&one_by_one, &together]);
            alike(&format!("{what}, NHWC"), &plan, [&last_one_by_one, &last_together]);
        }
    }
}

/// What is computed again, schedules that split the backward pass, statistics of the whole mini-batch.
#[test]
fn whatever_a_plan_asks_for() {
    if !emulator::is_there() {
        return;
    }
    for graph in chains::all() {
        let name = graph.name().to_string();
        let mut draft = draft(graph, 2, Precision::Bf16);
        draft.training.batch_norm = BatchNorm::Deferred;
        let plan = draft.clone().plan().unwrap().0;
        for (how, plan) in [
            ("just in time", recomputing(&plan, just_in_time)),
            ("at random", recomputing(&plan, at_random(3))),
        ] {
            alike(&format!("{name}, {how}"), &plan, [&one_by_one, &together]);
            let what = format!("{name}, {how}, NHWC");
            alike(&what, &plan, [&last_one_by_one, &last_together]);
        }
        (draft.schedule, draft.micro_batches) = (ScheduleKind::ZbH1, 4);
        alike(&format!("{name}, split"), &draft.plan().unwrap().0, [&one_by_one, &together]);
    }
}

/// As graphs, on a device that does everything as late as it may.
#[test]
fn chains_in_graphs() {
    if !emulator::is_there() {
        return;
    }
    for graph in chains::all() {
        let mut draft = draft(graph.clone(), 1, Precision::F32);
        draft.steps = 6;
        let plan = draft.plan().unwrap().0;
        alike(graph.name(), &plan, [&one_by_one, &in_graphs]);
        alike(&format!("{}, NHWC", graph.name()), &plan, [&last_one_by_one, &last_in_graphs]);
    }
}

/// Where there is a GPU: with chains, without, to the bit.
#[test]
fn on_a_gpu() {
    let Ok(gpus) = gpus() else {
        return pipewright::tools::refused("this machine has no GPU");
    };
    let engine = |program: &Program| {
        let recorder = GraphReplay::new(Driver::open(&gpus[0]).unwrap());
        Engine::new(recorder, program.tensors(), "a rank").unwrap()
    };
    let with = |program: &Program| -> Box<dyn Accelerator> { Box::new(engine(program)) };
    let without =
        |program: &Program| -> Box<dyn Accelerator> { Box::new(engine(program).without_fusion()) };
    for graph in chains::all() {
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            for stages in [1, 3] {
                let mut draft = draft(graph.clone(), stages, precision);
                draft.steps = 8;
                let what = format!("{}, {stages} stages, {precision:?}", graph.name());
                alike(&what, &draft.plan().unwrap().0, [&without, &with]);
            }
        }
    }
}
