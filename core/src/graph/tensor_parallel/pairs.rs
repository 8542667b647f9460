//! Pairs of linear layers in a network, and what lies between them.

use super::super::{Graph, Node, Op};
use super::{ParallelLinear, TensorParallelError};
use crate::ids::NodeId;

/// What can be divided, whatever the degree.
pub(super) struct Pairs {
    pub linears: Vec<Option<ParallelLinear>>,
    /// Whether a node's output is divided.
    pub divided: Vec<bool>,
    /// Along which axis, if so.
    pub axes: Vec<Option<usize>>,
    /// By node: the attention that reads it and nobody else.
    attention: Vec<Option<NodeId>>,
}

impl Pairs {
    pub fn find(graph: &Graph) -> Self {
        let count = graph.nodes.len();
        let mut readers: Vec<Vec<u32>> = vec![vec![]; count];
        for (at, node) in (0..).zip(&graph.nodes) {
            node.inputs.iter().for_each(|input| readers[input.index()].push(at));
        }
        let mut axes: Vec<Option<usize>> = Vec::with_capacity(count);
        let mut attention = vec![None; count];
        // Nodes that are divided together or not at all: each points to an earlier one, the first to itself.
        let mut together: Vec<usize> = (0..count).collect();
        for (at, node) in graph.nodes.iter().enumerate() {
            let inputs: Option<Vec<usize>> = node.inputs.iter().map(|i| axes[i.index()]).collect();
            let mut axis = inputs.and_then(|inputs| kept_apart(graph, node, &inputs));
            if let (Op::Attention { .. }, [input]) = (&node.op, &node.inputs[..]) {
                let lone = readers[input.index()].len() == 1;
                axis = axis.filter(|_| lone && is_linear(graph.node(*input)));
                attention[input.index()] = axis.map(|_| NodeId(at as u32));
            }
            if is_linear(node) {
                axis = node.output.shape.len().checked_sub(1);
            } else if let Op::Dispatch { .. } = node.op {
                axis = Some(0);
            } else if axis.is_some() {
                for input in &node.inputs {
                    let [a, b] = [at, input.index()].map(|node| first(&together, node));
                    together[a.max(b)] = a.min(b);
                }
            }
            axes.push(axis);
        }
        let mut found =
            Self { linears: vec![None; count], divided: vec![false; count], axes, attention };
        let mut members: Vec<Vec<usize>> = vec![vec![]; count];
        (0..count).for_each(|at| members[first(&together, at)].push(at));
        for members in members.iter().filter(|members| !members.is_empty()) {
            found.accept(graph, members, &readers);
        }
        found
    }

    /// Divides nodes that belong together, where all that reads them is linear, or gives rows back to tokens.
    fn accept(&mut self, graph: &Graph, members: &[usize], readers: &[Vec<u32>]) {
        let mut rows = vec![];
        for &at in members {
            let Some(axis) = self.axes[at] else { return };
            if self.linears[at].is_some() || readers[at].is_empty() {
                return;
            }
            for reader in readers[at].iter().map(|reader| *reader as usize) {
                if is_linear(&graph.nodes[reader]) {
                    let is_last = axis + 1 == graph.nodes[at].output.shape.len();
                    if !is_last || self.linears[reader].is_some() {
                        return;
                    }
                    rows.push(reader);
                } else if let Op::Combine = graph.nodes[reader].op {
                    if axis != 0 || graph.nodes[reader].inputs[0].index() == at {
                        return;
                    }
                    rows.push(reader);
                } else if members.binary_search(&reader).is_err() {
                    return;
                }
            }
        }
        for &at in members {
            self.divided[at] = true;
            self.linears[at] = match graph.nodes[at].op {
                Op::Linear { .. } | Op::Dispatch { .. } => Some(ParallelLinear::Column),
                Op::GroupedLinear { .. } => Some(ParallelLinear::Expert),
                _ => None,
            };
        }
        rows.into_iter().for_each(|row| self.linears[row] = Some(ParallelLinear::Row));
    }

