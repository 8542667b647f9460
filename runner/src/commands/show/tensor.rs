//! Tensor groups of a plan: what they divide, and what they sum within passes.

use crate::commands::words::counted;
use pipewright_core::graph::Op;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::ids::ParamId;
use pipewright_core::plan::{Kernel, Plan};
use pipewright_core::predict::Prediction;
use pipewright_core::units::{Bytes, Nanos};

/// A line where there are some. Times and bytes are those of a micro-batch through all stages.
pub(super) fn tensor(plan: &Plan, prediction: &Prediction) -> Option<String> {
    let (graph, tensor) = (&prediction.graph, prediction.graph.tensor_parallel()?);
    let (mut whole, mut divided) = (0, 0);
    let copies = graph.nodes().iter().filter(|node| matches!(node.op, Op::TiedLinear { .. }));
    let copies: Vec<ParamId> = copies.filter_map(|node| node.params.first().copied()).collect();
    for id in (0..graph.params().len() as u32).map(ParamId).filter(|id| !copies.contains(id)) {
        match graph.shards(id) {
            Some(shards) => divided += shards.shape.iter().product::<u64>(),
            None => whole += graph.param(id).elements(),
        }
    }
    let (mut sums, mut bytes, mut time) = (0u32, Bytes::ZERO, Nanos::ZERO);
    let (mut slices, mut of_slices) = (0, Nanos::ZERO);
    // Where several lanes hold a stage, each micro-batch goes through one of them.
    let stages = prediction.programs.iter().flat_map(|program| &program.stages);
    let kernels = stages.filter(|stage| stage.first_copy).flat_map(|stage| &stage.kernels);
    for kernel in kernels.clone() {
        if matches!(kernel.kind, ComputationKind::AllGather | ComputationKind::ReduceScatter) {
            slices += 1;
            of_slices += prediction.costs.node(kernel.node).tensor_gather;
        }
    }
    let within =
        |kernel: &&Kernel| kernel.reduces && kernel.kind != ComputationKind::WeightGradient;
    for kernel in kernels.filter(within) {
        sums += 1;
        // In half precision what travels is in two bytes.
        let sent = kernel.writes.first().map(|value| kernel.packed(value).unwrap_or(*value));
        bytes += sent.map_or(Bytes::ZERO, |value| value.bytes);
        time += prediction.costs.node(kernel.node).sum_of(kernel.kind);
    }
    let cluster = &plan.cluster;
    let all_within = cluster.nodes == 1 || cluster.ranks_per_node.is_multiple_of(tensor.degree);
    let sliced = match plan.sequence_parallel {
        true => {
            format!("; slices of the sequence gathered or scattered {slices} times in {of_slices}")
        }
        false => String::new(),
    };
    Some(format!(
        "tensor groups of {}: {:.1} % of {} parameters divided; {} within passes of a micro-batch \
         through all stages, {bytes} in {time}{sliced}{}",
        tensor.degree,
        100.0 * divided as f64 / (whole + divided).max(1) as f64,
        whole + divided,
        counted(sums, "sum"),
        if all_within { "" } else { ", some of them across nodes" },
    ))
}
