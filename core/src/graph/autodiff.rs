//! A stage's forward graph becomes its training graph: forward, input-gradient and
//! weight-gradient computations with every value they pass explicit.
//!
//! Gradients of a value with several readers are summed from the last reader to the first,
//! whatever stages the readers are on, so that every split adds the same numbers in the same
//! order: `((g_last + ..) + g_first)`.

mod backward;
mod flow;
mod sequence;
mod tensor_group;
#[cfg(test)]
mod tests;
mod winograd;
mod workspace;

pub use sequence::{Part, SequenceError};
pub use tensor_group::PARTIAL_LOSS_WORDS;
pub(crate) use tensor_group::partial_loss;
pub use winograd::{FREQUENCIES, TileBlock, Winograd};
pub use workspace::{attention_rows, samples_together};

use flow::Flow;
use workspace::workspace;

use super::{Crossing, DType, Division, Graph, Op, ParallelLinear, TensorSpec};
use crate::ids::{NodeId, StageId, ValueId};
use crate::units::Bytes;

/// What one stage computes for one micro-batch, in an order that works.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingGraph {
    /// All tensors, except parameters and their gradients.
    pub values: Vec<Value>,
    /// Computations in execution order.
    pub computations: Vec<Computation>,
    /// Computations before this index are the forward pass.
    pub forward_end: u32,
    /// Before this index every gradient that the previous stages wait for exists. With a fused
    /// backward pass it is the end.
    pub input_gradient_end: u32,
    /// Values loaded from the data set.
    pub loads: Vec<ValueId>,
    /// Activations received before the forward pass.
    pub receives: Vec<Port>,
    /// Activations sent after the forward pass.
    pub sends: Vec<Port>,
    /// Gradients received before the backward pass.
    pub gradient_receives: Vec<Port>,
    /// Gradients sent after the input-gradient part.
    pub gradient_sends: Vec<Port>,
    /// Loss of the micro-batch (summed, f32) and number of correct predictions (u32).
    pub loss: Option<ValueId>,
}

/// A value at the border of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The value here.
    pub value: ValueId,
    /// The node whose activation, or whose activation's gradient, it is.
    pub node: NodeId,
    /// Which of the node's readers a gradient comes from (the last of those summed into it).
    pub use_index: u32,
    /// The stage at the other end.
    pub peer: StageId,
}

/// A tensor of the training graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The node that it belongs to.
    pub node: NodeId,
    /// What it is.
    pub role: Role,
    /// How large it is.
    pub extent: Extent,
}

/// What a value is to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The node's output.
    Activation,
    /// Gradient of the loss in the node's output, or one reader's contribution to it.
    Gradient,
    /// A partial sum of either, of which each rank of a tensor group gets a slice once it is added up.
    Partial,
    /// What the forward pass keeps for the backward pass besides activations: positions of
    /// maxima, batch statistics, those of a loss.
    Saved,
    /// Loss and number of correct predictions.
    Loss,
}

/// Size as a function of the micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of one sample.
    pub per_sample: Bytes,
    /// Bytes whatever the number of samples.
    pub fixed: Bytes,
}

impl Extent {
    /// Bytes for `samples` samples.
    pub fn bytes(self, samples: u64) -> Bytes {
        self.per_sample * samples + self.fixed
    }

    fn per_sample(bytes: Bytes) -> Self {
        Self { per_sample: bytes, fixed: Bytes::ZERO }
    }

    fn fixed(bytes: Bytes) -> Self {
        Self { per_sample: Bytes::ZERO, fixed: bytes }
    }
}

/// Which part of the training step a computation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComputationKind {
    /// The node's operation.
    Forward,
    /// Gradient of its inputs.
    InputGradient,
    /// Gradient of its parameters, added to what earlier micro-batches left.
    WeightGradient,
    /// Sum of the contributions of the node's readers.
    SumGradients,
    /// What of a loss follows from the logits that this rank of a tensor group has: a few numbers a position, at the
    /// rank's place among those of all ranks. Their sum has all of them.
    PartialLoss,
    /// All of a value, of which each rank of a tensor group has a slice; of a gradient likewise.
    AllGather,
    /// The sum of what the ranks have of a value or a gradient, of which each gets its slice.
    ReduceScatter,
    /// The rank's slice of what all have.
    Scatter,
    /// Rows of a replica's tokens for all experts become rows of its experts from all replicas of an expert group; of
    /// gradients likewise. All-to-all.
    RowsToExperts,
    /// The way back.
    RowsToTokens,
}

