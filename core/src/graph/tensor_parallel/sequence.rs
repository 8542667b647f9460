//! Sequence parallelism: slices of the positions, which ranks of a tensor group have between the pairs.
//!
//! After Korthikanti et al. 2022. Norms, dropout and sums of residuals look at each position by itself, so each rank
//! takes its part of them. What a pair reads is gathered before it, what it gives is summed and scattered behind
//! it: as many bytes travel as in a sum of all, and what is kept between the passes is divided. Whoever else
//! reads a slice gathers it too.

use super::super::{Graph, GraphParts, Node, Op, TensorSpec};
use super::{ParallelLinear, TensorParallel, TensorParallelError};
use crate::ids::NodeId;

/// Where ranks have slices, by node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slices {
    /// Whether the output is a slice.
    sliced: Vec<bool>,
    /// The output as others read it: of a slice the whole, of a whole the slice that something reads.
    other: Vec<Option<TensorSpec>>,
}

impl TensorParallel {
    /// Whether a rank has a slice of the output.
    fn is_sliced(&self, node: usize) -> bool {
        self.slices.as_ref().is_some_and(|slices| slices.sliced[node])
    }

    fn computes_slice(&self, node: usize) -> bool {
        self.is_sliced(node) && self.linears[node].is_none()
    }

    fn other(&self, node: usize) -> Option<&TensorSpec> {
        self.slices.as_ref().and_then(|slices| slices.other[node].as_ref())
    }

    /// What of `input` a reader reads, where that is not its output as it stands.
    pub(in crate::graph) fn operand(&self, reader: usize, input: usize) -> Option<&TensorSpec> {
        let differs = self.is_sliced(input) != self.computes_slice(reader);
        self.other(input).filter(|_| differs)
    }

    /// What a node gives before it is scattered.
    pub(in crate::graph) fn result(&self, node: usize) -> Option<&TensorSpec> {
        let scatters = self.is_sliced(node) && !self.computes_slice(node);
        self.other(node).filter(|_| scatters)
    }
}

impl Graph {
    /// The shard of each rank of a group of `degree`, with slices of the sequence or without.
    ///
    /// # Errors
    /// Those of [`Self::shard`] and [`Self::sequence_parallel`].
    pub fn divided(
        &self,
        degree: u32,
        sequence_parallel: bool,
    ) -> Result<Graph, TensorParallelError> {
        let shard = self.shard(degree)?;
        if sequence_parallel { shard.sequence_parallel() } else { Ok(shard) }
    }

    /// The shard with slices of the sequence between its pairs. Linear in nodes and inputs.
    ///
    /// # Errors
    /// When the positions do not divide among the ranks.
    fn sequence_parallel(self) -> Result<Graph, TensorParallelError> {
        let Some(of_group) = self.tensor_parallel.clone() else { return Ok(self) };
        let mut of_group = *of_group;
        let degree = u64::from(of_group.degree);
        let mut slices = Slices { sliced: vec![], other: vec![None; self.nodes.len()] };
        for (at, node) in self.nodes.iter().enumerate() {
            let scatters = matches!(
                of_group.linears[at],
                Some(ParallelLinear::Row | ParallelLinear::Vocabulary)
            );
            let sliced = !of_group.divided[at]
                && node.output.shape.len() > 1
                && (scatters || slices.pass_through(&self, node));
            let positions = node.output.shape.first().copied().unwrap_or(1);
            if sliced && !positions.is_multiple_of(degree) {
                let (node, what, degree) = (node.name.clone(), "positions", of_group.degree);
                return Err(TensorParallelError::Indivisible {
                    node,
                    count: positions,
                    what,
                    degree,
                });
            }
            slices.sliced.push(sliced);
        }
        let mut parts = GraphParts::from(self);
        let slice = |spec: &TensorSpec| {
            let mut slice = spec.clone();
            slice.shape[0] /= degree;
            slice
        };
        let sliced = &slices.sliced;
        for (at, node) in parts.nodes.iter().enumerate() {
            for input in node.inputs.iter().map(|input| input.index()) {
                if sliced[at] && of_group.linears[at].is_none() && !sliced[input] {
                    slices.other[input] = Some(slice(&parts.nodes[input].output));
                }
            }
        }
        for (at, node) in parts.nodes.iter_mut().enumerate().filter(|(at, _)| sliced[*at]) {
            let slice = slice(&node.output);
            slices.other[at] = Some(std::mem::replace(&mut node.output, slice));
        }
        of_group.slices = Some(slices);
        Ok(Graph::of_shard(parts, of_group)?)
    }

    /// Whether a rank has a slice of the node's output: of the positions that its place in the group says.
    pub fn is_sliced(&self, node: NodeId) -> bool {
        self.tensor_parallel().is_some_and(|tensor| tensor.is_sliced(node.index()))
    }

    /// Whether ranks have all of the node's output at one time and a slice at another.
    pub fn is_exchanged(&self, node: NodeId) -> bool {
        self.tensor_parallel().is_some_and(|tensor| tensor.other(node.index()).is_some())
    }

    /// All of a node's output.
    pub fn whole(&self, node: NodeId) -> &TensorSpec {
        let tensor = self.tensor_parallel().filter(|tensor| tensor.is_sliced(node.index()));
        let other = tensor.and_then(|tensor| tensor.other(node.index()));
        other.unwrap_or(&self.node(node).output)
    }

    /// Whether the node's operation is on a slice, and the gradients of its parameters are sums over the group.
    pub fn computes_slice(&self, node: NodeId) -> bool {
        self.tensor_parallel().is_some_and(|tensor| tensor.computes_slice(node.index()))
    }

    /// What of `input` a reader's operation reads: its output, or that gathered, or a slice of it.
    pub fn operand(&self, reader: NodeId, input: NodeId) -> &TensorSpec {
        let tensor = self.tensor_parallel();
        let other = tensor.and_then(|tensor| tensor.operand(reader.index(), input.index()));
        other.unwrap_or(&self.node(input).output)
    }

    /// What a node's operation reads.
    pub fn operands(&self, reader: NodeId) -> Vec<&TensorSpec> {
        self.node(reader).inputs.iter().map(|input| self.operand(reader, *input)).collect()
    }

    /// What a node's operation gives: its output, or what is scattered then, or rows that change hands.
    pub fn result(&self, node: NodeId) -> &TensorSpec {
        let slice = || self.tensor_parallel().and_then(|tensor| tensor.result(node.index()));
        self.rows_before(node).or_else(slice).unwrap_or(&self.node(node).output)
    }
}

impl Slices {
    /// Whether a node looks at each position by itself and reads a slice.
    fn pass_through(&self, graph: &Graph, node: &Node) -> bool {
        let is_alike = |id: &NodeId| graph.node(*id).output == node.output;
        let by_itself = matches!(
            node.op,
            Op::Relu
                | Op::Activation { .. }
                | Op::Affine { .. }
                | Op::Clip { .. }
                | Op::Dropout { .. }
                | Op::LayerNorm { .. }
                | Op::RmsNorm { .. }
                | Op::Add
                | Op::Subtract
                | Op::Multiply
                | Op::Divide
        );
        by_itself
            && node.inputs.iter().all(is_alike)
            && node.inputs.iter().any(|input| self.sliced[input.index()])
    }
}
