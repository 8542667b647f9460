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
mod check;
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
use check::{Axes, check_classes, check_experts, check_layers, check_node, unique};
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