impl ComputationKind {
    /// Whether ranks of a group only give each other what they have.
    pub fn is_exchange(self) -> bool {
        matches!(self, Self::AllGather | Self::ReduceScatter | Self::Scatter)
            || self.is_all_to_all()
    }

    /// Whether replicas of an expert group do.
    pub fn is_all_to_all(self) -> bool {
        matches!(self, Self::RowsToExperts | Self::RowsToTokens)
    }

    /// How a gradient goes back that a value came by.
    fn back(self) -> Self {
        match self {
            Self::RowsToExperts => Self::RowsToTokens,
            Self::RowsToTokens => Self::RowsToExperts,
            _ => Self::AllGather,
        }
    }
}

/// One kernel call. What it reads and writes, by operation:
///
/// | operation | forward | input gradient | weight gradient |
/// |---|---|---|---|
/// | linear, conv2d | x -> y | gy -> gx | x, gy |
/// | relu | x -> y | y, gy -> gx | |
/// | max_pool2d | x -> y, indices | indices, gy -> gx | |
/// | avg_pool2d, global_avg_pool | x -> y | gy -> gx | |
/// | batch_norm2d | x -> y, mean and 1/std | x, gy, saved -> gx | x, gy, saved |
/// | add | a, b -> y | none: both inputs share gy | |
/// | add, subtract with broadcasting | a, b -> y | gy -> ga, gb: those that are no copy of gy | |
/// | softmax_cross_entropy | logits, target -> loss, statistics | logits, target, statistics -> g | |
/// | softmax_cross_entropy in a tensor group | partial loss: logits, target -> numbers; logits, target, numbers -> loss, statistics | as above | |
/// | sigmoid_cross_entropy, mean_squared_error | prediction, target -> loss | prediction, target -> g | |
/// | embedding | tokens -> y | none: tokens have no gradient | tokens, gy |
/// | tied_linear | x -> y | gy -> gx | x, gy |
/// | layer_norm, rms_norm, group_norm | x -> y, statistics | x, gy, saved -> gx | x, gy, saved |
/// | instance_norm2d, local_response_norm | x -> y, statistics | x, gy, saved -> gx | |
/// | attention | qkv -> y, log-sum-exp | qkv, y, gy, saved -> gqkv | |
/// | scaled_dot_product | q, k, v -> y, log-sum-exp | q, k, v, y, gy, saved -> gq, gk, gv | |
/// | activation: functions whose gradient follows from the output | x -> y | y, gy -> gx | |
/// | activation: the others, clip | x -> y | x, gy -> gx | |
/// | softmax, log_softmax | x -> y | y, gy -> gx | |
/// | multiply, divide, matmul, swiglu | a, b -> y | a, b, gy -> ga, gb | |
/// | concat, slice, permute, reduce_mean, upsample, first_position, rope | x.. -> y | gy -> gx.. | |
/// | token_position | x, tokens -> y | tokens, gy -> gx | |
/// | affine, dropout | x -> y | gy -> gx | |
/// | top_k_softmax | x -> y | x, y, gy -> gx | |
/// | dispatch | x, shares -> y | shares, gy -> gx | |
/// | grouped_linear | x -> y | gy -> gx | x, gy |
/// | combine | shares, rows -> y | shares, rows, gy -> gshares, grows | |
/// | conv_transpose2d | x -> y | gy -> gx | x, gy |
/// | parameter | -> y | | gy |
/// | opaque | x.. -> y, what it keeps | what it keeps (else x..), gy -> gx.. | likewise |
///
/// Of an operation with several inputs only those gradients are written that training needs: see
/// [`Computation::wanted`]. `SumGradients` reads the contributions in the order in which they are added, and writes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Computation {
    /// Whose.
    pub node: NodeId,
    /// Which part.
    pub kind: ComputationKind,
    /// Values read, in the order of the table above.
    pub reads: Vec<ValueId>,
    /// Values written, likewise.
    pub writes: Vec<ValueId>,
    /// Of an input gradient: bit `i` is set when the gradient of input `i` is written.
    pub wanted: u64,
    /// Scratch memory, free again when the computation ends.
    pub workspace: Extent,
    /// Whether the first value that it writes is a partial sum, which the tensor group adds up: see
    /// [`crate::graph::ParallelLinear`]. A weight gradient writes none: the group adds its parameters' gradients
    /// up, once a step, where ranks have slices of what it reads.
    pub reduces: bool,
    /// Whether it was done before and its result not kept, see [`TrainingGraph::in_sequence`]: it
    /// writes the same numbers again and leaves no other trace.
    pub again: bool,
}

/// How a stage runs its backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackwardStyle {
    /// Both parts of a node together: least memory.
    Fused,
    /// All input gradients first, then all weight gradients, as I and W actions need.
    Split,
}

