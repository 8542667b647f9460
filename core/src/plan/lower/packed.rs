//! Values that are stored in half the bytes, and their sizes.

use super::Inputs;
use crate::cost::Halves;
use crate::graph::autodiff::{Computation, Role, TrainingGraph, Value};
use crate::graph::{DType, Graph};
use crate::ids::{NodeId, ValueId};
use crate::plan::Precision;
use crate::units::Bytes;
use std::collections::BTreeSet;

/// Whether a value is stored in two bytes an element: activations, gradients and partial sums of theirs are; samples, targets, statistics
/// and losses are not.
///
/// A stage's value must be stored alike at both ends of a message, so this asks the graph and not
/// the stage: a view is stored as what it shows.
pub(super) fn is_packed(precision: Precision, graph: &Graph, value: &Value) -> bool {
    if !precision.is_half() {
        return false;
    }
    match value.role {
        Role::Gradient | Role::Partial => true,
        Role::Activation => {
            let origin = graph.node(origin(graph, value.node));
            !origin.op.is_source() && origin.output.dtype == DType::F32
        }
        Role::Saved | Role::Loss => false,
    }
}

/// Bytes in which a value is stored.
pub(in crate::plan) fn stored(inputs: &Inputs, value: &Value) -> Bytes {
    let whole = value.extent.bytes(inputs.samples);
    match is_packed(inputs.training.precision, inputs.graph, value) {
        true => packed(whole),
        false => whole,
    }
}

/// The node whose output a chain of views shows.
fn origin(graph: &Graph, node: NodeId) -> NodeId {
    let mut node = node;
    while graph.node(node).op.is_view() {
        node = graph.node(node).inputs[0];
    }
    node
}

/// Bytes of a packed value: two for each element of four, in whole words.
fn packed(bytes: Bytes) -> Bytes {
    Bytes((bytes.0 / 2).next_multiple_of(4))
}

/// The packed values that each computation reads or writes and finds unpacked in memory of its own. Each once, by
/// computation. What ranks exchange they take as it lies, and so do devices that can; but a partial sum may be added up
/// by hosts, which do it in single precision.
pub(super) fn staged(
    graph: &TrainingGraph,
    halves: Halves,
    is_packed: impl Fn(ValueId) -> bool,
) -> Vec<(usize, ValueId)> {
    let mut staged = vec![];
    let unpacked = |computation: &Computation, value: ValueId| match halves {
        Halves::Unpacked => true,
        Halves::AsTheyLie => computation.reduces && computation.writes.first() == Some(&value),
    };
    let computes = |(_, computation): &(usize, &Computation)| !computation.kind.is_exchange();
    for (at, computation) in graph.computations.iter().enumerate().filter(computes) {
        let values = computation.reads.iter().chain(&computation.writes).copied();
        let values = values.filter(|value| is_packed(*value) && unpacked(computation, *value));
        let values: BTreeSet<ValueId> = values.collect();
        staged.extend(values.into_iter().map(|value| (at, value)));
    }
    staged
}
