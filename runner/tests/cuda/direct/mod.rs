//! Devices that send and sum from memory to memory train as those do whose hosts do it, to the bit, and
//! their hosts touch nothing of it.

mod asked;
mod endings;
mod shared;
mod tensor_groups;
pub mod wires;
pub mod world;

use crate::common::{draft_of, networks};
use crate::distant::processor::Distant;
use pipewright_core::compress::Reduction;
use pipewright_core::cost::Halves;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{
    BatchNorm, Communication, DataParallel, DataParallelMode, Draft, Edges, Instruction, Plan,
    Precision, Program, Region,
};
use pipewright_core::predict::{Prediction, evaluation, predict, predict_with};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::device::cuda::nccl::{Limits, Routes, connect};
use pipewright_runner::device::{Accelerator, Fabric};
use pipewright_runner::execute::{Rank, RunError};
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local};
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use wires::{Emulated, Wired, wired};
use world::{Memory, World};

/// What a rank has after each step: loss, and all that lasts.
type Steps = Vec<(u64, Vec<(String, Vec<u32>)>)>;

/// What a rank did: its steps, and what its host read and wrote of the device.
type Trained = (Steps, Vec<Range<u64>>);

/// Nothing in these tests takes so long; where it does they fail.
fn limits() -> Limits {
    let long = Duration::from_secs(300);
    Limits { connect: long, abort: long, hangs: |error| panic!("{error}") }
}

impl Memory for Arc<Mutex<Distant>> {
    fn read(&self, region: Region) -> Vec<u8> {
        let mut bytes = vec![0; region.bytes.0 as usize];
        self.lock().unwrap().download(region.offset.0, &mut bytes).unwrap();
        bytes
    }

    fn write(&self, region: Region, bytes: &[u8]) {
        self.lock().unwrap().upload(region.offset.0, bytes).unwrap();
    }
}

/// A processor that is a device, and its ends of the wires.
fn device(world: &Arc<World>, rank: u32, bytes: Bytes) -> (Wired<Distant>, Emulated) {
    let device = Arc::new(Mutex::new(Distant::new(bytes, Arc::default())));
    wired(world, rank, device.clone(), Box::new(device))
}

/// Trains on ranks that are threads with devices; these talk to each other where there is a world.
/// A rank whose device talks to those of the others.
fn connected<'a>(
    (plan, prediction, program): (&'a Plan, &'a Prediction, &'a Program),
    (world, routes): (&Arc<World>, &Routes),
    data: &DataSet,
    mut transport: LocalTransport,
) -> Rank<'a, LocalTransport> {
    let (device, wires) = device(world, transport.rank(), program.tensors());
    let how = (Box::new(|| None) as Box<_>, limits());
    let fabric = connect(wires, &mut transport, routes, how).unwrap();
    let parts = (plan, &prediction.graph, program);
    let mut rank = Rank::on(Box::new(device), parts, data, transport, 1);
    rank.talk_by(Box::new(fabric.map_err(|e| e.0).unwrap()));
    rank.connect(&prediction.groups).unwrap();
    rank
}

