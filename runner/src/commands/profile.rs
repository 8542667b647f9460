//! `runner profile`: measures a plan's operations and the link between ranks on this machine.
//!
//! As many copies as the machine has cores (and the plan has ranks) measure at the same time,
//! because in a run all ranks compute at the same time and share memory bandwidth and caches.

mod link;

use crate::args::ProfileArgs;
use crate::data::DataSet;
use crate::execute::{Measured, Rank, available_memory};
use crate::failure::{Code, Failure};
use crate::transport::local::local;
use pipewright_core::cost::{Cluster, MeasuredNode, Profile, Sample};
use pipewright_core::graph::Graph;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::plan::{DataParallel, Inputs, Plan, Program, lower, training_graphs};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// Runs the command.
pub fn profile(args: &ProfileArgs) -> Result<(), Failure> {
    let plan = super::read_plan(&args.plan)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let copies = cores.min(plan.ranks());
    let nodes = measure(&plan, copies, args.repeats.max(1))?;
    let mut cluster = plan.cluster.clone();
    let memory = available_memory().unwrap_or(cluster.device.memory);
    cluster.name = "this machine".into();
    cluster.device.name = format!("1 of {cores} cores");
    cluster.device.memory = Bytes(memory.0 / u64::from(plan.ranks()));
    cluster.devices_per_node = cores;
    cluster.nodes = 1;
    cluster.ranks_per_node = plan.ranks().max(cores);
    cluster.local = link::measure();
    cluster.profile = Some(nodes);
    report(&plan, &cluster);
    let text = serde_json::to_string_pretty(&cluster).expect("plain data") + "\n";
    super::write_text(&args.output, &text)
}

/// The plan's micro-batch and a quarter of it, so that the constant part of each time shows.
fn measure(plan: &Plan, copies: u32, repeats: u32) -> Result<Profile, Failure> {
    let graph = plan.model.graph().map_err(|e| Failure::new(Code::Plan, e.to_string()))?;
    super::runnable(&graph)?;
    let mut sizes = vec![(plan.samples() / 4).max(1), plan.samples()];
    sizes.dedup();
    let mut profile = Profile { model: graph.name().into(), nodes: vec![] };
    for node in graph.nodes().iter().filter(|n| !n.op.is_source() && !n.op.is_view()) {
        profile.nodes.push(MeasuredNode { node: node.name.clone(), samples: vec![] });
    }
    for samples in sizes {
        let measured = measure_size(plan, &graph, samples, copies, repeats)?;
        for node in &mut profile.nodes {
            let at = graph.nodes().iter().position(|n| n.name == node.node);
            node.samples.extend(at.map(|at| measured[at]));
        }
    }
    Ok(profile)
}

/// The whole model as one stage, one micro-batch of `samples` at a time; by node.
fn measure_size(
    plan: &Plan,
    graph: &Graph,
    samples: u64,
    copies: u32,
    repeats: u32,
) -> Result<Vec<Sample>, Failure> {
    let schedule = ScheduleKind::GPipe.generate(1, 1).expect("one of each is a schedule");
    let (optimizer, training) = (plan.optimizer, plan.training);
    let data_parallel = DataParallel::default();
    let inputs = Inputs {
        graph,
        cuts: &[],
        schedule: &schedule,
        samples,
        data_parallel,
        optimizer,
        training,
    };
    let programs = lower(&inputs, &training_graphs(&inputs));
    let program = &programs[0];
    let needs = program.arena * u64::from(copies);
    if available_memory().is_some_and(|available| needs > available) {
        let message = format!("measuring {} takes {needs}, more than is left", graph.name());
        return Err(Failure::new(Code::Hardware, message));
    }
    let mut alone = plan.clone();
    (alone.mini_batch, alone.micro_batches) = (samples, 1);
    alone.data_parallel = data_parallel;
    let sample = graph.sample().expect("plans train on samples");
    let synthetic = pipewright_core::plan::Data::default();
    let data = crate::data::open(&synthetic, &sample, plan.seed)
        .map_err(|e| Failure::new(Code::Failed, e.to_string()))?;
    let parts = (&alone, graph, program);
    let tables: Vec<Times> = std::thread::scope(|scope| {
        let start = |_| scope.spawn(|| times(parts, &data, program, repeats));
        let threads: Vec<_> = (0..copies).map(start).collect();
        threads.into_iter().filter_map(|t| t.join().ok()).collect()
    });
    let sample = |node: u32| {
        let of = |kind| typical(tables.iter().flat_map(|t| t.kernels.get(&(node, kind))));
        Sample {
            samples,
            forward_ns: of(ComputationKind::Forward),
            input_gradient_ns: of(ComputationKind::InputGradient),
            weight_gradient_ns: of(ComputationKind::WeightGradient),
            sum_gradients_ns: of(ComputationKind::SumGradients),
            update_ns: typical(tables.iter().flat_map(|t| t.updates.get(&node))),
        }
    };
    Ok((0..graph.nodes().len() as u32).map(sample).collect())
}

/// Times of one copy: by node and kind, and of the parameter updates by node.
struct Times {
    kernels: BTreeMap<(u32, ComputationKind), Vec<u64>>,
    updates: BTreeMap<u32, Vec<u64>>,
}

fn times(
    parts: (&Plan, &Graph, &Program),
    data: &DataSet,
    program: &Program,
    repeats: u32,
) -> Times {
    let transport = local(1, program.handles as usize).remove(0);
    let mut rank = Rank::new(parts, data, transport, 1);
    let mut times = Times { kernels: BTreeMap::new(), updates: BTreeMap::new() };
    // The first pass faults pages in and fills caches.
    for repeat in 0..=repeats {
        let step = rank.measure_step(u64::from(repeat), |what, ns| {
            if repeat == 0 {
                return;
            }
            match what {
                Measured::Kernel(node, kind) => {
                    times.kernels.entry((node.0, kind)).or_default().push(ns);
                }
                Measured::Update(node) => times.updates.entry(node.0).or_default().push(ns),
            }
        });
        step.expect("synthetic samples come from no file");
    }
    times
}

/// The lower quartile: what the operation takes when nothing else is scheduled in between. On a
/// busy machine the upper half of the measurements is other programs' time.
fn typical<'a>(lists: impl Iterator<Item = &'a Vec<u64>>) -> Nanos {
    let mut all: Vec<u64> = lists.flatten().copied().collect();
    all.sort_unstable();
    Nanos(all.get(all.len() / 4).copied().unwrap_or(0))
}

fn report(plan: &Plan, cluster: &Cluster) {
    let Some(profile) = &cluster.profile else { return };
    let sum = |of: fn(&Sample) -> Nanos| -> Nanos {
        profile.nodes.iter().filter_map(|n| n.samples.last()).map(of).sum()
    };
    eprintln!(
        "{} with micro-batches of {}: forward {}, backward {}, update {}; link {} + {:.1} GB/s",
        profile.model,
        plan.samples(),
        sum(|s| s.forward_ns),
        sum(|s| s.input_gradient_ns + s.weight_gradient_ns + s.sum_gradients_ns),
        sum(|s| s.update_ns),
        cluster.local.latency_ns,
        cluster.local.bytes_per_sec / 1e9,
    );
}
