//! The network: operations on tensors with real shapes, in topological order.
//!
//! ```
//! use pipewright_core::graph::GraphBuilder;
//!
//! let mut g = GraphBuilder::new("mlp");
//! g.layer("hidden");
//! let x = g.input(vec![64]);
//! let x = g.linear("fc1", x, 32);
//! let x = g.relu("relu", x);
//! g.layer("head");
//! let logits = g.linear("fc2", x, 10);
//! g.loss(logits, 10);
//! let graph = g.finish()?;
//! assert_eq!(graph.trainable_elements(), (64 + 1) * 32 + (32 + 1) * 10);
//! assert_eq!(graph.layers().len(), 2, "places where the network can be cut");
//! # Ok::<(), pipewright_core::graph::GraphError>(())
//! ```

pub mod autodiff;
mod build;
mod divide;
mod elements;
mod expert_parallel;
mod op;
mod precision;
pub mod presets;
mod sample;
mod tensor;
mod tensor_parallel;

pub use build::{Conv, GraphBuilder};
pub use divide::{Crossing, Division, Section};
pub use expert_parallel::{ExpertParallel, ExpertParallelError};
pub(crate) use op::OPAQUE_FLOPS_MAX;
pub use op::{
    Function, Init, Interpolation, Kept, Op, Pair, ParamSpec, RopeScaling, Window, rope_frequency,
};
pub use precision::Precision;
pub use sample::{InputSpec, SampleSpec, TargetSpec};
pub use tensor::{DType, TensorSpec};
pub use tensor_parallel::{ParallelLinear, ParamShards, TensorParallel, TensorParallelError};

use crate::ids::{NodeId, ParamId};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use thiserror::Error;

/// One operation of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique name, with torchvision's module path where it has the model.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// The nodes it reads, all before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<NodeId>,
    /// Shape of the value of one sample.
    pub output: TensorSpec,
    /// Its parameters, in the order of [`Op::params`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamId>,
}

/// One parameter tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// Unique name: the node's and the parameter's, `layer1.0.conv1.weight`.
    pub name: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// First values.
    pub init: Init,
    /// Whether the optimizer changes it.
    pub trainable: bool,
}

impl Param {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// Nodes that belong together: a layer, a residual block. A cut enters them where that is asked for, or
/// where it makes a step shorter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Name shown to people.
    pub name: String,
    /// Index of its first node; it ends where the next layer begins.
    pub first_node: NodeId,
}

/// A network. [`Graph::new`] is the only door: what it lets through is never checked again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "GraphParts"))]
#[serde(try_from = "GraphParts", into = "GraphParts")]
pub struct Graph {
    name: String,
    nodes: Vec<Node>,
    params: Vec<Param>,
    layers: Vec<Layer>,
    /// Of a shard: how a tensor group divides the network. In no file; a plan has the degree.
    tensor_parallel: Option<Box<TensorParallel>>,
    /// How replicas divide its experts, likewise.
    expert_parallel: Option<Box<ExpertParallel>>,
}

/// The unchecked contents of a [`Graph`], as they stand in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GraphParts {
    /// Name of the model.
    pub name: String,
    /// Operations in topological order.
    pub nodes: Vec<Node>,
    /// Parameters.
    pub params: Vec<Param>,
    /// Layers in order; the first begins at node 0.
    pub layers: Vec<Layer>,
}

/// Why some nodes are not a network.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GraphError {
    /// No operation at all.
    #[error("the graph has no nodes")]
    Empty,
    /// A node reads a value that does not exist yet.
    #[error("node `{node}` reads node {input}, which does not come before it")]
    Order {
        /// The reader.
        node: String,
        /// The node it names.
        input: NodeId,
    },
    /// Shapes or parameters that the operation does not accept.
    #[error("node `{node}` ({op}): {why}")]
    Node {
        /// Name of the node.
        node: String,
        /// Its operation.
        op: &'static str,
        /// What does not fit.
        why: String,
    },
    /// A name that two things share.
    #[error("the name `{name}` is used twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// Layers that do not tile the nodes.
    #[error("layer `{layer}`: {why}")]
    Layer {
        /// Name of the layer.
        layer: String,
        /// What does not fit.
        why: &'static str,
    },
}