/// Derives the training graph of stage `stage` of `division`. Linear in the whole graph.
pub fn training_graph(
    graph: &Graph,
    division: &Division,
    stage: StageId,
    style: BackwardStyle,
) -> TrainingGraph {
    Context::new(graph, division, &Flow::new(graph)).training_graph(stage, style)
}

/// Those of all stages, in order. Linear in the graph and in what crosses.
pub fn training_graphs(
    graph: &Graph,
    division: &Division,
    style: BackwardStyle,
) -> Vec<TrainingGraph> {
    let flow = Flow::new(graph);
    let mut context = Context::new(graph, division, &flow);
    let stages = (0..division.stages.len() as u32).map(StageId);
    stages.map(|stage| context.training_graph(stage, style)).collect()
}

/// What is being built; entries of nodes of the stage, and of what it receives, are set.
struct Context<'a> {
    graph: &'a Graph,
    division: &'a Division,
    flow: &'a Flow,
    stage: StageId,
    /// The value that holds a node's output here, where there is one.
    activation: Vec<Option<ValueId>>,
    saved: Vec<Option<ValueId>>,
    /// The node's output as readers of all of it, or of a slice, have it in the pass that is being built.
    exchanged: Vec<Option<ValueId>>,
    /// The same in the weight-gradient part, where that is a pass of its own.
    exchanged_late: Vec<Option<ValueId>>,
    /// Contributions to a node's gradient known so far: (use index, value).
    contributions: Vec<Vec<(u32, ValueId)>>,
    out: TrainingGraph,
}

impl<'a> Context<'a> {
    fn new(graph: &'a Graph, division: &'a Division, flow: &'a Flow) -> Self {
        let count = graph.nodes().len();
        Self {
            graph,
            division,
            flow,
            stage: StageId(0),
            activation: vec![None; count],
            saved: vec![None; count],
            exchanged: vec![None; count],
            exchanged_late: vec![None; count],
            contributions: vec![vec![]; count],
            out: TrainingGraph::default(),
        }
    }

    /// That of a stage; the context is as before afterwards.
    fn training_graph(&mut self, stage: StageId, style: BackwardStyle) -> TrainingGraph {
        self.stage = stage;
        self.forward();
        self.forget_exchanged();
        self.backward(style);
        self.forget_exchanged();
        let received = self.division.received_by(stage).map(|crossing| crossing.node.0);
        for node in self.division.stages[stage.index()].clone().chain(received) {
            let node = node as usize;
            (self.activation[node], self.saved[node]) = (None, None);
            self.contributions[node].clear();
        }
        std::mem::take(&mut self.out)
    }

    fn value(&mut self, node: NodeId, role: Role, extent: Extent) -> ValueId {
        self.out.values.push(Value { node, role, extent });
        ValueId(self.out.values.len() as u32 - 1)
    }

    fn activation_extent(&self, node: NodeId) -> Extent {
        Extent::per_sample(self.graph.node(node).output.bytes())
    }

    /// The value of a node's output; every input exists because nodes are in topological order.
    fn input(&self, node: NodeId) -> ValueId {
        self.activation[node.index()].expect("computed or received before it is read")
    }

    fn forward(&mut self) {
        let incoming: Vec<Crossing> = self.division.received_by(self.stage).copied().collect();
        for crossing in incoming {
            let extent = self.activation_extent(crossing.node);
            let value = self.value(crossing.node, Role::Activation, extent);
            self.activation[crossing.node.index()] = Some(value);
            let node = crossing.node;
            self.out.receives.push(Port { value, node, use_index: 0, peer: crossing.from });
        }
        for id in self.division.stages[self.stage.index()].clone().map(NodeId) {
            self.forward_node(id);
        }
        self.out.forward_end = self.out.computations.len() as u32;
        let outgoing: Vec<Crossing> = self.division.sent_by(self.stage).copied().collect();
        for Crossing { node, to, .. } in outgoing {
            let value = self.input(node);
            self.out.sends.push(Port { value, node, use_index: 0, peer: to });
        }
    }

