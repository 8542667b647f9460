//! Ranks whose device has memory of its own train as others do, to the bit, whatever a plan asks for: all
//! that the host has to do with tensors, messages, samples, sums, checkpoints, gets and leaves the bytes
//! where they belong.

mod found;
mod image_layouts;
pub mod processor;
mod tensor_groups;

use crate::common::recompute::{at_random, just_in_time, recomputing};
use crate::common::{chains, draft_of, networks};
use pipewright_core::compress::Reduction;
use pipewright_core::cost::Halves;
use pipewright_core::plan::{
    BatchNorm, Communication, Data, DataParallel, DataParallelMode, Draft, Edges, Plan, Precision,
};
use pipewright_core::predict::{predict, predict_with};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::execute::{Fusion, Measured, Rank, RunError, merge};
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local};
use processor::Distant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a rank has after each step: loss, and all that lasts.
type Steps = Vec<(u64, Vec<(String, Vec<u32>)>)>;

/// Trains on ranks that are threads, on their own processor or on distant ones; what each has after each
/// step, and bytes copied between memories.
fn train(plan: &Plan, distant: bool) -> (Vec<Steps>, u64) {
    let halves = if distant { Halves::AsTheyLie } else { Halves::Unpacked };
    let prediction = predict_with(plan, halves).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let copied = Arc::new(AtomicU64::new(0));
    let on_rank = |transport: LocalTransport, data: &DataSet| {
        let program = &prediction.programs[plan.mesh().place(transport.rank()).0.index()];
        let parts = (plan, &prediction.graph, program);
        let mut rank = match distant {
            false => Rank::new(parts, data, transport, 1),
            true => {
                let device = Distant::new(program.tensors(), copied.clone());
                Rank::on(Box::new(device), parts, data, transport, 1)
            }
        };
        rank.connect(&prediction.groups).unwrap();
        let step = |step| {
            let loss = rank.step(step).unwrap().loss;
            rank.fetch_persistent_state();
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
            let persistent_state = rank.persistent_state();
            (
                loss.to_bits(),
                persistent_state.iter().map(|t| (t.name.clone(), bits(rank.values(t)))).collect(),
            )
        };
        (0..plan.steps).map(step).collect()
    };
    let ranks = std::thread::scope(|scope| {
        let start = |transport| scope.spawn(|| on_rank(transport, &data));
        let ranks: Vec<_> = local(plan.ranks(), 64).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    (ranks, copied.load(Ordering::Relaxed))
}

fn draft(graph: usize, stages: u32) -> Draft {
    let mut draft = draft_of(networks::all().swap_remove(graph), stages);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 2, 3);
    draft
}

#[track_caller]
fn alike(what: &str, plan: &Plan) {
    let ((here, _), (there, copied)) = (train(plan, false), train(plan, true));
    assert!(copied > 0, "{what}: samples and losses at least");
    for (rank, (here, there)) in here.iter().zip(&there).enumerate() {
        for (step, (here, there)) in here.iter().zip(there).enumerate() {
            assert_eq!(here.0, there.0, "{what}: loss of step {step}, rank {rank}");
            for ((name, here), (_, there)) in here.1.iter().zip(&there.1) {
                assert!(here == there, "{what}: `{name}` after step {step}, rank {rank}");
            }
        }
    }
}

#[test]
fn every_operation() {
    for graph in 0..networks::all().len() {
        for stages in [1, 3] {
            let plan = draft(graph, stages).plan().unwrap().0;
            alike(&format!("network {graph}, {stages} stages"), &plan);
        }
    }
}

/// Values that a chain of computations hands on are no numbers in memory, and nobody reads them.
#[test]
fn what_is_handed_on_is_not_read() {
    for graph in chains::all() {
        for (stages, precision) in [(1, Precision::F32), (3, Precision::Bf16)] {
            let mut draft = draft_of(graph.clone(), stages);
            (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, 2);
            draft.training.precision = precision;
            let what = format!("{}, {stages} stages", graph.name());
            let plan = draft.clone().plan().unwrap().0;
            alike(&what, &plan);
            alike(&format!("{what}, just in time"), &recomputing(&plan, just_in_time));
            alike(&format!("{what}, at random"), &recomputing(&plan, at_random(7)));
            (draft.schedule, draft.micro_batches) = (ScheduleKind::ZbH1, 4);
            alike(&format!("{what}, split"), &draft.plan().unwrap().0);
        }
    }
}

#[test]
fn every_schedule() {
    let mut tried = 0;
    for kind in ScheduleKind::ALL {
        let mut draft = draft(0, kind.placement().stages(2));
        (draft.schedule, draft.micro_batches) = (kind, 4);
        if kind.generate(2, 4).is_ok() {
            alike(&kind.to_string(), &draft.plan().unwrap().0);
            tried += 1;
        }
    }
    assert!(tried > 12, "{tried}");
}

#[test]
fn replicas_by_every_way_of_gradients() {
    let small = DataParallel { bucket: Bytes(1 << 10), ..DataParallel::ddp(2) };
    let first = DataParallel { mode: DataParallelMode::Dp, ..DataParallel::ddp(2) };
    for data_parallel in [DataParallel::ddp(2), small, first] {
        for gradients in ["fp32", "fp8-e5m2", "table:4", "one-bit+feedback"] {
            let through_first = data_parallel.mode == DataParallelMode::Dp;
            if through_first && gradients != "fp32" {
                continue;
            }
            let mut draft = draft(0, if through_first { 1 } else { 2 });
            draft.data_parallel = data_parallel;
            let gradients: Reduction = gradients.parse().unwrap();
            draft.communication = Communication { gradients, ..Communication::default() };
            alike(&format!("{data_parallel:?} {gradients}"), &draft.plan().unwrap().0);
        }
    }
}

/// Encoded messages, two bytes a value, shared tables, clipping, statistics of the whole mini-batch.
#[test]
fn whatever_else_a_plan_asks_for() {
    for graph in [0, 1] {
        let mut draft = draft(graph, 3);
        for precision in [Precision::Bf16, Precision::F16] {
            draft.training.precision = precision;
            alike(&format!("{precision:?}"), &draft.clone().plan().unwrap().0);
        }
        draft.training.precision = Precision::F32;
        let encoded = Edges { within: "fp8-e4m3".parse().unwrap(), ..Edges::default() };
        draft.communication.edges = encoded;
        alike("encoded messages", &draft.clone().plan().unwrap().0);
        draft.training.clip_norm = Some(0.1);
        draft.training.skip_nonfinite = Some(2);
        draft.training.batch_norm = BatchNorm::Deferred;
        draft.optimizer = "lars:lr=0.1".parse().unwrap();
        alike("clipped", &draft.clone().plan().unwrap().0);
    }
}

/// Two mini-batches that take turns are brought once and stay, one as well; three are brought every time.
#[test]
fn mini_batches_that_come_again_stay() {
    const STEPS: u64 = 6;
    let copied = |batches: u64| {
        let mut draft = draft(0, 1);
        (draft.shuffle, draft.steps) = (false, STEPS);
        let plan = draft.plan().unwrap().0;
        let data = Data::Synthetic { train: plan.mini_batch * batches, test: 1 };
        let plan = Plan { data, ..plan };
        alike(&format!("{batches} mini-batches"), &plan);
        let sample = predict(&plan).unwrap().graph.sample().unwrap();
        let bytes = 4 * plan.mini_batch * (sample.input.words() + sample.target.words());
        (train(&plan, true).1, bytes)
    };
    let [(one, _), (two, _), (three, bytes)] = [1, 2, 3].map(copied);
    assert_eq!((one, three), (two, two + (STEPS - 2) * bytes));
}

/// A device that fails ends the run with its words, on the rank where it does.
#[test]
fn what_a_device_says_is_told() {
    let plan = draft(0, 1).plan().unwrap().0;
    let prediction = predict(&plan).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let transport = local(1, 64).remove(0);
    let program = &prediction.programs[0];
    let mut device = Distant::new(program.tensors(), Arc::default());
    device.fails_after = Some(40);
    let parts = (&plan, &prediction.graph, program);
    let mut rank = Rank::on(Box::new(device), parts, &data, transport, 1);
    rank.connect(&prediction.groups).unwrap();
    let error = (0..9).find_map(|step| rank.step(step).err()).expect("it fails");
    assert!(matches!(error, RunError::Device { .. }), "{error}");
    assert!(error.to_string().contains("distant:0: "), "{error}");
    assert!(error.to_string().ends_with("it is meant to"), "{error}");
}

/// What a device does, it does later than it is asked to: traces say when it did.
#[test]
fn work_is_where_the_device_did_it() {
    const APART: u64 = 10; // far less than a step really takes
    let plan = draft(0, 1).plan().unwrap().0;
    let prediction = predict(&plan).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let program = &prediction.programs[0];
    let mut device = Distant::new(program.tensors(), Arc::default());
    device.apart = Some(APART);
    let parts = (&plan, &prediction.graph, program);
    let mut rank = Rank::on(Box::new(device), parts, &data, local(1, 64).remove(0), 1);
    rank.connect(&prediction.groups).unwrap();
    let busy_ns = rank.step(0).unwrap().busy_ns;
    let trace = merge("m", &prediction.programs, &[rank.recorder().trace()], 0);
    let spans = &trace.steps[0].timeline.lanes[0].spans;
    // Forward and backward of two micro-batches, one update.
    assert_eq!(spans.len(), 5);
    assert!(spans.iter().all(|span| (span.end - span.start).0 == APART), "{spans:?}");
    assert!(spans.windows(2).all(|pair| (pair[1].start - pair[0].end).0 == APART), "{spans:?}");
    assert_eq!(busy_ns, 5 * APART);
}

/// Every operation has a time on a device, that of its own clock.
#[test]
fn operations_are_timed_by_the_device() {
    const APART: u64 = 5_000;
    for graph in 0..networks::all().len() {
        let plan = draft(graph, 1).plan().unwrap().0;
        let prediction = predict(&plan).unwrap();
        let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
        let measured = |distant: bool| {
            let program = &prediction.programs[0];
            let parts = (&plan, &prediction.graph, program);
            let transport = local(1, program.handles as usize).remove(0);
            let mut device = Distant::new(program.tensors(), Arc::default());
            (device.apart, device.fuses) = (Some(APART), false);
            let mut rank = match distant {
                false => Rank::new(parts, &data, transport, 1),
                true => Rank::on(Box::new(device), parts, &data, transport, 1),
            };
            let mut all = vec![];
            rank.measure_step(0, |what, ns| all.push((what, ns))).unwrap();
            all
        };
        let (here, there) = (measured(false), measured(true));
        let what = |all: &[(Measured, u64)]| all.iter().map(|(what, _)| *what).collect::<Vec<_>>();
        assert_eq!(what(&here), what(&there), "network {graph}");
        assert!(there.iter().all(|(_, ns)| *ns == APART), "network {graph}: {there:?}");
    }
}

/// Of a chain that a device does together the first computation has the time, the others have none.
#[test]
fn chains_are_timed_as_one() {
    let mut draft = draft_of(chains::residual(), 1);
    (draft.mini_batch, draft.micro_batches) = (2, 1);
    let plan = draft.plan().unwrap().0;
    let prediction = predict(&plan).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let program = &prediction.programs[0];
    let mut device = Distant::new(program.tensors(), Arc::default());
    device.apart = Some(5_000);
    let parts = (&plan, &prediction.graph, program);
    let transport = local(1, program.handles as usize).remove(0);
    let mut rank = Rank::on(Box::new(device), parts, &data, transport, 1);
    let mut all = vec![];
    rank.measure_step(0, |what, ns| all.push((what, ns))).unwrap();
    let stage = &program.stages[0];
    let fusion = Fusion::of(&prediction.graph, program);
    let mut at = 0;
    while at < stage.kernels.len() {
        let chain = fusion.at(stage.stage, at).len();
        let times: Vec<u64> = all[at..at + chain].iter().map(|(_, ns)| *ns).collect();
        assert!(times[0] == 5_000 && times[1..].iter().all(|ns| *ns == 0), "{at}: {times:?}");
        at += chain;
    }
    let kernels = all.iter().filter(|(what, _)| matches!(what, Measured::Kernel(..))).count();
    assert_eq!(kernels, stage.kernels.len());
}