impl Graph {
    /// Checks order, shapes, parameters, names and layers.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn new(parts: GraphParts) -> Result<Self, GraphError> {
        Self::checked(parts, None, None)
    }

    /// What a rank of a tensor group computes: its loss may have a part of the logits.
    fn of_shard(parts: GraphParts, of_group: TensorParallel) -> Result<Self, GraphError> {
        Self::checked(parts, Some(Box::new(of_group)), None)
    }

    fn checked(
        parts: GraphParts,
        tensor_parallel: Option<Box<TensorParallel>>,
        expert_parallel: Option<Box<ExpertParallel>>,
    ) -> Result<Self, GraphError> {
        let GraphParts { name, nodes, params, layers } = parts;
        if nodes.is_empty() {
            return Err(GraphError::Empty);
        }
        let mut owned = 0;
        let axes = Axes { tensor: tensor_parallel.as_deref(), experts: expert_parallel.as_deref() };
        for (i, node) in nodes.iter().enumerate() {
            check_node(i, node, (&nodes, &params, axes), &mut owned)?;
            if tensor_parallel.is_none() && expert_parallel.is_none() {
                check_classes(node, &nodes)?;
                check_experts(node, &nodes)?;
            }
        }
        if owned != params.len() {
            return Err(GraphError::Node {
                node: params[owned].name.clone(),
                op: "parameter",
                why: "belongs to no node".into(),
            });
        }
        unique(nodes.iter().map(|n| &n.name))?;
        unique(params.iter().map(|p| &p.name))?;
        check_layers(&layers, nodes.len() as u32)?;
        Ok(Self { name, nodes, params, layers, tensor_parallel, expert_parallel })
    }

    /// Name of the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All nodes in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All parameters.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// One parameter.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[id.index()]
    }

    /// The layers.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The nodes of layer `index`.
    pub fn layer_nodes(&self, index: usize) -> Range<u32> {
        let end = self.layers.get(index + 1).map_or(self.nodes.len() as u32, |l| l.first_node.0);
        self.layers[index].first_node.0..end
    }

    /// Specs of a node's inputs.
    pub fn input_specs(&self, node: &Node) -> Vec<&TensorSpec> {
        node.inputs.iter().map(|id| &self.node(*id).output).collect()
    }

    /// Floating-point operations of one sample's forward pass.
    pub fn forward_flops(&self) -> u64 {
        self.flops_of(&self.nodes)
    }

    /// Floating-point operations of one sample's forward pass through some of the nodes.
    pub fn flops_of(&self, nodes: &[Node]) -> u64 {
        let flops = nodes.iter().map(|n| n.op.forward_flops(&self.input_specs(n), &n.output));
        flops.fold(0, u64::saturating_add)
    }

    /// Operations that nothing tells the price of: predictions are made without them.
    pub fn unpriced(&self) -> usize {
        self.nodes.iter().filter(|n| matches!(n.op, Op::Opaque { unpriced: true, .. })).count()
    }

    /// The node of the loss, when there is one.
    pub fn loss(&self) -> Option<NodeId> {
        self.find(Op::is_loss)
    }

    /// The linear layer whose outputs the loss judges, by way of operations of one input that have no
    /// parameters; none where something else makes them.
    pub fn head(&self) -> Option<NodeId> {
        let mut id = *self.node(self.loss()?).inputs.first()?;
        loop {
            let node = self.node(id);
            match (&node.op, &node.inputs[..]) {
                (Op::Linear { .. }, _) => return Some(id),
                (_, [input]) if node.params.is_empty() => id = *input,
                _ => return None,
            }
        }
    }

    fn find(&self, wanted: impl Fn(&Op) -> bool) -> Option<NodeId> {
        self.nodes.iter().position(|n| wanted(&n.op)).map(|i| NodeId(i as u32))
    }
}

impl TryFrom<GraphParts> for Graph {
    type Error = GraphError;
    fn try_from(parts: GraphParts) -> Result<Self, GraphError> {
        Self::new(parts)
    }
}

impl From<Graph> for GraphParts {
    fn from(graph: Graph) -> Self {
        let Graph { name, nodes, params, layers, .. } = graph;
        Self { name, nodes, params, layers }
    }
}

/// What divides a network.
#[derive(Clone, Copy)]
struct Axes<'a> {
    tensor: Option<&'a TensorParallel>,
    experts: Option<&'a ExpertParallel>,
}

impl Axes<'_> {
    /// What a node gives, where that is not its output.
    fn result(&self, node: usize) -> Option<&TensorSpec> {
        let rows = self.experts.and_then(|experts| experts.result(node));
        rows.or_else(|| self.tensor.and_then(|tensor| tensor.result(node)))
    }
}

fn check_node(
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
fn check_classes(node: &Node, nodes: &[Node]) -> Result<(), GraphError> {
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
fn check_experts(node: &Node, nodes: &[Node]) -> Result<(), GraphError> {
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

fn unique<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), GraphError> {
    let mut sorted: Vec<&String> = names.collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(GraphError::Duplicate { name: pair[0].clone() }),
        None => Ok(()),
    }
}

fn check_layers(layers: &[Layer], nodes: u32) -> Result<(), GraphError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn two_layers() -> GraphParts {
        let mut b = GraphBuilder::new("two");
        b.layer("fc1");
        let x = b.input(vec![4]);
        let h = b.linear("fc1", x, 3);
        b.layer("fc2");
        let y = b.linear("fc2", h, 2);
        b.loss(y, 2);
        b.finish().unwrap().into()
    }

    #[test]
    fn a_file_that_lies_about_a_shape_is_refused() {
        let mut parts = two_layers();
        parts.nodes[1].output.shape = vec![5];
        let error = Graph::new(parts).unwrap_err().to_string();
        assert_eq!(error, "node `fc1` (linear): gives f32[3], the file says f32[5]");
    }

    #[test]
    fn forward_references_and_double_names_are_refused() {
        let mut parts = two_layers();
        parts.nodes[1].inputs = vec![NodeId(2)];
        assert!(matches!(Graph::new(parts), Err(GraphError::Order { .. })));
        let mut parts = two_layers();
        parts.nodes[2].name = "fc1".into();
        assert!(matches!(Graph::new(parts), Err(GraphError::Duplicate { .. })));
    }

    #[test]
    fn layers_must_tile_the_nodes() {
        let mut parts = two_layers();
        parts.layers[1].first_node = NodeId(40);
        assert!(matches!(Graph::new(parts), Err(GraphError::Layer { .. })));
    }

    #[test]
    fn json_round_trips() {
        let graph = Graph::new(two_layers()).unwrap();
        let text = serde_json::to_string(&graph).unwrap();
        assert_eq!(serde_json::from_str::<Graph>(&text).unwrap(), graph);
    }
}
