//! Building graphs in code: names, shapes and parameters follow from the operations.

use super::{
    Function, Graph, GraphError, GraphParts, Layer, Node, Op, Pair, Param, TensorSpec, Window,
};
use crate::ids::{NodeId, ParamId};

/// Adds nodes in topological order. The first error is kept and reported by [`Self::finish`].
pub struct GraphBuilder {
    parts: GraphParts,
    error: Option<GraphError>,
}

impl GraphBuilder {
    /// An empty graph of that name.
    pub fn new(name: impl Into<String>) -> Self {
        let parts = GraphParts { name: name.into(), nodes: vec![], params: vec![], layers: vec![] };
        Self { parts, error: None }
    }

    /// The nodes added from here on belong to the layer `name`.
    pub fn layer(&mut self, name: impl Into<String>) {
        let first_node = NodeId(self.parts.nodes.len() as u32);
        self.parts.layers.push(Layer { name: name.into(), first_node });
    }

    /// Adds a node; returns its id.
    pub fn add(&mut self, name: impl Into<String>, op: Op, inputs: &[NodeId]) -> NodeId {
        let name = name.into();
        let specs: Vec<&TensorSpec> =
            inputs.iter().map(|id| &self.parts.nodes[id.index()].output).collect();
        let output = op.infer(&specs).unwrap_or_else(|why| {
            let refused = GraphError::Node { node: name.clone(), op: op.name(), why };
            self.error.get_or_insert(refused);
            TensorSpec::f32(vec![1, 1, 1])
        });
        let mut params = vec![];
        if self.error.is_none() {
            for spec in op.params(&specs) {
                params.push(ParamId(self.parts.params.len() as u32));
                self.parts.params.push(Param {
                    name: format!("{name}.{}", spec.suffix),
                    shape: spec.shape,
                    init: spec.init,
                    trainable: spec.trainable,
                });
            }
        }
        let id = NodeId(self.parts.nodes.len() as u32);
        self.parts.nodes.push(Node { name, op, inputs: inputs.to_vec(), output, params });
        id
    }

    /// The samples.
    pub fn input(&mut self, shape: Vec<u64>) -> NodeId {
        self.add("input", Op::Input { shape }, &[])
    }

    /// A fully connected layer with bias.
    pub fn linear(&mut self, name: &str, x: NodeId, out_features: u64) -> NodeId {
        self.add(name, Op::Linear { out_features, bias: true }, &[x])
    }

    /// A rectifier.
    pub fn relu(&mut self, name: &str, x: NodeId) -> NodeId {
        self.add(name, Op::Relu, &[x])
    }

    /// A square convolution without groups or dilation.
    pub fn conv(&mut self, name: &str, x: NodeId, out: u64, shape: Conv) -> NodeId {
        let Conv { kernel, stride, padding, bias } = shape;
        let op = Op::Conv2d {
            out_channels: out,
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [padding; 2],
            dilation: [1; 2],
            groups: 1,
            bias,
        };
        self.add(name, op, &[x])
    }

    /// A square maximum pooling.
    pub fn max_pool(&mut self, name: &str, x: NodeId, kernel: u64, stride: u64) -> NodeId {
        let square = |n: u64| -> Pair { [n; 2] };
        let padding = square(if kernel > stride { kernel / 2 } else { 0 });
        let window =
            Window { kernel: square(kernel), stride: square(stride), padding, ceil_mode: false };
        self.add(name, Op::MaxPool2d { window }, &[x])
    }

    /// A target for each of `count` positions and the loss, in the current layer.
    pub fn losses(&mut self, logits: NodeId, count: u64, classes: u64) {
        let targets = self.add("target", Op::Targets { count, classes }, &[]);
        self.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.0 }, &[logits, targets]);
    }

    /// An element-wise function.
    pub fn activation(&mut self, name: &str, function: Function, x: NodeId) -> NodeId {
        self.add(name, Op::Activation { function }, &[x])
    }

    /// The first parameter of a node that was added without error.
    pub fn weight(&self, node: NodeId) -> ParamId {
        self.parts.nodes[node.index()].params.first().copied().unwrap_or_default()
    }

    /// Channels, or features: the first axis of a node's value.
    pub fn channels(&self, node: NodeId) -> u64 {
        self.parts.nodes[node.index()].output.shape.first().copied().unwrap_or(1)
    }

    /// The target and the loss, in the current layer.
    pub fn loss(&mut self, logits: NodeId, classes: u64) {
        let target = self.add("target", Op::Target { classes }, &[]);
        self.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.0 }, &[logits, target]);
    }

    /// The graph.
    ///
    /// # Errors
    /// The first error of any call.
    pub fn finish(self) -> Result<Graph, GraphError> {
        match self.error {
            Some(error) => Err(error),
            None => Graph::new(self.parts),
        }
    }
}

/// Sizes of a square convolution.
#[derive(Clone, Copy)]
pub struct Conv {
    /// Side of the kernel.
    pub kernel: u64,
    /// Step.
    pub stride: u64,
    /// Zeros on each side.
    pub padding: u64,
    /// Whether a bias exists.
    pub bias: bool,
}
