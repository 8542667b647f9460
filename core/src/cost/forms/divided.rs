//! Form that divides every layer: tensor parallelism as Megatron-LM's (Shoeybi et al. 2019, arXiv 1909.08053).

use super::replicated::{Line, alone};
use super::{Case, Doing, Form, FormCost, FormError, Part};
use crate::cost::memory::Sharding;
use crate::cost::{Costs, Workload};
use crate::graph::autodiff::{BackwardStyle, Computation, ComputationKind, training_graph};
use crate::ids::StageId;
use crate::units::Bytes;

/// All devices compute their share of each layer at the same time, and wait for the sums between them. O(nodes).
///
/// # Errors
/// A case without layers, and layers that so many devices cannot divide.
pub(super) fn tensor_parallel(case: &Case) -> Result<FormCost, FormError> {
    if case.devices == 1 {
        return Ok(FormCost { form: Form::TensorParallel, ..alone(case) });
    }
    let (graph, precision) = case.layers.ok_or(FormError::NoLayers)?;
    let shard = graph.divided(case.devices, false)?;
    let costs = Costs::new(&shard, case.cluster, case.work.samples, precision);
    let work = Workload::of(&shard, &costs);
    let pass = training_graph(&shard, &shard.division(&[]), StageId(0), BackwardStyle::Fused);
    let others = u64::from(case.devices - 1);
    let (mut line, mut traffic, mut communications) = (Line::new(0), Bytes::ZERO, 0);
    for computation in &pass.computations {
        line.then(doing(computation), costs.node(computation.node).of(computation.kind));
        if let Some(summed) = computation.writes.first().filter(|_| computation.reduces) {
            line.then(Doing::Communication, costs.node(computation.node).sum_of(computation.kind));
            let bytes = pass.values[summed.index()].extent.bytes(case.work.samples);
            traffic += Bytes(bytes.0 / if precision.is_half() { 2 } else { 1 }) * (2 * others);
            communications += 1;
        }
    }
    let parameters = work.parameters();
    line.then(Doing::Update, case.update(parameters, 1));
    let stash = work.items.iter().map(|item| item.stash).sum::<Bytes>();
    let of = |device| line.parts.iter().map(move |part| Part { device, ..*part });
    Ok(FormCost {
        form: Form::TensorParallel,
        devices: case.devices,
        step: line.now,
        peak: case.state_bytes(parameters, 1, Sharding::Whole) + stash,
        traffic,
        communications,
        parts: (0..case.devices).flat_map(of).collect(),
    })
}

fn doing(computation: &Computation) -> Doing {
    match computation.kind {
        ComputationKind::Forward | ComputationKind::PartialLoss => Doing::Forward,
        _ => Doing::Backward,
    }
}
