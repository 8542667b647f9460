//! Training whose gradients are summed on the device is training whose gradients the host sums: on the
//! same kernels, so to the bit.

use super::emulated::{Emulated, Reached};
use super::intra_node::{in_world, limits};
use crate::common::draft_of;
use crate::direct::wires::wired;
use crate::direct::world::World;
use crate::emulator;
use pipewright_core::compress::Reduction;
use pipewright_core::cost::Halves;
use pipewright_core::elastic::Origin;
use pipewright_core::graph::{Conv, Graph, GraphBuilder, Op};
use pipewright_core::plan::{Communication, DataParallel, Plan, Program};
use pipewright_core::predict::{Prediction, evaluation, predict_with};
use pipewright_core::units::Bytes;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::device::cuda::Engine;
use pipewright_runner::device::cuda::nccl::{Routes, connect};
use pipewright_runner::execute::{InjectedFault, ProgressHook, Rank, RunError, StepPhase};
use pipewright_runner::transport::local::{LocalTransport, local_on_hosts};
use pipewright_runner::transport::{Transport, TransportError};
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};

/// What computes, and who sums.
pub enum On {
    Processor,
    /// A device and its codecs.
    Device,
    /// A device that has none.
    HostSums,
    /// A device and its codecs; it talks to those of other ranks, as early or as late as may be.
    Talking {
        eager: bool,
    },
}

/// What a step left.
#[derive(Default)]
pub struct Step {
    pub loss: f64,
    pub norm: f64,
    pub skipped: Option<String>,
    /// What lasts and what is carried over, where somebody asked for it.
    pub state: BTreeMap<String, Vec<u32>>,
}

/// What a rank did.
#[derive(Default)]
pub struct Run {
    pub steps: Vec<Step>,
    /// By queue: bytes to the device and from it, in all steps.
    pub travelled: [[u64; 2]; 2],
    /// Those that have gradients, and the bytes of these.
    pub parameters: u64,
    pub gradients: u64,
    /// How it ended before its time.
    pub error: Option<RunError>,
}

/// A convolution with running statistics and two layers: few kernels, so that the emulator is quick.
fn network() -> Graph {
    let mut g = GraphBuilder::new("small");
    g.layer("stem");
    let x = g.input(vec![2, 6, 6]);
    let shape = Conv { kernel: 3, stride: 1, padding: 1, bias: false };
    let x = g.conv("stem.conv", x, 8, shape);
    let x = g.add("stem.bn", Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 }, &[x]);
    let x = g.relu("stem.relu", x);
    g.layer("head");
    let x = g.add("head.flatten", Op::Flatten, &[x]);
    let x = g.linear("head.fc1", x, 32);
    let x = g.relu("head.relu", x);
    let x = g.linear("head.fc2", x, 10);
    let target = g.add("target", Op::Target { classes: 10 }, &[]);
    g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.0 }, &[x, target]);
    g.finish().expect("a network")
}

/// Of the small network on so many stages, three steps.
pub fn plan(stages: u32, data_parallel: DataParallel, gradients: Reduction) -> Plan {
    plan_of(stages, DataParallel { bucket: Bytes(2 << 10), ..data_parallel }, gradients)
}

/// The same with buckets of its own.
fn plan_of(stages: u32, data_parallel: DataParallel, gradients: Reduction) -> Plan {
    let mut draft = draft_of(network(), stages);
    draft.data_parallel = data_parallel;
    draft.optimizer = "sgd:lr=0.01,momentum=0.9".parse().unwrap();
    (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, 3);
    draft.communication = Communication { gradients, ..Communication::default() };
    draft.plan().unwrap().0
}

/// The step that is not finite where there is a probe.
const BAD: u64 = 1;

struct Bad;

impl ProgressHook for Bad {
    fn at(&self, place: StepPhase, step: u64) -> Option<InjectedFault> {
        (place == StepPhase::Forward && step == BAD).then_some(InjectedFault::NotFinite)
    }
}

