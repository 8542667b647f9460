//! Tensor parallelism: the shard of a network that a rank of a tensor group computes.
//!
//! After Shoeybi et al. 2019. Of two linear layers with operations between them that keep features apart
//! (element-wise ones, whole heads of attention), the first is divided by the columns of its product and the
//! second by the rows: what lies between needs no other rank. The second's products are partial sums that
//! the group adds up, and so are the first's input gradients.
//!
//! The vocabulary is divided as well: each rank looks its entries of the table up, the sum has all of them, and the
//! head gives each rank the logits of its entries, of which the loss needs a few numbers from the others. All
//! else is on every rank.
//!
//! Experts are divided as a pair is: tokens are everywhere, so each rank has the rows of its experts, multiplies by
//! their weights, and what it gives back to tokens is a part of the sum. Expert parallelism without sending tokens.
//!
//! A shard has the nodes and parameters of the network with the same numbers and names, so that cuts, orders
//! and files name the same; only shapes differ.

mod pairs;
mod sequence;
#[cfg(test)]
mod tests;
mod vocabulary;

use super::{Graph, GraphError, GraphParts, Op};
use crate::ids::{NodeId, ParamId};
use pairs::Pairs;
use std::collections::BTreeMap;
use std::ops::Range;
use thiserror::Error;

/// How a linear layer is divided; names as in Megatron-LM. Of a mixture of experts [`crate::graph::Op::Dispatch`] is its
/// columns and [`crate::graph::Op::Combine`] its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParallelLinear {
    /// Each rank has some of the outputs; input gradients are summed.
    Column,
    /// Each rank has some of the inputs; outputs are summed, and the bias is added once.
    Row,
    /// Each rank has the weights of some experts; nothing is summed.
    Expert,
    /// Each rank has some entries of a table and looks those up; outputs are summed, and positions are added once.
    Vocabulary,
}

/// How a group divides a network.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorParallel {
    /// Ranks of a group.
    pub degree: u32,
    /// By node.
    linears: Vec<Option<ParallelLinear>>,
    /// By node: whether a rank computes a part of it.
    divided: Vec<bool>,
    /// Entries of the whole vocabulary of which a rank looks some up, or judges the logits of some.
    vocabularies: BTreeMap<NodeId, u64>,
    /// By parameter; none: every rank has all of it.
    shards: Vec<Option<ParamShards>>,
    /// With sequence parallelism: what ranks have slices of.
    slices: Option<sequence::Slices>,
}

/// How a parameter is divided: each section of an axis in equal parts, of which a rank has one. Where a vocabulary
/// does not divide evenly the last parts are shorter, or nothing; what a shard has beyond its part stays zero.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamShards {
    /// Shape of the whole parameter.
    pub shape: Vec<u64>,
    axis: usize,
    /// Sizes along the axis: queries, keys and values of one product are three.
    sections: Vec<u64>,
    degree: u32,
}

/// Why a network cannot be divided.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TensorParallelError {
    /// Shapes that do not fit once they are divided.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Nothing to divide.
    #[error(
        "`{model}` has no two linear layers with whole heads or element-wise operations between them, \
         which is what tensor parallelism divides"
    )]
    NoPair {
        /// The model.
        model: String,
    },
    /// Sizes that the degree does not divide.
    #[error("node `{node}`: {count} {what} do not divide among {degree} tensor-parallel ranks")]
    Indivisible {
        /// The node.
        node: String,
        /// How many there are.
        count: u64,
        /// Heads, features or positions.
        what: &'static str,
        /// The degree.
        degree: u32,
    },
}

impl ParamShards {
    /// Of weights of experts: some on each of so many ranks.
    pub(in crate::graph) fn of_experts(shape: Vec<u64>, degree: u32) -> Self {
        let sections = vec![shape[0]];
        Self { shape, axis: 0, sections, degree }
    }

    /// In how many parts it is divided.
    pub fn degree(&self) -> u32 {
        self.degree
    }