fn train(plan: &Plan, world: Option<&Arc<World>>) -> Vec<Trained> {
    let prediction = predict_with(plan, Halves::AsTheyLie).unwrap();
    let hosts = vec![0; plan.ranks() as usize];
    let tests = evaluation(plan, Halves::AsTheyLie).unwrap();
    let routes = Routes::new(plan, &prediction, &tests, &hosts).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    // Devices of nobody talk to nobody.
    let alone = World::new(true);
    let on_rank = |mut transport: LocalTransport, data: &DataSet| {
        let number = transport.rank();
        let program = &prediction.programs[plan.mesh().place(number).0.index()];
        let parts = (plan, &prediction.graph, program);
        let bytes = program.tensors();
        let (device, fabric) = match world {
            None => (device(&alone, number, bytes).0, None),
            Some(world) if world.is_shared() => {
                let (device, fabric) = shared::connected(world, &mut transport, &routes, bytes);
                (device, Some(fabric))
            }
            Some(world) => {
                let (device, wires) = device(world, number, bytes);
                let how = (Box::new(|| None) as Box<_>, limits());
                let fabric = connect(wires, &mut transport, &routes, how).unwrap();
                (device, Some(Box::new(fabric.map_err(|e| e.0).unwrap()) as Box<dyn Fabric>))
            }
        };
        let copies = device.copies.clone();
        let mut rank = Rank::on(Box::new(device), parts, data, transport, 1);
        if let Some(fabric) = fabric {
            rank.talk_by(fabric);
        }
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
        let steps = (0..plan.steps).map(step).collect();
        (steps, copies.lock().unwrap().clone())
    };
    std::thread::scope(|scope| {
        let start = |transport| scope.spawn(|| on_rank(transport, &data));
        let ranks: Vec<_> = local(plan.ranks(), 64).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn draft(graph: usize, stages: u32) -> Draft {
    let mut draft = draft_of(networks::all().swap_remove(graph), stages);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 4, 3);
    draft
}

/// The same bits whichever way messages go, as early and as late as they may.
#[track_caller]
fn alike(what: &str, plan: &Plan) -> Vec<Trained> {
    let staged = train(plan, None);
    let direct = [true, false].map(|eager| train(plan, Some(&World::new(eager))));
    direct.iter().for_each(|direct| same(what, &staged, direct));
    let [_, lazy] = direct;
    lazy
}

#[track_caller]
fn same(what: &str, staged: &[Trained], direct: &[Trained]) {
    for (rank, ((staged, _), (direct, _))) in staged.iter().zip(direct).enumerate() {
        assert_eq!(staged.len(), direct.len());
        for (step, (staged, direct)) in staged.iter().zip(direct).enumerate() {
            assert_eq!(staged.0, direct.0, "{what}: loss of step {step}, rank {rank}");
            for ((name, staged), (_, direct)) in staged.1.iter().zip(&direct.1) {
                assert!(staged == direct, "{what}: `{name}` after step {step}, rank {rank}");
            }
        }
    }
}

/// What a program sends, receives and sums as it is.
fn regions(program: &Program) -> Vec<Region> {
    let messages = program.train.iter().filter_map(|instruction| match *instruction {
        Instruction::Send { region, encode: None, .. }
        | Instruction::Recv { region, decode: None, .. } => Some(region),
        _ => None,
    });
    let buckets = program.stages.iter().flat_map(|stage| &stage.buckets);
    messages.chain(buckets.map(|bucket| bucket.region)).collect()
}

/// As [`alike`], and the hosts read and write nothing of what travels.
#[track_caller]
fn untouched(what: &str, plan: &Plan) {
    let prediction = predict_with(plan, Halves::AsTheyLie).unwrap();
    for (rank, (_, copies)) in (0..).zip(alike(what, plan)) {
        let regions = regions(&prediction.programs[plan.mesh().place(rank).0.index()]);
        assert!(!regions.is_empty(), "{what}: rank {rank} sends and sums nothing");
        assert!(!copies.is_empty(), "{what}: samples or weights at least");
        for region in regions {
            let (begin, end) = (region.offset.0, (region.offset + region.bytes).0);
            let touched = copies.iter().find(|copy| copy.start < end && begin < copy.end);
            assert_eq!(touched, None, "{what}: rank {rank}, {begin}..{end}");
        }
    }
}

#[test]
fn pipelines() {
    for (graph, stages) in [(0, 2), (0, 3), (1, 3), (2, 2)] {
        untouched(&format!("network {graph}"), &draft(graph, stages).plan().unwrap().0);
    }
}

#[test]
fn two_bytes_a_value() {
    let mut draft = draft(0, 3);
    draft.training.precision = Precision::Bf16;
    draft.data_parallel = DataParallel::ddp(2);
    untouched("bf16", &draft.plan().unwrap().0);
}

/// Sums start while the backward pass goes on: buckets are small.
#[test]
fn replicas() {
    for (stages, replicas) in [(1, 2), (1, 3), (2, 2)] {
        let mut draft = draft(0, stages);
        draft.mini_batch = u64::from(8 * replicas);
        draft.data_parallel =
            DataParallel { bucket: Bytes(1 << 10), ..DataParallel::ddp(replicas) };
        untouched(&format!("{stages} x {replicas}"), &draft.plan().unwrap().0);
    }
}

#[test]
fn through_the_first_replica() {
    let mut draft = draft(0, 1);
    draft.data_parallel = DataParallel { mode: DataParallelMode::Dp, ..DataParallel::ddp(2) };
    alike("DataParallel", &draft.plan().unwrap().0);
}

/// Among them are some whose lanes send to themselves, take other routes, or have several versions.
#[test]
fn every_schedule() {
    let mut tried = 0;
    for kind in ScheduleKind::ALL {
        let mut draft = draft(0, kind.placement().stages(2));
        draft.schedule = kind;
        if kind.generate(2, 4).is_ok() {
            alike(&kind.to_string(), &draft.plan().unwrap().0);
            tried += 1;
        }
    }
    assert!(tried > 12, "{tried}");
}

#[test]
fn a_table_on_two_stages() {
    let text = "transformer:layers=2,hidden=32,heads=4,sequence=16,vocabulary=50,tied";
    let preset: Preset = text.parse().unwrap();
    for replicas in [1, 2] {
        let mut draft = draft_of(preset.graph().unwrap(), 2);
        (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, 2);
        draft.data_parallel = DataParallel::ddp(replicas);
        alike(&format!("tied, {replicas} replicas"), &draft.plan().unwrap().0);
    }
}

/// What hosts do stays theirs: codecs of messages and gradients, clipping, statistics, skipped steps.
#[test]
fn beside_what_hosts_do() {
    let mut draft = draft(1, 2);
    draft.data_parallel = DataParallel::ddp(2);
    draft.communication.edges = Edges { within: "fp8-e4m3".parse().unwrap(), ..Edges::default() };
    alike("encoded messages, plain sums", &draft.clone().plan().unwrap().0);
    let gradients: Reduction = "one-bit+feedback".parse().unwrap();
    draft.communication = Communication { gradients, ..Communication::default() };
    alike("plain messages, encoded sums", &draft.clone().plan().unwrap().0);
    draft.communication = Communication::default();
    draft.training.clip_norm = Some(0.1);
    draft.training.skip_nonfinite = Some(2);
    draft.training.batch_norm = BatchNorm::Deferred;
    alike("clipped", &draft.plan().unwrap().0);
}

/// A rank dies in the middle of training: those that wait for its messages end with an error that says
/// whose, and give all their communicators up.
#[test]
fn a_rank_that_dies() {
    let plan = draft(0, 3).plan().unwrap().0;
    let prediction = predict(&plan).unwrap();
    let tests = evaluation(&plan, plan.cluster.device.halves()).unwrap();
    let routes = Routes::new(&plan, &prediction, &tests, &[0; 3]).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let (world, begun, both) = (World::new(false), Barrier::new(3), Barrier::new(2));
    let on_rank = |transport: LocalTransport| -> Option<RunError> {
        let number = transport.rank();
        let parts = (&plan, &prediction, &prediction.programs[number as usize]);
        let mut rank = connected(parts, (&world, &routes), &data, transport);
        rank.step(0).unwrap();
        begun.wait();
        if number == 1 {
            world.kill(1);
            return None;
        }
        let error = (1..9).find_map(|step| rank.step(step).err());
        rank.fetch_persistent_state();
        assert!(rank.check_device().is_err(), "what cannot be fetched is not saved");
        // Who goes is lost to the other one, which is to hear of the first loss.
        both.wait();
        error
    };
    let errors: Vec<Option<RunError>> = std::thread::scope(|scope| {
        let start = |transport| scope.spawn(|| on_rank(transport));
        let ranks: Vec<_> = local(3, 64).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for (rank, error) in [(0, &errors[0]), (2, &errors[2])] {
        let error = error.as_ref().expect("it cannot go on");
        assert!(error.is_loss(), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("rank {rank}, messages of edge ")), "{text}");
        assert!(text.contains("rank 1") && text.ends_with("a peer has gone"), "{text}");
    }
    assert_eq!(world.aborted(), [0, 1, 2]);
}