    /// Of what does not divide, heads say best why.
    pub fn check(&self, graph: &Graph, degree: u32) -> Result<(), TensorParallelError> {
        let mut error = None;
        for (at, node) in graph.nodes.iter().enumerate() {
            let Some(axis) = self.axes[at].filter(|_| self.divided[at]) else { continue };
            let (count, what) = match node.op {
                Op::Attention { kv_heads, .. } => (kv_heads, "heads of keys and values"),
                Op::Dispatch { experts, .. } => (experts, "experts"),
                _ if axis + 1 < node.output.shape.len() => (node.output.shape[axis], "heads"),
                _ => (node.output.shape[axis], "features"),
            };
            if count.is_multiple_of(u64::from(degree)) {
                continue;
            }
            let node = node.name.clone();
            let found = TensorParallelError::Indivisible { node, count, what, degree };
            if what != "features" {
                return Err(found);
            }
            error.get_or_insert(found);
        }
        error.map_or(Ok(()), Err)
    }

    /// What a rank computes in place of a node.
    pub fn divide_op(&self, node: &mut Node, at: usize, degree: u64) {
        if let (Some(ParallelLinear::Vocabulary), Op::Embedding { entries, .. }) =
            (self.linears[at], &mut node.op)
        {
            *entries = entries.div_ceil(degree);
        }
        let Some(axis) = self.axes[at].filter(|_| self.divided[at]) else { return };
        match &mut node.op {
            Op::Linear { out_features, .. } | Op::TiedLinear { out_features, .. } => {
                *out_features = out_features.div_ceil(degree);
            }
            Op::Attention { heads, kv_heads, .. } => {
                *heads /= degree;
                *kv_heads /= degree;
            }
            Op::Dispatch { experts, .. } => *experts /= degree,
            Op::Reshape { shape } => shape[axis] /= degree,
            _ => {}
        }
    }

    /// The axis of a layer's `index`-th parameter, of this shape, that is divided.
    pub fn axis_of(&self, at: usize, index: usize, shape: &[u64]) -> Option<usize> {
        match self.linears[at]? {
            ParallelLinear::Column | ParallelLinear::Expert => Some(0),
            ParallelLinear::Row => (shape.len() == 2).then_some(1),
            ParallelLinear::Vocabulary => (index == 0).then_some(0),
        }
    }

    /// Outputs of a layer, part by part where attention takes several from it.
    pub fn sections(&self, graph: &Graph, at: usize) -> Vec<u64> {
        let features = graph.nodes[at].output.shape.last().copied().unwrap_or(1);
        match self.attention[at].map(|id| &graph.node(id).op) {
            Some(Op::Attention { heads, kv_heads, .. }) => {
                let size = features / (heads + 2 * kv_heads);
                vec![heads * size, kv_heads * size, kv_heads * size]
            }
            _ => vec![features],
        }
    }
}

fn is_linear(node: &Node) -> bool {
    matches!(node.op, Op::Linear { .. })
}

/// The first of the nodes that are divided together with `node`.
fn first(together: &[usize], node: usize) -> usize {
    let mut at = node;
    while together[at] != at {
        at = together[at];
    }
    at
}

/// The axis along which the output falls apart when each input does along its own.
fn kept_apart(graph: &Graph, node: &Node, axes: &[usize]) -> Option<usize> {
    let (&axis, others) = axes.split_first()?;
    let input = &graph.node(node.inputs[0]).output.shape;
    let same = others.iter().all(|other| *other == axis);
    // Everything but the last two axes, which a product is over.
    let is_outer = same && axis + 2 < input.len();
    let is_alike = |id: &NodeId| graph.node(*id).output == node.output;
    match &node.op {
        Op::Relu | Op::Activation { .. } | Op::Affine { .. } | Op::Clip { .. } => Some(axis),
        Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::SwiGlu => {
            (same && node.inputs.iter().all(is_alike)).then_some(axis)
        }
        Op::Slice { axis: cut, .. } | Op::Concat { axis: cut } => {
            (same && *cut != axis as u64).then_some(axis)
        }
        Op::Softmax => (axis + 1 < input.len()).then_some(axis),
        Op::Attention { .. } => (axis + 1 == input.len()).then_some(axis),
        Op::Rope { .. } | Op::MatMul { .. } | Op::ScaledDotProduct { .. } => {
            is_outer.then_some(axis)
        }
        Op::GroupedLinear { .. } => (axis == 0).then_some(axis),
        Op::Permute { axes } => axes.iter().position(|from| *from == axis as u64),
        Op::Reshape { shape } => {
            let before: u64 = input[..axis].iter().product();
            (0..shape.len())
                .find(|to| shape[..*to].iter().product::<u64>() == before && shape[*to] > 1)
        }
        _ => None,
    }
}