    /// The places in the whole parameter, row-major, whose values one after the other are shard `index`: of a tensor group
    /// that of the rank in this place, of experts [`crate::plan::Mesh::expert_shard`].
    pub fn pieces(&self, index: u32) -> impl Iterator<Item = Range<usize>> + '_ {
        let product = |sizes: &[u64]| sizes.iter().product::<u64>();
        let (outer, inner) =
            (product(&self.shape[..self.axis]), product(&self.shape[self.axis + 1..]));
        let all = self.shape[self.axis];
        (0..outer).flat_map(move |row| {
            let mut start = row * all;
            self.sections.iter().map(move |size| {
                let part = size.div_ceil(u64::from(self.degree));
                let before = (part * u64::from(index)).min(*size);
                let first = (start + before) * inner;
                start += size;
                first as usize..(first + part.min(size - before) * inner) as usize
            })
        })
    }
}

impl Graph {
    /// The shard of each rank of a group of `degree`: same nodes, smaller shapes. Linear in nodes and inputs.
    ///
    /// # Errors
    /// When nothing can be divided, or not evenly.
    pub fn shard(&self, degree: u32) -> Result<Graph, TensorParallelError> {
        let mut pairs = Pairs::find(self);
        if !pairs.linears.contains(&Some(ParallelLinear::Column)) {
            return Err(TensorParallelError::NoPair { model: self.name.clone() });
        }
        pairs.check(self, degree)?;
        let vocabularies = pairs.divide_vocabulary(self);
        let mut parts = GraphParts::from(self.clone());
        let mut shards = vec![None; parts.params.len()];
        for at in 0..parts.nodes.len() {
            pairs.divide_op(&mut parts.nodes[at], at, u64::from(degree));
            let node = &parts.nodes[at];
            let inputs: Vec<_> =
                node.inputs.iter().map(|i| &parts.nodes[i.index()].output).collect();
            let refuse =
                |why| GraphError::Node { node: node.name.clone(), op: node.op.name(), why };
            let output = node.op.infer(&inputs).map_err(refuse)?;
            let specs = node.op.params(&inputs);
            for (index, (id, spec)) in node.params.iter().zip(specs).enumerate() {
                let param = &mut parts.params[id.index()];
                let shape = std::mem::replace(&mut param.shape, spec.shape);
                let axis = pairs.axis_of(at, index, &shape);
                if let Some(axis) = axis.filter(|_| shape != param.shape) {
                    let sections = match pairs.linears[at] {
                        Some(ParallelLinear::Column) => pairs.sections(self, at),
                        _ => vec![shape[axis]],
                    };
                    shards[id.index()] = Some(ParamShards { shape, axis, sections, degree });
                }
            }
            parts.nodes[at].output = output;
        }
        let Pairs { linears, divided, .. } = pairs;
        let slices = None;
        let of_group = TensorParallel { degree, linears, divided, vocabularies, shards, slices };
        Ok(Graph::of_shard(parts, of_group)?)
    }

    /// How a group divides it; none: nobody does.
    pub fn tensor_parallel(&self) -> Option<&TensorParallel> {
        self.tensor_parallel.as_deref()
    }

    /// How a node's linear layer is divided.
    pub fn parallel_linear(&self, node: NodeId) -> Option<ParallelLinear> {
        self.tensor_parallel().and_then(|tensor| tensor.linears[node.index()])
    }

    /// Whether what a reader contributes to the gradient of its input `slot` is a part of a sum over the group.
    pub(in crate::graph) fn is_partial(&self, reader: NodeId, slot: u32) -> bool {
        match self.parallel_linear(reader) {
            Some(ParallelLinear::Column) => true,
            // Each rank has the gradients of its experts' shares.
            Some(ParallelLinear::Row) => slot == 0 && self.node(reader).op == Op::Combine,
            _ => false,
        }
    }

    /// How a parameter is divided.
    pub fn shards(&self, param: ParamId) -> Option<&ParamShards> {
        let of_tensor = || self.tensor_parallel()?.shards[param.index()].as_ref();
        self.expert_shards(param).or_else(of_tensor)
    }

    /// Ranks that a node is divided among.
    pub fn parts(&self, node: NodeId) -> u32 {
        let divided = self.tensor_parallel().filter(|tensor| {
            tensor.divided[node.index()]
                || tensor.linears[node.index()].is_some()
                || tensor.vocabularies.contains_key(&node)
                || self.computes_slice(node)
        });
        divided.map_or(1, |tensor| tensor.degree)
    }

    /// Entries of the whole vocabulary, of a table or a loss of which a rank has a part.
    pub fn vocabulary(&self, node: NodeId) -> Option<u64> {
        self.tensor_parallel().and_then(|tensor| tensor.vocabularies.get(&node).copied())
    }
}
