//! Training with graphs is training without.

use super::emulated::Emulated;
use super::lazy::{Lazy, Seen};
use crate::common::{draft_of, networks, tensor_groups};
use crate::emulator;
use pipewright_core::cost::Halves;
use pipewright_core::graph::{Graph, Op};
use pipewright_core::plan::{DataParallel, DataParallelMode, Draft, Plan, Precision, Program};
use pipewright_core::predict::{Prediction, evaluation, predict_with};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::device::cuda::{Driver, Engine, GraphReplay, gpus};
use pipewright_runner::device::{Accelerator, Graphs};
use pipewright_runner::execute::{Rank, RunError};
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Makes the device of a rank.
pub(super) type Make<'a> = dyn Fn(&Program) -> Box<dyn Accelerator> + Sync + 'a;

/// One that does what it is asked for at once.
fn plain(program: &Program) -> Box<dyn Accelerator> {
    Box::new(Engine::new(Emulated::default(), program.tensors(), "a rank").unwrap())
}

fn recorded(program: &Program) -> Box<dyn Accelerator> {
    over(Lazy::default(), program)
}

pub(super) fn over(lazy: Lazy, program: &Program) -> Box<dyn Accelerator> {
    Box::new(Engine::new(GraphReplay::new(lazy), program.tensors(), "a rank").unwrap())
}

/// What a rank has of a training.
#[derive(Debug, PartialEq)]
struct Trained {
    /// Bits of the loss, and correct predictions, step by step.
    losses: Vec<(u64, u64)>,
    /// Bits of what lasts, at the end.
    persistent_state: Vec<(String, Vec<u32>)>,
}

/// The data of a plan and what the planner makes of it.
pub(super) fn prepared(plan: &Plan) -> (Prediction, DataSet) {
    let prediction = predict_with(plan, Halves::AsTheyLie).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    (prediction, data)
}

pub(super) fn persistent_state<T: Transport>(rank: &mut Rank<T>) -> Vec<(String, Vec<u32>)> {
    rank.fetch_persistent_state();
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    rank.persistent_state().iter().map(|t| (t.name.clone(), bits(rank.values(t)))).collect()
}

