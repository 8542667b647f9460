//! Operations: forward, input-gradient and weight-gradient part of every node, over micro-batch
//! sizes, and the update of its parameters.

use super::device::Device;
use super::{Effort, Sizes, Times};
use crate::data::DataSet;
use crate::device::Accelerator;
use crate::execute::{Measured, Rank, available_memory};
use crate::failure::{Code, Failure};
use crate::transport::local::local;
use crate::transport::{ReduceOp, Transport, TransportError};
use indicatif::ProgressBar;
use pipewright_core::cost::{MeasuredNode, Profile, Sample, SplitSample};
use pipewright_core::graph::Graph;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::plan::{
    Communication, DataParallel, Inputs, Plan, Program, lower, training_graphs,
};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Nanos;

/// Nanoseconds by what was measured of a node: forward, input gradient, weight gradient, sum of
/// gradients, update; input and weight gradient of a split backward pass.
type NodeTimes = [Vec<u64>; 7];

/// Measures; the result is rank 0's. All ranks call it.
pub(super) fn measure<T: Transport>(
    transport: &mut T,
    (plan, device): (&Plan, &Device),
    effort: Effort,
    bar: &ProgressBar,
) -> Result<Option<Profile>, Failure> {
    let graph = plan.model.graph().map_err(|e| Failure::new(Code::Plan, e.to_string()))?;
    super::super::runnable(&graph)?;
    let own = plan.samples();
    let mut sizes = vec![(own / 4).max(1), own];
    if effort.times.sizes == Sizes::Wide {
        sizes.extend([1, (4 * own).min(plan.mini_batch)]);
        sizes.sort_unstable();
    }
    sizes.dedup();
    bar.set_length(sizes.len() as u64 * 2 * u64::from(effort.times.repeats + 1));
    let mut profile = Profile { model: graph.name().into(), nodes: vec![] };
    for node in graph.nodes() {
        profile.nodes.push(MeasuredNode { node: node.name.clone(), samples: vec![] });
    }
    for samples in sizes {
        let measured = match measure_size(transport, (plan, &graph, device), samples, effort, bar) {
            // All ranks find it at the same moment. What is measured besides may be too large.
            Err(failure) if failure.code == Code::Hardware && samples > own => continue,
            measured => measured?,
        };
        for (node, sample) in profile.nodes.iter_mut().zip(measured.into_iter().flatten()) {
            node.samples.push(sample);
        }
    }
    let computes = graph.nodes().iter().map(|node| !node.op.is_source() && !node.op.is_view());
    let mut computes = computes.collect::<Vec<bool>>().into_iter();
    profile.nodes.retain(|_| computes.next() == Some(true));
    Ok((transport.rank() == 0).then_some(profile))
}

/// Where the times of a computation stand; none for exchanges of groups, of which a whole lane has none.
fn column(kind: ComputationKind) -> Option<usize> {
    match kind {
        ComputationKind::Forward | ComputationKind::PartialLoss => Some(0),
        ComputationKind::InputGradient => Some(1),
        ComputationKind::WeightGradient => Some(2),
        ComputationKind::SumGradients => Some(3),
        ComputationKind::AllGather
        | ComputationKind::ReduceScatter
        | ComputationKind::Scatter
        | ComputationKind::RowsToExperts
        | ComputationKind::RowsToTokens => None,
    }
}

/// The whole model as one stage, with the backward pass in one piece, and split.
fn programs((plan, graph, device): (&Plan, &Graph, &Device), samples: u64) -> [Program; 2] {
    [ScheduleKind::GPipe, ScheduleKind::ZbH1].map(|schedule| {
        let schedule = schedule.generate(1, 1).expect("one of each is a schedule");
        let inputs = Inputs {
            graph,
            cuts: &[],
            schedule: &schedule,
            samples,
            data_parallel: DataParallel::default(),
            communication: &Communication::default(),
            cluster: &plan.cluster,
            optimizer: plan.optimizer,
            training: plan.training,
            halves: device.halves(),
        };
        lower(&inputs, &training_graphs(&inputs)).remove(0)
    })
}

