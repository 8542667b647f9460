//! Values that live on because a device does what follows in the same kernel, which reads and writes at the same time.

use super::Inputs;
use crate::cost::Halves;
use crate::graph::Op;
use crate::graph::autodiff::{Computation, ComputationKind, TrainingGraph};
use crate::ids::ValueId;

/// Values that outlive their last reader, each with the computation until which it lives. A device does the gradients of
/// a pooling and of the ReLU before it in one kernel, which writes the latter while it still reads what the former reads.
/// Whatever else is done together (`runner/src/device/fused_group.rs`) reads an element where it writes it.
pub(in crate::plan) fn held(inputs: &Inputs, graph: &TrainingGraph) -> Vec<(usize, ValueId)> {
    let mut held = vec![];
    if inputs.halves == Halves::Unpacked {
        return held;
    }
    let op = |computation: &Computation| &inputs.graph.node(computation.node).op;
    for (at, pair) in (1..).zip(graph.computations.windows(2)) {
        let [pooling, rectifier] = pair else { continue };
        let are_gradients = pair.iter().all(|c| c.kind == ComputationKind::InputGradient);
        let are_these = matches!(op(pooling), Op::MaxPool2d { .. } | Op::AvgPool2d { .. })
            && matches!(op(rectifier), Op::Relu);
        if are_gradients && are_these && rectifier.reads.contains(&pooling.writes[0]) {
            held.extend(pooling.reads.iter().map(|value| (at, *value)));
        }
    }
    held
}