/// Trains on ranks that are threads; what each has, and what its device replayed.
fn train(plan: &Plan, make: &Make) -> Vec<(Trained, Option<Graphs>)> {
    let (prediction, data) = prepared(plan);
    let on_rank = |transport: LocalTransport, data: &DataSet| {
        let program = &prediction.programs[plan.mesh().place(transport.rank()).0.index()];
        let parts = (plan, &prediction.graph, program);
        let mut rank = Rank::on(make(program), parts, data, transport, 1);
        rank.connect(&prediction.groups).unwrap();
        let step = |step| rank.step(step).unwrap();
        let counts: Vec<_> = (0..plan.steps).map(step).collect();
        let losses = counts.iter().map(|counts| (counts.loss.to_bits(), counts.correct)).collect();
        (Trained { losses, persistent_state: persistent_state(&mut rank) }, rank.graphs())
    };
    std::thread::scope(|scope| {
        let start = |transport| scope.spawn(|| on_rank(transport, &data));
        let ranks: Vec<_> = local(plan.ranks(), 64).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Of network `graph`; as many steps as it takes until graphs of both sets of places are replayed.
fn draft(graph: usize, stages: u32) -> Draft {
    let mut draft = draft_of(networks::all().swap_remove(graph), stages);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (4, 2, 6);
    draft
}

#[track_caller]
fn alike(what: &str, plan: &Plan) {
    let (plainly, with_graphs) = (train(plan, &plain), train(plan, &recorded));
    for (rank, ((expected, _), (found, graphs))) in plainly.iter().zip(&with_graphs).enumerate() {
        assert_eq!(expected.losses, found.losses, "{what}: losses of rank {rank}");
        for ((name, expected), (_, found)) in
            expected.persistent_state.iter().zip(&found.persistent_state)
        {
            assert!(expected == found, "{what}: `{name}` of rank {rank}");
        }
        let graphs = graphs.as_ref().unwrap();
        assert!(graphs.captured > 0 && graphs.replayed > graphs.captured, "{what}: {graphs:?}");
        assert_eq!(graphs.why_not, None, "{what}");
    }
}

/// Every operation of the runner and every optimizer: dropout draws other numbers in each step, Adam has
/// other corrections, LARS and the rates' schedule other rates.
#[test]
fn every_operation() {
    if !emulator::is_there() {
        return;
    }
    let optimizers = ["sgd:lr=0.002,momentum=0.9,nesterov=true", "adamw:lr=0.001", "lars:lr=0.1"];
    for graph in 0..networks::all().len() {
        for stages in [1, 3] {
            let optimizer = optimizers[(graph + stages as usize) % 3];
            let mut draft = draft(graph, stages);
            (draft.mini_batch, draft.optimizer) = (2, optimizer.parse().unwrap());
            let what = format!("network {graph}, {stages} stages, {optimizer}");
            alike(&what, &draft.plan().unwrap().0);
        }
    }
}

/// Linear layers in eight bits: scales stay on the device, so nobody waits for them.
#[test]
fn products_in_fp8() {
    if !emulator::is_there() {
        return;
    }
    for stages in [1, 2] {
        let mut draft = draft(1, stages);
        draft.training.precision = Precision::Fp8;
        alike(&format!("fp8, {stages} stages"), &draft.plan().unwrap().0);
    }
}

#[test]
fn every_schedule() {
    if !emulator::is_there() {
        return;
    }
    let mut tried = 0;
    for kind in ScheduleKind::ALL {
        let mut draft = draft(2, kind.placement().stages(2));
        (draft.schedule, draft.micro_batches) = (kind, 4);
        if kind.generate(2, 4).is_ok() {
            alike(&kind.to_string(), &draft.plan().unwrap().0);
            tried += 1;
        }
    }
    assert!(tried > 12, "{tried}");
}

/// Sums over replicas, samples that the first replica hands out.
#[test]
fn replicas() {
    if !emulator::is_there() {
        return;
    }
    let first = DataParallel { mode: DataParallelMode::Dp, ..DataParallel::ddp(2) };
    for (data_parallel, stages) in [(DataParallel::ddp(2), 2), (first, 1)] {
        let mut draft = draft(2, stages);
        draft.mini_batch = 8;
        draft.data_parallel = data_parallel;
        alike(&format!("{data_parallel:?}"), &draft.plan().unwrap().0);
    }
}

/// Hosts wait for their devices at every sum within a pass; between two of them there are graphs.
#[test]
fn tensor_groups() {
    if !emulator::is_there() {
        return;
    }
    let draft = tensor_groups::all(6).remove(0).1;
    for slices in [false, true] {
        let plan = tensor_groups::divided(&draft, 2, slices).plan().unwrap().0;
        alike(&format!("slices {slices}"), &plan);
    }
}

/// A rank that is alone: after the first steps it asks for two graphs a step and for nothing else, the first
/// of which goes ahead, and the host waits once.
#[test]
fn two_graphs_a_step() {
    if !emulator::is_there() {
        return;
    }
    let plan = draft(0, 1).plan().unwrap().0;
    let (prediction, data) = prepared(&plan);
    let (parts, lazy) = ((&plan, &prediction.graph, &prediction.programs[0]), Lazy::default());
    let seen: Arc<Seen> = lazy.seen.clone();
    let device = over(lazy, &prediction.programs[0]);
    let mut rank = Rank::on(device, parts, &data, local(1, 64).remove(0), 1);
    rank.connect(&prediction.groups).unwrap();
    let mut after = vec![];
    for step in 0..8 {
        rank.step(step).unwrap();
        let Graphs { captured, replayed, .. } = rank.graphs().unwrap();
        let launches = seen.launches.swap(0, Ordering::Relaxed);
        after.push((captured, replayed, launches > 0));
        assert_eq!(seen.downloads.swap(0, Ordering::Relaxed), 1, "step {step}: of the losses");
    }
    // The first step uploads weights and tables besides. Then both sets of places are seen for the first
    // time, and for the second.
    let begin = [(0, 0, true), (0, 0, true), (0, 0, true), (2, 2, false), (4, 4, false)];
    let rest = (5..8).map(|step| (4, 2 * (step - 2), false));
    assert_eq!(after, begin.into_iter().chain(rest).collect::<Vec<_>>());
}

/// Evaluations between steps have graphs of their own, and steps find theirs again; samples that were on
/// their way for the next step are staged anew.
#[test]
fn evaluations_between_steps() {
    if !emulator::is_there() {
        return;
    }
    for stages in [1, 2] {
        let mut draft = draft(2, stages);
        draft.steps = 24;
        let plan = draft.plan().unwrap().0;
        let (prediction, data) = prepared(&plan);
        let evaluations = evaluation(&plan, Halves::AsTheyLie).unwrap();
        let on_rank = |transport: LocalTransport, make: &Make| {
            let lane = transport.rank() as usize;
            let parts = (&plan, &prediction.graph, &prediction.programs[lane]);
            let mut rank = Rank::on(make(parts.2), parts, &data, transport, 1);
            rank.connect(&prediction.groups).unwrap();
            let (mut losses, mut replays) = (vec![], vec![]);
            for step in 0..plan.steps {
                losses.push(rank.step(step).unwrap().loss.to_bits());
                let before = rank.graphs().map(|graphs| graphs.one_by_one);
                let rounds = if step % 3 == 2 { step % 2 + 1 } else { 0 };
                for round in 0..rounds {
                    let counts = rank.evaluate(&evaluations[lane], round).unwrap();
                    losses.push(counts.loss.to_bits());
                    losses.push(counts.correct);
                }
                replays.push((before, rank.graphs().map(|graphs| graphs.one_by_one)));
            }
            (losses, persistent_state(&mut rank), replays)
        };
        let [plainly, with_graphs] = [&plain as &Make, &recorded].map(|make| {
            std::thread::scope(|scope| {
                let start = |transport| scope.spawn(|| on_rank(transport, make));
                let ranks: Vec<_> = local(plan.ranks(), 64).into_iter().map(start).collect();
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
            })
        });
        for ((losses, values, _), (found, found_values, replays)) in
            plainly.iter().zip(&with_graphs)
        {
            assert_eq!(losses, found);
            assert!(values == found_values);
            // In the end nothing is new, neither in steps nor in evaluations.
            let (first, last) = (replays[replays.len() - 7], replays[replays.len() - 1]);
            assert_eq!(first.0, last.1, "{stages} stages: {replays:?}");
        }
    }
}

/// A device that makes no graphs trains all the same, and the record says why.
#[test]
fn graphs_that_are_refused() {
    if !emulator::is_there() {
        return;
    }
    let plan = draft(2, 1).plan().unwrap().0;
    let refusing = |program: &Program| over(Lazy { refuses: true, ..Lazy::default() }, program);
    let without = |program: &Program| -> Box<dyn Accelerator> {
        let recorder = GraphReplay::without_graphs(Lazy::default(), "--cuda-graphs off");
        Box::new(Engine::new(recorder, program.tensors(), "a rank").unwrap())
    };
    let expected = train(&plan, &plain).remove(0).0;
    let reasons: [(&Make, &str); 2] =
        [(&refusing, "lazy: capture a launch: it is meant to"), (&without, "--cuda-graphs off")];
    for (make, reason) in reasons {
        let (found, graphs) = train(&plan, make).remove(0);
        assert!(found == expected, "{reason}");
        let Graphs { captured, replayed, why_not, .. } = graphs.unwrap();
        assert_eq!((captured, replayed, why_not.as_deref()), (0, 0, Some(reason)));
    }
}

/// What a library does not do in a graph is handed over between two graphs, and the record names it.
#[test]
fn convolutions_that_are_refused() {
    if !emulator::is_there() {
        return;
    }
    let convolves = |graph: &Graph| graph.nodes().iter().any(|n| matches!(n.op, Op::Conv2d { .. }));
    let number = networks::all().iter().position(convolves).unwrap();
    let mut draft = draft(number, 1);
    (draft.micro_batches, draft.steps) = (1, 8);
    let plan = draft.plan().unwrap().0;
    let refusing =
        |program: &Program| over(Lazy { refuses_convolutions: true, ..Lazy::default() }, program);
    let expected = train(&plan, &plain).remove(0).0;
    let (found, graphs) = train(&plan, &refusing).remove(0);
    assert!(found == expected);
    let Graphs { captured, replayed, apart, why_not, .. } = graphs.unwrap();
    assert!(captured > 1 && replayed > captured, "{captured} captured, {replayed} replayed");
    assert!(
        !apart.is_empty() && apart.iter().all(|what| what.contains("convolution")),
        "{apart:?}"
    );
    assert_eq!(why_not, None);
}

/// A replay that fails ends the run like everything else that a device does not do.
#[test]
fn a_replay_that_fails() {
    if !emulator::is_there() {
        return;
    }
    let plan = draft(2, 1).plan().unwrap().0;
    let (prediction, data) = prepared(&plan);
    let parts = (&plan, &prediction.graph, &prediction.programs[0]);
    // There are two a step from the fourth step on.
    let lazy = Lazy { fails_after: Some(4), ..Lazy::default() };
    let device = over(lazy, &prediction.programs[0]);
    let mut rank = Rank::on(device, parts, &data, local(1, 64).remove(0), 1);
    rank.connect(&prediction.groups).unwrap();
    let steps: Vec<_> = (0..6).map(|step| rank.step(step)).collect();
    assert!(steps[..5].iter().all(Result::is_ok));
    let error = steps[5].as_ref().unwrap_err();
    assert!(matches!(error, RunError::Device { step: 5, .. }), "{error}");
    assert!(error.to_string().ends_with("lazy: replay: it is meant to"), "{error}");
}

/// Where there is a GPU: its graphs compute what its commands do one by one.
#[test]
fn on_a_gpu() {
    let Ok(gpus) = gpus() else {
        return pipewright::tools::refused("this machine has no GPU");
    };
    let driver = || Driver::open(&gpus[0]).unwrap();
    let with = |program: &Program| -> Box<dyn Accelerator> {
        let recorder = GraphReplay::new(driver());
        Box::new(Engine::new(recorder, program.tensors(), "a rank").unwrap())
    };
    let without = |program: &Program| -> Box<dyn Accelerator> {
        let recorder = GraphReplay::without_graphs(driver(), "to compare");
        Box::new(Engine::new(recorder, program.tensors(), "a rank").unwrap())
    };
    for graph in 0..networks::all().len() {
        for stages in [1, 3] {
            let mut draft = draft(graph, stages);
            (draft.steps, draft.optimizer) = (12, "adamw:lr=0.001".parse().unwrap());
            let plan = draft.plan().unwrap().0;
            let what = format!("network {graph}, {stages} stages");
            for ((expected, _), (found, graphs)) in
                train(&plan, &without).iter().zip(&train(&plan, &with))
            {
                assert!(expected == found, "{what}");
                let graphs = graphs.as_ref().unwrap();
                assert!(graphs.replayed > graphs.captured && graphs.captured > 0, "{graphs:?}");
                assert_eq!(graphs.why_not, None, "{what}");
            }
        }
    }
}
