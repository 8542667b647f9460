//! Checks of a network: shapes, parameters, classes, experts, names and layers.

use super::{ExpertParallel, GraphError, Layer, Node, Op, Param, TensorParallel, TensorSpec};
use crate::ids::NodeId;

/// What divides a network.
#[derive(Clone, Copy)]
pub(super) struct Axes<'a> {
    pub tensor: Option<&'a TensorParallel>,
    pub experts: Option<&'a ExpertParallel>,
}

impl Axes<'_> {
    /// What a node gives, where that is not its output.
    fn result(&self, node: usize) -> Option<&TensorSpec> {
        let rows = self.experts.and_then(|experts| experts.result(node));
        rows.or_else(|| self.tensor.and_then(|tensor| tensor.result(node)))
    }
}

pub(super) fn check_node(
    index: usize,
    node: &Node,
    (nodes, params, axes): (&[Node], &[Param], Axes),
    owned: &mut usize,
) -> Result<(), GraphError> {
    let refuse =
        |why: String| GraphError::Node { node: node.name.clone(), op: node.op.name(), why };
    if let Some(&input) = node.inputs.iter().find(|id| id.index() >= index) {
        return Err(GraphError::Order { node: node.name.clone(), input });
    }
    let operand = |input: &NodeId| {
        let other = axes.tensor.and_then(|tensor| tensor.operand(index, input.index()));
        other.unwrap_or(&nodes[input.index()].output)
    };
    let inputs: Vec<&TensorSpec> = node.inputs.iter().map(operand).collect();
    node.op.check_window().map_err(refuse)?;
    let output = node.op.infer(&inputs).map_err(refuse)?;
    check_size(&output.shape, MAX_ELEMENTS).map_err(refuse)?;
    if let Op::TiedLinear { weight, out_features } = node.op {
        let tied = params.get(weight.index()).filter(|_| weight.index() < *owned);
        if tied
            .is_none_or(|p| p.shape != [out_features, inputs[0].shape[inputs[0].shape.len() - 1]])
        {
            return Err(refuse(format!("parameter {weight} is no table before it that fits")));
        }
    }
    if &output != axes.result(index).unwrap_or(&node.output) {
        return Err(refuse(format!("gives {output}, the file says {}", node.output)));
    }
    let specs = node.op.params(&inputs);
    if specs.len() != node.params.len() {
        return Err(refuse(format!("has {} parameters, not {}", specs.len(), node.params.len())));
    }
    for (spec, id) in specs.iter().zip(&node.params) {
        if id.index() != *owned {
            return Err(refuse(format!("parameter {id} is out of order")));
        }
        let param = params.get(*owned).ok_or_else(|| refuse(format!("no parameter {id}")))?;
        check_size(&spec.shape, MAX_ELEMENTS).map_err(refuse)?;
        if param.shape != spec.shape {
            let why = format!("{} is {:?}, needs {:?}", param.name, param.shape, spec.shape);
            return Err(refuse(why));
        }
        *owned += 1;
    }
    Ok(())
}

/// A loss tells as many classes apart as its targets have.
pub(super) fn check_classes(node: &Node, nodes: &[Node]) -> Result<(), GraphError> {
    let [logits, target] = node.inputs[..] else { return Ok(()) };
    let (Op::Target { classes } | Op::Targets { classes, .. }) = nodes[target.index()].op else {
        return Ok(());
    };
    let logits = &nodes[logits.index()].output;
    let told = match node.op {
        Op::SoftmaxCrossEntropy { .. } => logits.shape.last().copied(),
        Op::SigmoidCrossEntropy => Some(2),
        _ => return Ok(()),
    };
    match told == Some(classes) {
        true => Ok(()),
        false => Err(GraphError::Node {
            node: node.name.clone(),
            op: node.op.name(),
            why: format!("{logits} cannot tell {classes} classes apart"),
        }),
    }
}

/// Whoever has rows of experts has those of all.
pub(super) fn check_experts(node: &Node, nodes: &[Node]) -> Result<(), GraphError> {
    let [x, y] = node.inputs[..] else { return Ok(()) };
    let [x, y] = [x, y].map(|input| &nodes[input.index()].output);
    let (some, shares) = match node.op {
        Op::Dispatch { experts, .. } => (Some(experts), y),
        Op::Combine => (y.shape.first().copied(), x),
        _ => return Ok(()),
    };
    match shares.shape.last().copied() == some {
        true => Ok(()),
        false => Err(GraphError::Node {
            node: node.name.clone(),
            op: node.op.name(),
            why: format!("{} experts of shares {shares}", some.unwrap_or(0)),
        }),
    }
}

/// Elements of one tensor beyond this are no network; below it, sizes count in 64 bits.
const MAX_ELEMENTS: u64 = 1 << 36;

fn check_size(shape: &[u64], elements_max: u64) -> Result<(), String> {
    let elements = shape.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
    match elements.filter(|n| *n <= elements_max) {
        Some(_) => Ok(()),
        None => Err(format!("a tensor of {shape:?} has more than {elements_max} elements")),
    }
}

pub(super) fn unique<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), GraphError> {
    let mut sorted: Vec<&String> = names.collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(GraphError::Duplicate { name: pair[0].clone() }),
        None => Ok(()),
    }
}

pub(super) fn check_layers(layers: &[Layer], nodes: u32) -> Result<(), GraphError> {
    let mut after = None;
    for layer in layers {
        let refuse = |why| GraphError::Layer { layer: layer.name.clone(), why };
        match after {
            None if layer.first_node.0 != 0 => {
                return Err(refuse("the first layer begins at node 0"));
            }
            Some(previous) if layer.first_node <= previous => {
                return Err(refuse("begins at or before the layer before it"));
            }
            _ => {}
        }
        if layer.first_node.0 >= nodes {
            return Err(refuse("begins after the last node"));
        }
        after = Some(layer.first_node);
    }
    match after {
        Some(_) => Ok(()),
        None => Err(GraphError::Layer { layer: "(none)".into(), why: "a graph needs layers" }),
    }
}
