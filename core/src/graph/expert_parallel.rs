//! Expert parallelism: the experts that a replica has, and rows of tokens that replicas send each other.
//!
//! After GShard (Lepikhin et al. 2021) and DeepSpeed-MoE (Rajbhandari et al. 2022). Tokens stay with their replica,
//! which makes rows of them for all experts. All-to-all, each replica of an expert group gets the rows of its experts
//! from all of them, multiplies by their weights, and sends the products back:
//!
//! ```text
//! dispatch  [experts, capacity, features]  --all-to-all-->  [experts / degree, degree x capacity, features]
//! combine   [experts, capacity, features]  <--all-to-all--  [experts / degree, degree x capacity, features]
//! ```
//! As in a shard, nodes and parameters keep their numbers and names; only shapes differ.

#[cfg(test)]
mod tests;

use super::autodiff::ComputationKind;
use super::{Graph, GraphError, GraphParts, Node, Op, ParamShards, TensorSpec};
use crate::ids::{NodeId, ParamId};
use thiserror::Error;

/// How replicas divide the experts of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertParallel {
    /// Replicas of an expert group.
    pub degree: u32,
    /// By node: what it gives before its rows change hands, where they do.
    results: Vec<Option<TensorSpec>>,
    /// By parameter: how the weights of experts are divided.
    shards: Vec<Option<ParamShards>>,
}

/// Why replicas cannot divide experts.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ExpertParallelError {
    /// Shapes that do not fit once they are divided.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Nothing to divide.
    #[error("`{model}` has no experts, which is what expert parallelism divides")]
    NoExperts {
        /// The model.
        model: String,
    },
    /// More experts on one replica than on another.
    #[error(
        "node `{node}`: {experts} experts do not divide among {degree} replicas of an expert group"
    )]
    Indivisible {
        /// The node.
        node: String,
        /// How many there are.
        experts: u64,
        /// Replicas of a group.
        degree: u32,
    },
    /// Rows that go another way than from tokens through experts and back.
    #[error(
        "node `{node}`: experts are divided where their rows go through linear layers of experts and element-wise \
         operations alone, and a linear layer is the last of them"
    )]
    Apart {
        /// The node.
        node: String,
    },
}

/// Nodes between tokens and tokens.
struct Rows {
    /// By node: whether its output is rows of experts.
    inside: Vec<bool>,
    /// By node: whether its rows go back to tokens.
    last: Vec<bool>,
}

impl Rows {
    fn find(graph: &Graph) -> Result<Self, ExpertParallelError> {
        let count = graph.nodes.len();
        let mut rows = Self { inside: vec![false; count], last: vec![false; count] };
        for (at, node) in graph.nodes.iter().enumerate() {
            let apart = || Err(ExpertParallelError::Apart { node: node.name.clone() });
            let reads = |slot: usize| rows.inside[node.inputs[slot].index()];
            match node.op {
                Op::Dispatch { .. } if reads(0) || reads(1) => return apart(),
                Op::Dispatch { .. } => rows.inside[at] = true,
                Op::Combine => {
                    let from = node.inputs[1].index();
                    let is_linear = matches!(graph.nodes[from].op, Op::GroupedLinear { .. });
                    if reads(0) || !rows.inside[from] || !is_linear {
                        return apart();
                    }
                    rows.last[from] = true;
                }
                _ if !(0..node.inputs.len()).any(reads) => {}
                _ if (0..node.inputs.len()).all(reads) && looks_at_rows(node) => {
                    rows.inside[at] = true;
                }
                _ => return apart(),
            }
        }
        for node in &graph.nodes {
            let wrong = |input: &NodeId| rows.last[input.index()] && node.op != Op::Combine;
            if node.inputs.iter().any(wrong) {
                return Err(ExpertParallelError::Apart { node: node.name.clone() });
            }
        }
        Ok(rows)
    }
}

/// Whether an operation looks at each row of an expert by itself.
fn looks_at_rows(node: &Node) -> bool {
    matches!(
        node.op,
        Op::GroupedLinear { .. }
            | Op::Relu
            | Op::Activation { .. }
            | Op::Affine { .. }
            | Op::Clip { .. }
            | Op::Add
            | Op::Subtract
            | Op::Multiply
            | Op::Divide
            | Op::SwiGlu
    )
}