/// A run's particulars.
struct Job<'a> {
    plan: &'a Plan,
    prediction: &'a Prediction,
    data: &'a DataSet,
    on: &'a On,
    /// Whether states are looked at after each step.
    looks: bool,
    /// Whether the last rank has a gradient that is not finite.
    bad: bool,
    /// Steps that were made, and what each rank had after them.
    begin: (u64, Vec<BTreeMap<String, Vec<u32>>>),
    end: u64,
    /// Where devices talk.
    world: Arc<World>,
    /// The rank that is lost after the first step, when all have made it.
    dies: Option<u32>,
    begun: Barrier,
}

impl<'a> Job<'a> {
    fn rank(
        &self,
        mut transport: LocalTransport,
        program: &'a Program,
        device: &Emulated,
    ) -> Rank<'a, LocalTransport> {
        let parts = (self.plan, &self.prediction.graph, program);
        if matches!(self.on, On::Processor) {
            return Rank::new(parts, self.data, transport, 1);
        }
        let engine = Engine::new(device.clone(), program.tensors(), "a rank").unwrap();
        if !matches!(self.on, On::Talking { .. }) {
            return Rank::on(Box::new(engine), parts, self.data, transport, 1);
        }
        let (number, hosts) = (transport.rank(), transport.hosts().unwrap());
        let evaluation = evaluation(self.plan, Halves::AsTheyLie).unwrap();
        let routes = Routes::new(self.plan, self.prediction, &evaluation, &hosts).unwrap();
        let memory = Reached(device.clone(), engine.arena());
        let engine = Arc::new(Mutex::new(engine));
        let (engine, wires) = wired(&self.world, number, engine, Box::new(memory));
        in_world(&self.world, number, device);
        let how = (Box::new(|| None) as Box<_>, limits());
        let fabric = connect(wires, &mut transport, &routes, how).unwrap();
        let mut rank = Rank::on(Box::new(engine), parts, self.data, transport, 1);
        rank.talk_by(Box::new(fabric.map_err(|e| e.0).unwrap()));
        rank
    }

    fn run(&self, transport: LocalTransport) -> Run {
        let index = transport.rank();
        let program = &self.prediction.programs[self.plan.mesh().place(index).0.index()];
        let is_alone = matches!(self.on, On::HostSums);
        let device = Emulated::new(is_alone);
        let mut rank = self.rank(transport, program, &device);
        rank.connect(&self.prediction.groups).unwrap();
        rank.progress_hook = (self.bad && index == self.plan.ranks() - 1).then_some(&Bad);
        if let Some(state) = self.begin.1.get(index as usize) {
            load(&mut rank, state);
            let step = self.begin.0;
            rank.go_on_at(Origin { step, samples: step * self.plan.mini_batch });
        }
        let before = [0, 1].map(|queue: usize| device.traffic[queue].bytes());
        let mut run = Run::default();
        for step in self.begin.0..self.end {
            if self.dies.is_some() && step > self.begin.0 {
                run.error = self.last_step(&mut rank, step);
                return run;
            }
            let counts = rank.step(step).unwrap();
            let name = |param| self.prediction.graph.param(param).name.clone();
            let (loss, norm) = (counts.loss, counts.gradient_norm);
            let skipped = counts.skipped.map(name);
            let state = if self.looks { state(&mut rank) } else { BTreeMap::new() };
            run.steps.push(Step { loss, norm, skipped, state });
        }
        for (queue, before) in before.iter().enumerate() {
            let now = device.traffic[queue].bytes();
            run.travelled[queue] = [now[0] - before[0], now[1] - before[1]];
        }
        let places = program.stages.iter().flat_map(|stage| &stage.params);
        for gradient in places.filter_map(|place| place.gradient) {
            run.parameters += 1;
            run.gradients += gradient.bytes.0;
        }
        run
    }

    /// The step in which a rank is missing, and how it ends.
    fn last_step(&self, rank: &mut Rank<LocalTransport>, step: u64) -> Option<RunError> {
        let index = rank.transport.rank();
        self.begun.wait();
        if self.dies == Some(index) {
            self.world.kill(index);
            return None;
        }
        let error = rank.step(step).expect_err("a rank is missing");
        self.world.until_aborted(index);
        Some(error)
    }

    fn on_hosts(&self, hosts: &[u32]) -> Vec<Run> {
        std::thread::scope(|scope| {
            let start = |transport| scope.spawn(|| self.run(transport));
            let ranks: Vec<_> = local_on_hosts(hosts, 64).into_iter().map(start).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }
}

/// All that a rank has after a step.
fn state(rank: &mut Rank<LocalTransport>) -> BTreeMap<String, Vec<u32>> {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    rank.fetch_persistent_state();
    let persistent_state = rank.persistent_state();
    let persistent_state = persistent_state.iter().map(|t| (t.name.clone(), bits(rank.values(t))));
    let mut all: BTreeMap<_, _> = persistent_state.collect();
    all.extend(rank.carried().into_iter().map(|t| (t.name, bits(&t.values))));
    let gradients = rank.next_gradients().into_iter();
    all.extend(gradients.map(|(name, values)| (format!("{name}@gradient"), bits(&values))));
    all
}

fn load(rank: &mut Rank<LocalTransport>, state: &BTreeMap<String, Vec<u32>>) {
    let floats = |bits: &Vec<u32>| bits.iter().map(|bits| f32::from_bits(*bits)).collect();
    let all: BTreeMap<String, Vec<f32>> =
        state.iter().map(|(name, bits)| (name.clone(), floats(bits))).collect();
    for tensor in rank.persistent_state() {
        rank.values_mut(&tensor).copy_from_slice(&all[&tensor.name]);
    }
    rank.carry(&all);
}

/// Trains on ranks that are threads, each on a host of its own, and does something with the job before.
fn train_as(plan: &Plan, on: &On, hosts: Option<&[u32]>, set: impl FnOnce(&mut Job)) -> Vec<Run> {
    let prediction = match on {
        On::Processor => predict_with(plan, Halves::Unpacked).unwrap(),
        _ => predict_with(plan, Halves::AsTheyLie).unwrap(),
    };
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let (begin, end) = ((0, vec![]), plan.steps);
    let prediction = &prediction;
    let world = World::new(matches!(on, On::Talking { eager: true }));
    let (looks, bad, dies, data) = (true, false, None, &data);
    let begun = Barrier::new(plan.ranks() as usize);
    let mut job = Job { plan, prediction, data, on, looks, bad, begin, end, world, dies, begun };
    set(&mut job);
    let own: Vec<u32> = (0..plan.ranks()).collect();
    job.on_hosts(hosts.unwrap_or(&own))
}

/// Trains on ranks that are threads.
pub fn train(plan: &Plan, on: &On, looks: bool) -> Vec<Run> {
    train_as(plan, on, None, |job| job.looks = looks)
}

#[track_caller]
pub fn same(what: &str, here: &[Run], there: &[Run]) {
    assert_eq!(here.len(), there.len());
    for (rank, (here, there)) in here.iter().zip(there).enumerate() {
        assert_eq!(here.steps.len(), there.steps.len());
        for (step, (here, there)) in here.steps.iter().zip(&there.steps).enumerate() {
            let what = format!("{what}, step {step} of rank {rank}");
            assert_eq!(here.loss.to_bits(), there.loss.to_bits(), "{what}: loss");
            assert_eq!(here.norm.to_bits(), there.norm.to_bits(), "{what}: norm");
            assert_eq!(here.skipped, there.skipped, "{what}");
            for (name, bits) in &here.state {
                assert!(there.state.get(name) == Some(bits), "{what}: `{name}`");
            }
        }
    }
}

fn reductions(texts: &[&str]) -> Vec<Reduction> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

const KNOWN: [&str; 6] = [
    "bf16",
    "fp8-e5m2",
    "fp8-e4m3:256",
    "table:4+feedback",
    "one-bit+feedback",
    "fp8-e5m2+feedback+operator",
];

#[test]
fn by_every_codec() {
    if !emulator::is_there() {
        return;
    }
    let on_stages = |stages: u32| KNOWN.iter().map(move |text| (stages, 2, text));
    let on_four = KNOWN[4..].iter().map(|text| (1, 4, text));
    for (stages, replicas, gradients) in on_stages(1).chain(on_four).chain(on_stages(2).skip(4)) {
        let plan = plan(stages, DataParallel::ddp(replicas), gradients.parse().unwrap());
        let [here, there] = [On::HostSums, On::Device].map(|on| train(&plan, &on, true));
        same(&format!("{gradients}, {stages} stages, {replicas} replicas"), &here, &there);
    }
}

/// Nobody downloads gradients, or uploads their sums.
#[test]
fn gradients_do_not_travel() {
    if !emulator::is_there() {
        return;
    }
    for gradients in reductions(&["one-bit+feedback", "table-mean:2+feedback"]) {
        let plan = plan(1, DataParallel::ddp(2), gradients);
        let [here, there] = [On::HostSums, On::Device].map(|on| train(&plan, &on, false));
        for (here, there) in here.iter().zip(&there) {
            let [host, device] = [here, there].map(|run| run.travelled[0]);
            let codes = there.travelled[1];
            if gradients.to_string().starts_with("table-mean") {
                assert_eq!((host, codes), (device, [0, 0]), "there is no kernel for it");
                continue;
            }
            let all = plan.steps * here.gradients;
            assert_eq!(here.travelled[1], [0, 0]);
            for way in [0, 1] {
                assert!(host[way] - device[way] >= all, "{host:?}, then {device:?}");
                assert!(0 < codes[way] && codes[way] < all / 2, "{codes:?} of {all}");
            }
        }
    }
}

#[test]
fn skipped_steps_change_nothing() {
    if !emulator::is_there() {
        return;
    }
    for gradients in reductions(&["one-bit+feedback", "fp8-e5m2+feedback+operator", "fp32"]) {
        let mut plan = plan(2, DataParallel::ddp(2), gradients);
        plan.training.skip_nonfinite = Some(3);
        plan.training.clip_norm = Some(1.0);
        let bad = |on| train_as(&plan, &on, None, |job| job.bad = true);
        let (here, there) = (bad(On::HostSums), bad(On::Device));
        same(&format!("{gradients}, a step is skipped"), &here, &there);
        for run in &there {
            let [before, bad, after] = &run.steps[..] else { panic!("three steps") };
            assert!(bad.skipped.is_some() && after.skipped.is_none(), "{gradients}");
            assert!(before.state == bad.state, "{gradients}: nothing is left of it");
            assert!(bad.state != after.state, "{gradients}: training goes on");
        }
    }
}

#[test]
fn going_on_from_a_checkpoint() {
    if !emulator::is_there() {
        return;
    }
    for gradients in reductions(&["table:2+feedback", "fp8-e5m2+feedback+operator"]) {
        let plan = plan(1, DataParallel::ddp(2), gradients);
        let whole = train(&plan, &On::Device, true);
        let states: Vec<_> = whole.iter().map(|run| run.steps[1].state.clone()).collect();
        let carried = |name: &String| name.contains("@residual@rank-");
        let is_some = |bits: &Vec<u32>| bits.iter().any(|bits| *bits != 0);
        for state in &states {
            assert!(state.iter().any(|(name, bits)| carried(name) && is_some(bits)));
        }
        let rest = train_as(&plan, &On::Device, None, |job| job.begin = (2, states));
        let last = |run: Run| Run { steps: run.steps.into_iter().skip(2).collect(), ..run };
        let whole: Vec<Run> = whole.into_iter().map(last).collect();
        same(&format!("{gradients}, gone on"), &whole, &rest);
    }
}

/// Buckets are summed inside of hosts by the devices, between them encoded, and what is on one host as it
/// is.
#[test]
fn hierarchical_sums_of_devices_that_talk() {
    if !emulator::is_there() {
        return;
    }
    let cases = [
        (1, "fp8-e5m2+feedback", [0, 0, 1, 1]),
        (1, "one-bit+feedback", [0, 1, 0, 1]),
        (1, "fp8-e5m2+feedback+operator", [0, 0, 1, 1]),
        (1, "fp32", [0, 0, 1, 1]),
        (2, "one-bit+feedback", [0, 0, 1, 1]),
        (2, "one-bit+feedback", [0, 1, 0, 1]),
    ];
    for (stages, gradients, hosts) in cases {
        let replicas = DataParallel::ddp(4 / stages);
        let mut plan = plan(stages, replicas, gradients.parse().unwrap());
        plan.communication.hierarchical = true;
        let on = |on| train_as(&plan, &on, Some(&hosts), |_| ());
        let here = on(On::HostSums);
        for eager in [true, false] {
            let what = format!("{gradients}, {stages} stages on hosts {hosts:?}, {eager}");
            same(&what, &here, &on(On::Talking { eager }));
        }
    }
}

/// Two sums are on their way when another one begins, and those before are handed out: in one order on all ranks, which
/// communicators of NCCL ask for.
#[test]
fn hands_out_beside_the_backward_pass() {
    if !emulator::is_there() {
        return;
    }
    let replicas = DataParallel { bucket: Bytes(1), ..DataParallel::ddp(4) };
    let mut plan = plan_of(1, replicas, "one-bit+feedback".parse().unwrap());
    plan.communication.hierarchical = true;
    let buckets =
        predict_with(&plan, Halves::AsTheyLie).unwrap().programs[0].stages[0].buckets.len();
    assert!(buckets > 3, "{buckets} buckets");
    let step = format!("++{}--", "-+".repeat(buckets - 2));
    let mut world = None;
    let on = On::Talking { eager: false };
    train_as(&plan, &on, Some(&[0, 0, 1, 1]), |job| world = Some(job.world.clone()));
    let world = world.expect("the job has one");
    for rank in 0..4 {
        let sign = |call: &String| match call.split(' ').next() {
            Some("Reduce") => Some('+'),
            Some("Broadcast") => Some('-'),
            _ => None,
        };
        let asked: String = world.calls(rank).iter().filter_map(sign).collect();
        assert_eq!(asked, step.repeat(plan.steps as usize), "rank {rank}");
    }
}

/// No gradient passes a host, whole or added up: codes of what a rank encodes do.
#[test]
fn what_a_host_adds_up_does_not_travel() {
    if !emulator::is_there() {
        return;
    }
    for gradients in ["one-bit+feedback", "fp32"] {
        let mut plan = plan(1, DataParallel::ddp(4), gradients.parse().unwrap());
        plan.communication.hierarchical = true;
        let on = |on| train_as(&plan, &on, Some(&[0, 0, 1, 1]), |job| job.looks = false);
        let [here, there] = [On::HostSums, On::Talking { eager: false }].map(on);
        for (here, there) in here.iter().zip(&there) {
            let all = plan.steps * here.gradients;
            let [host, device] = [here, there].map(|run| run.travelled[0]);
            let codes = there.travelled[1];
            for way in [0, 1] {
                assert!(host[way] - device[way] >= all, "{host:?}, then {device:?}");
                assert!(codes[way] < all / 8, "{codes:?} of {all}");
                assert_eq!(codes[way] > 0, gradients != "fp32", "{gradients}");
            }
        }
    }
}

/// Sums of devices cannot be added up without it: all ranks end, whatever they wait for.
#[test]
fn a_rank_of_a_host_dies() {
    if !emulator::is_there() {
        return;
    }
    let mut plan = plan(1, DataParallel::ddp(4), "one-bit+feedback".parse().unwrap());
    plan.communication.hierarchical = true;
    for dies in [0, 1] {
        let on = On::Talking { eager: false };
        let runs = train_as(&plan, &on, Some(&[0, 0, 1, 1]), |job| job.dies = Some(dies));
        for (rank, run) in (0..).zip(&runs).filter(|(rank, _)| *rank != dies) {
            let error = run.error.as_ref().expect("it cannot go on");
            let RunError::Transport { source, .. } = error else { panic!("rank {rank}: {error}") };
            match source {
                TransportError::Devices { lost: true, .. }
                | TransportError::Gone { .. }
                | TransportError::Aborted { .. } => {}
                other => panic!("rank {rank}: {other}"),
            }
        }
    }
}

/// Hosts of several ranks sum in their memory first; hosts of one rank are ranks.
#[test]
fn hierarchical_sums() {
    if !emulator::is_there() {
        return;
    }
    let mut plan = plan(1, DataParallel::ddp(4), "one-bit+feedback".parse().unwrap());
    plan.communication.hierarchical = true;
    for hosts in [[0, 0, 1, 1], [0, 1, 2, 3]] {
        let on = |on| train_as(&plan, &on, Some(&hosts), |_| ());
        let (here, there) = (on(On::HostSums), on(On::Device));
        same(&format!("on hosts {hosts:?}"), &here, &there);
        let codes = there.iter().map(|run| run.travelled[1][1]).sum::<u64>();
        assert_eq!(codes > 0, hosts[1] == 1, "the device encodes where no host sums first");
    }
}