/// The whole model as one stage, one micro-batch of `samples` at a time; by node, on rank 0.
fn measure_size<T: Transport>(
    transport: &mut T,
    (plan, graph, device): (&Plan, &Graph, &Device),
    samples: u64,
    effort: Effort,
    bar: &ProgressBar,
) -> Result<Option<Vec<Sample>>, Failure> {
    let failed = |e: TransportError| Failure::new(Code::Failed, e.to_string());
    let data_parallel = DataParallel::default();
    let programs = programs((plan, graph, device), samples);
    let needs =
        programs.iter().map(|p| p.arena).max().unwrap_or_default() * u64::from(effort.copies);
    let fits = available_memory().is_none_or(|available| needs <= available);
    // All ranks decide alike: one that left would be waited for.
    let mut all_fit = [f64::from(u8::from(fits))];
    transport.all_reduce(&mut all_fit, ReduceOp::Min).map_err(failed)?;
    if all_fit[0] == 0.0 {
        let message = format!("measuring {} takes {needs}, more than is left", graph.name());
        return Err(Failure::new(Code::Hardware, message));
    }
    let mut alone = plan.clone();
    (alone.mini_batch, alone.micro_batches) = (samples, 1);
    (alone.data_parallel, alone.tensor, alone.sequence_parallel) = (data_parallel, 1, false);
    let sample = graph.sample().expect("plans train on samples");
    let synthetic = pipewright_core::plan::Data::default();
    let data = crate::data::open(&synthetic, &sample, plan.seed)
        .map_err(|e| Failure::new(Code::Failed, e.to_string()))?;
    transport.barrier().map_err(failed)?;
    let mine = match transport.rank() < effort.copies {
        true => {
            let open = |program: &Program| device.open(transport.rank(), program);
            both_times((&alone, graph), &programs, (&data, &open), effort.times, bar)?
        }
        false => vec![NodeTimes::default(); graph.nodes().len()],
    };
    let bytes = serde_json::to_vec(&mine).expect("plain data");
    let Some(all) = transport.gather(&bytes).map_err(failed)? else { return Ok(None) };
    let parse = |bytes: &Vec<u8>| -> Vec<NodeTimes> {
        serde_json::from_slice(bytes).expect("written by the same program")
    };
    let all: Vec<Vec<NodeTimes>> = all.iter().map(parse).collect();
    let sample = |node: usize| {
        let of = |what: usize| typical(all.iter().flat_map(|rank| &rank[node][what]));
        Sample {
            samples,
            forward_ns: of(0),
            input_gradient_ns: of(1),
            weight_gradient_ns: of(2),
            sum_gradients_ns: of(3),
            update_ns: of(4),
            split: Some(SplitSample { input_gradient_ns: of(5), weight_gradient_ns: of(6) }),
        }
    };
    Ok(Some((0..graph.nodes().len()).map(sample).collect()))
}

/// Opens the device that has a program's tensors; none where this processor computes.
type Open<'a> = dyn Fn(&Program) -> Result<Option<Box<dyn Accelerator>>, Failure> + 'a;

/// By node, of both kinds of backward pass.
fn both_times(
    (plan, graph): (&Plan, &Graph),
    [whole, split]: &[Program; 2],
    data: (&DataSet, &Open),
    asked: Times,
    bar: &ProgressBar,
) -> Result<Vec<NodeTimes>, Failure> {
    let mut all = times((plan, graph, whole), data, asked, bar)?;
    let split = times((plan, graph, split), data, asked, bar)?;
    for (all, mut split) in all.iter_mut().zip(split) {
        (all[5], all[6]) = (std::mem::take(&mut split[1]), std::mem::take(&mut split[2]));
    }
    Ok(all)
}

/// By node.
fn times(
    parts: (&Plan, &Graph, &Program),
    (data, open): (&DataSet, &Open),
    Times { repeats, threads, .. }: Times,
    bar: &ProgressBar,
) -> Result<Vec<NodeTimes>, Failure> {
    let transport = local(1, parts.2.handles as usize).remove(0);
    let mut rank = match open(parts.2)? {
        None => Rank::new(parts, data, transport, threads),
        Some(accelerator) => Rank::on(accelerator, parts, data, transport, threads),
    };
    let mut times = vec![NodeTimes::default(); parts.1.nodes().len()];
    // The first pass faults pages in and fills caches.
    for repeat in 0..=repeats {
        let step = rank.measure_step(u64::from(repeat), |what, ns| {
            if repeat == 0 {
                return;
            }
            let (node, index) = match what {
                Measured::Kernel(node, kind) => match column(kind) {
                    Some(column) => (node, column),
                    None => return,
                },
                Measured::Update(node) => (node, 4),
            };
            times[node.index()][index].push(ns);
        });
        step.map_err(|e| Failure::new(Code::Failed, e.to_string()))?;
        bar.inc(1);
    }
    Ok(times)
}

/// The median: a step is as long as its operations usually take, interruptions included.
fn typical<'a>(times: impl Iterator<Item = &'a u64>) -> Nanos {
    let mut all: Vec<u64> = times.copied().collect();
    all.sort_unstable();
    Nanos(all.get(all.len() / 2).copied().unwrap_or(0))
}