impl ExpertParallel {
    /// Nodes behind which rows change hands.
    pub fn exchanges(&self) -> impl Iterator<Item = NodeId> {
        let sends = |(node, result): (u32, &Option<_>)| result.as_ref().map(|_| NodeId(node));
        (0..).zip(&self.results).filter_map(sends)
    }

    pub(in crate::graph) fn result(&self, node: usize) -> Option<&TensorSpec> {
        self.results[node].as_ref()
    }
}

impl Graph {
    /// What each replica of an expert group of `degree` computes. Linear in nodes and inputs.
    ///
    /// # Errors
    /// When there are no experts, or they cannot be divided.
    pub fn expert_parallel(self, degree: u32) -> Result<Graph, ExpertParallelError> {
        let rows = Rows::find(&self)?;
        if !rows.inside.contains(&true) {
            return Err(ExpertParallelError::NoExperts { model: self.name });
        }
        let (results, shards) = (vec![None; self.nodes.len()], vec![None; self.params.len()]);
        let mut divided = ExpertParallel { degree, results, shards };
        let tensor_parallel = self.tensor_parallel.clone();
        let of_group = tensor_parallel.as_ref().map_or(1, |tensor| tensor.degree);
        let whole = |id: ParamId| self.shards(id).map(|shards| shards.shape.clone());
        let mut parts = GraphParts::from(self.clone());
        for at in (0..parts.nodes.len()).filter(|at| rows.inside[*at]) {
            let node = &parts.nodes[at];
            let inputs: Vec<&TensorSpec> =
                node.inputs.iter().map(|input| &parts.nodes[input.index()].output).collect();
            let refuse =
                |why| GraphError::Node { node: node.name.clone(), op: node.op.name(), why };
            let result = node.op.infer(&inputs).map_err(refuse)?;
            for (id, spec) in node.params.iter().zip(node.op.params(&inputs)) {
                let param = &mut parts.params[id.index()];
                let shape = std::mem::replace(&mut param.shape, spec.shape);
                let shape = whole(*id).unwrap_or(shape);
                let shards = ParamShards::of_experts(shape, of_group * degree);
                divided.shards[id.index()] = Some(shards);
            }
            let output = match (&node.op, rows.last[at]) {
                (Op::Dispatch { .. }, _) => sent(node, &result, degree)?,
                (_, true) => node.output.clone(),
                _ => result.clone(),
            };
            if output != result {
                divided.results[at] = Some(result);
            }
            parts.nodes[at].output = output;
        }
        Ok(Graph::checked(parts, tensor_parallel, Some(Box::new(divided)))?)
    }

    /// Whether it has experts.
    pub fn has_experts(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.op, Op::Dispatch { .. }))
    }

    /// How replicas divide its experts; none: they do not.
    pub fn expert_groups(&self) -> Option<&ExpertParallel> {
        self.expert_parallel.as_deref()
    }

    /// What a node gives before its rows change hands, where they do.
    pub(in crate::graph) fn rows_before(&self, node: NodeId) -> Option<&TensorSpec> {
        self.expert_groups().and_then(|experts| experts.result(node.index()))
    }

    /// How rows change hands behind a node: those of tokens to their experts, those of experts back.
    pub(in crate::graph) fn sends_rows(&self, node: NodeId) -> Option<ComputationKind> {
        self.rows_before(node)?;
        Some(match self.node(node).op {
            Op::Dispatch { .. } => ComputationKind::RowsToExperts,
            _ => ComputationKind::RowsToTokens,
        })
    }

    /// Whether replicas of an expert group have different parts of a parameter.
    pub fn is_of_experts(&self, param: ParamId) -> bool {
        self.expert_shards(param).is_some()
    }

    pub(in crate::graph) fn expert_shards(&self, param: ParamId) -> Option<&ParamShards> {
        self.expert_groups().and_then(|experts| experts.shards[param.index()].as_ref())
    }
}

/// Rows for all experts as those of one replica's experts from all replicas.
fn sent(node: &Node, rows: &TensorSpec, degree: u32) -> Result<TensorSpec, ExpertParallelError> {
    let of = u64::from(degree);
    let (mut sent, experts) = (rows.clone(), rows.shape[0]);
    if !experts.is_multiple_of(of) {
        let node = node.name.clone();
        return Err(ExpertParallelError::Indivisible { node, experts, degree });
    }
    sent.shape[0] /= of;
    sent.shape[1] *= of;
    Ok(sent)
}