    fn forward_node(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        if node.op.is_view() {
            self.activation[id.index()] = Some(self.operand(id, node.inputs[0]));
            return;
        }
        let mut reads: Vec<ValueId> = node.inputs.iter().map(|i| self.operand(id, *i)).collect();
        if node.op.is_loss() {
            reads.extend(self.partial_loss(id, &reads));
            let loss = self.value(id, Role::Loss, Extent::fixed(Bytes(8)));
            self.out.loss = Some(loss);
            self.activation[id.index()] = Some(loss);
        } else {
            let extent = self.activation_extent(id);
            let value = self.value(id, Role::Activation, extent);
            self.activation[id.index()] = Some(value);
        }
        let output = self.input(id);
        if node.op.is_source() {
            self.out.loads.push(output);
            return;
        }
        let exchange = self.exchange_behind(id);
        let result = if exchange.is_some() { self.partial(id) } else { output };
        let mut writes = vec![result];
        if let Some(extent) = saved_extent(self.graph, id) {
            let value = self.value(id, Role::Saved, extent);
            self.saved[id.index()] = Some(value);
            writes.push(value);
        }
        let workspace = workspace(self.graph, node);
        let kind = ComputationKind::Forward;
        let wanted = 0;
        let again = false;
        let of_group = self.graph.parallel_linear(id);
        let reduces = exchange.is_none()
            && matches!(of_group, Some(ParallelLinear::Row | ParallelLinear::Vocabulary));
        let forward =
            Computation { node: id, kind, reads, writes, wanted, workspace, reduces, again };
        self.out.computations.push(forward);
        if let Some(kind) = exchange {
            let exchange = self.exchange(id, kind, [result, output]);
            self.out.computations.push(exchange);
        }
    }
}

/// What the forward pass keeps besides activations.
fn saved_extent(graph: &Graph, id: NodeId) -> Option<Extent> {
    let node = graph.node(id);
    match node.op {
        Op::MaxPool2d { .. } => {
            Some(Extent::per_sample(DType::U32.bytes() * node.output.elements()))
        }
        Op::BatchNorm2d { .. } => Some(Extent::fixed(Bytes(8) * node.output.shape[0])),
        // The largest logit of each position, and 1 / the sum of exponentials less that.
        Op::SoftmaxCrossEntropy { .. } => {
            Some(Extent::per_sample(Bytes(8) * positions(graph.operand(id, node.inputs[0]))))
        }
        // Mean and 1/std, or 1/rms, of each position; of each channel.
        Op::LayerNorm { .. } => Some(Extent::per_sample(Bytes(8) * positions(&node.output))),
        Op::RmsNorm { .. } => Some(Extent::per_sample(Bytes(4) * positions(&node.output))),
        Op::InstanceNorm2d { .. } => Some(Extent::per_sample(Bytes(8) * node.output.shape[0])),
        Op::GroupNorm { groups, .. } => Some(Extent::per_sample(Bytes(8) * groups)),
        Op::LocalResponseNorm { .. } => Some(Extent::per_sample(node.output.bytes())),
        // The logarithm of each query's sum of exponentials.
        Op::Attention { heads, .. } => {
            Some(Extent::per_sample(Bytes(4) * heads * positions(&node.output)))
        }
        Op::ScaledDotProduct { .. } => Some(Extent::per_sample(Bytes(4) * positions(&node.output))),
        Op::Opaque { ref kept, .. } => {
            let saved = kept.as_ref().map_or(0, |kept| kept.saved);
            (saved > 0).then(|| Extent::per_sample(Bytes(saved)))
        }
        Op::Input { .. }
        | Op::Target { .. }
        | Op::Linear { .. }
        | Op::Conv2d { .. }
        | Op::AvgPool2d { .. }
        | Op::GlobalAvgPool
        | Op::Relu
        | Op::Flatten
        | Op::Add
        | Op::Tokens { .. }
        | Op::Targets { .. }
        | Op::Embedding { .. }
        | Op::Activation { .. }
        | Op::Multiply
        | Op::Concat { .. }
        | Op::Upsample { .. }
        | Op::FirstPosition
        | Op::TokenPosition { .. }
        | Op::TiedLinear { .. }
        | Op::Subtract
        | Op::Divide
        | Op::TargetValues { .. }
        | Op::SigmoidCrossEntropy
        | Op::MeanSquaredError
        | Op::Parameter { .. }
        | Op::MatMul { .. }
        | Op::ConvTranspose2d { .. }
        | Op::Clip { .. }
        | Op::Affine { .. }
        | Op::Softmax
        | Op::LogSoftmax
        | Op::Slice { .. }
        | Op::Permute { .. }
        | Op::Reshape { .. }
        | Op::ReduceMean { .. }
        | Op::Rope { .. }
        | Op::SwiGlu
        | Op::Dropout { .. }
        | Op::TopKSoftmax { .. }
        | Op::Dispatch { .. }
        | Op::GroupedLinear { .. }
        | Op::Combine => None,
    }
}

/// Vectors along the last axis of a tensor of one sample.
fn positions(spec: &TensorSpec) -> u64 {
    spec.elements() / spec.shape.last().copied().unwrap_or(1).max(1)
}
