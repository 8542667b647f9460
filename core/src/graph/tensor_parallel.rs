//! Tensor parallelism: the shard of a network that a rank of a tensor group computes.
//!
//! After Shoeybi et al. 2019. Of two linear layers with operations between them that keep features apart
//! (element-wise ones, whole heads of attention), the first is divided by the columns of its product and the
//! second by the rows: what lies between needs no other rank. The second's products are partial sums that
//! the group adds up, and so are the first's input gradients. All else is on every rank.
//!
//! A shard has the nodes and parameters of the network with the same numbers and names, so that cuts, orders
//! and files name the same; only shapes differ.

use super::{Graph, GraphError, GraphParts, Node, Op};
use crate::ids::{NodeId, ParamId};
use std::ops::Range;
use thiserror::Error;

/// How a linear layer is divided; names as in Megatron-LM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParallelLinear {
    /// Each rank has some of the outputs; input gradients are summed.
    Column,
    /// Each rank has some of the inputs; outputs are summed, and the bias is added once.
    Row,
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
    /// By parameter; none: every rank has all of it.
    shards: Vec<Option<ParamShards>>,
}

/// How a parameter is divided: each section of an axis in equal parts, of which a rank has one.
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
        /// Heads or features.
        what: &'static str,
        /// The degree.
        degree: u32,
    },
}

impl ParamShards {
    /// The places in the whole parameter, row-major, whose values one after the other are a rank's shard.
    pub fn pieces(&self, tensor_rank: u32) -> impl Iterator<Item = Range<usize>> + '_ {
        let product = |sizes: &[u64]| sizes.iter().product::<u64>();
        let (outer, inner) =
            (product(&self.shape[..self.axis]), product(&self.shape[self.axis + 1..]));
        let all = self.shape[self.axis];
        (0..outer).flat_map(move |row| {
            let mut start = row * all;
            self.sections.iter().map(move |size| {
                let part = size / u64::from(self.degree);
                let first = (start + part * u64::from(tensor_rank)) * inner;
                start += size;
                first as usize..(first + part * inner) as usize
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
        let pairs = Pairs::find(self);
        if !pairs.linears.contains(&Some(ParallelLinear::Column)) {
            return Err(TensorParallelError::NoPair { model: self.name.clone() });
        }
        pairs.check(self, degree)?;
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
            for (id, spec) in node.params.iter().zip(specs) {
                let param = &mut parts.params[id.index()];
                let shape = std::mem::replace(&mut param.shape, spec.shape);
                if let Some(axis) = pairs.axis_of(at, &shape).filter(|_| shape != param.shape) {
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
        let tensor_parallel = Some(Box::new(TensorParallel { degree, linears, divided, shards }));
        Ok(Graph { tensor_parallel, ..Graph::new(parts)? })
    }

    /// How a group divides it; none: nobody does.
    pub fn tensor_parallel(&self) -> Option<&TensorParallel> {
        self.tensor_parallel.as_deref()
    }

    /// How a node's linear layer is divided.
    pub fn parallel_linear(&self, node: NodeId) -> Option<ParallelLinear> {
        self.tensor_parallel().and_then(|tensor| tensor.linears[node.index()])
    }

    /// How a parameter is divided.
    pub fn shards(&self, param: ParamId) -> Option<&ParamShards> {
        self.tensor_parallel().and_then(|tensor| tensor.shards[param.index()].as_ref())
    }

    /// Ranks that a node is divided among.
    pub fn parts(&self, node: NodeId) -> u32 {
        let divided = self.tensor_parallel().filter(|tensor| {
            tensor.divided[node.index()] || tensor.linears[node.index()].is_some()
        });
        divided.map_or(1, |tensor| tensor.degree)
    }
}

/// What can be divided, whatever the degree.
struct Pairs {
    linears: Vec<Option<ParallelLinear>>,
    /// Whether a node's output is divided.
    divided: Vec<bool>,
    /// Along which axis, if so.
    axes: Vec<Option<usize>>,
    /// By node: the attention that reads it and nobody else.
    attention: Vec<Option<NodeId>>,
}

impl Pairs {
    fn find(graph: &Graph) -> Self {
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

    /// Divides nodes that belong together, where all that reads them is linear.
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
                } else if members.binary_search(&reader).is_err() {
                    return;
                }
            }
        }
        for &at in members {
            self.divided[at] = true;
            self.linears[at] = is_linear(&graph.nodes[at]).then_some(ParallelLinear::Column);
        }
        rows.into_iter().for_each(|row| self.linears[row] = Some(ParallelLinear::Row));
    }

    /// Of what does not divide, heads say best why.
    fn check(&self, graph: &Graph, degree: u32) -> Result<(), TensorParallelError> {
        let mut error = None;
        for (at, node) in graph.nodes.iter().enumerate() {
            let Some(axis) = self.axes[at].filter(|_| self.divided[at]) else { continue };
            let (count, what) = match node.op {
                Op::Attention { kv_heads, .. } => (kv_heads, "heads of keys and values"),
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
    fn divide_op(&self, node: &mut Node, at: usize, degree: u64) {
        let Some(axis) = self.axes[at].filter(|_| self.divided[at]) else { return };
        match &mut node.op {
            Op::Linear { out_features, .. } => *out_features /= degree,
            Op::Attention { heads, kv_heads, .. } => {
                *heads /= degree;
                *kv_heads /= degree;
            }
            Op::Reshape { shape } => shape[axis] /= degree,
            _ => {}
        }
    }

    /// The axis of a linear layer's parameter of this shape that is divided.
    fn axis_of(&self, at: usize, shape: &[u64]) -> Option<usize> {
        match self.linears[at]? {
            ParallelLinear::Column => Some(0),
            ParallelLinear::Row => (shape.len() == 2).then_some(1),
        }
    }

    /// Outputs of a layer, part by part where attention takes several from it.
    fn sections(&self, graph: &Graph, at: usize) -> Vec<u64> {
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
        Op::Permute { axes } => axes.iter().position(|from| *from == axis as u64),
        Op::Reshape { shape } => {
            let before: u64 = input[..axis].iter().product();
            (0..shape.len())
                .find(|to| shape[..*to].iter().product::<u64>() == before && shape[*to] > 1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::presets::Preset;
    use crate::graph::{Function, GraphBuilder};

    fn preset(name: &str) -> Graph {
        name.parse::<Preset>().unwrap().graph().unwrap()
    }

    fn named<'a>(graph: &'a Graph, name: &str) -> (NodeId, &'a Node) {
        let at = graph.nodes().iter().position(|node| node.name == name).unwrap();
        (NodeId(at as u32), &graph.nodes()[at])
    }

    #[test]
    fn a_decoder_is_divided_as_megatron_does_it() {
        let whole =
            preset("transformer:layers=2,hidden=32,heads=8,kv=4,sequence=8,vocabulary=50,gated");
        let shard = whole.shard(4).unwrap();
        let kind = |name: &str| shard.parallel_linear(named(&shard, name).0);
        for name in ["attn.qkv", "mlp.gate", "mlp.up"] {
            assert_eq!(kind(&format!("h.1.{name}")), Some(ParallelLinear::Column), "{name}");
        }
        for name in ["attn.proj", "mlp.proj"] {
            assert_eq!(kind(&format!("h.0.{name}")), Some(ParallelLinear::Row), "{name}");
        }
        assert_eq!(kind("head"), None, "the loss looks at all logits");
        let attention = Op::Attention { heads: 2, kv_heads: 1, causal: true };
        assert_eq!(named(&shard, "h.0.attn").1.op, attention);
        assert_eq!(shard.nodes().len(), whole.nodes().len());
        for (of_shard, of_whole) in shard.nodes().iter().zip(whole.nodes()) {
            assert_eq!(of_shard.name, of_whole.name);
            let same = of_shard.output == of_whole.output;
            assert_eq!(
                same,
                !shard.tensor_parallel().unwrap().divided[named(&whole, &of_whole.name).0.index()]
            );
        }
    }

    #[test]
    fn shards_of_a_parameter_are_all_of_it_once() {
        let whole = preset("transformer:layers=1,hidden=32,heads=8,kv=2,sequence=8,vocabulary=50");
        let shard = whole.shard(2).unwrap();
        let mut divided = 0;
        for id in (0..whole.params().len() as u32).map(ParamId) {
            let Some(shards) = shard.shards(id) else {
                assert_eq!(shard.param(id), whole.param(id));
                continue;
            };
            divided += 1;
            assert_eq!(shards.shape, whole.param(id).shape);
            let mut seen = vec![0; whole.param(id).elements() as usize];
            for rank in 0..2 {
                let mut count = 0;
                for at in shards.pieces(rank).flatten() {
                    (seen[at], count) = (seen[at] + 1, count + 1);
                }
                assert_eq!(count, shard.param(id).elements(), "{}", whole.param(id).name);
            }
            assert!(seen.iter().all(|times| *times == 1), "{}", whole.param(id).name);
        }
        assert_eq!(divided, 2 + 1 + 2 + 1, "biases of rows are whole");
        // Eight heads of four, then two of keys, then two of values: the second rank has half of each.
        let qkv = named(&whole, "h.0.attn.qkv").1.params[1];
        let pieces: Vec<Range<usize>> = shard.shards(qkv).unwrap().pieces(1).collect();
        assert_eq!(pieces, [16..32, 36..40, 44..48]);
    }

    #[test]
    fn what_does_not_divide_is_refused_in_a_sentence() {
        let refused = |graph: &Graph, degree| graph.shard(degree).unwrap_err().to_string();
        let grouped =
            preset("transformer:layers=1,hidden=32,heads=8,kv=2,sequence=8,vocabulary=50");
        assert_eq!(
            refused(&grouped, 4),
            "node `h.0.attn`: 2 heads of keys and values do not divide among 4 tensor-parallel ranks"
        );
        let mut g = GraphBuilder::new("norms");
        g.layer("all");
        let x = g.input(vec![6]);
        let x = g.linear("a", x, 6);
        let x = g.add("norm", Op::LayerNorm { eps: 1e-5 }, &[x]);
        let x = g.linear("b", x, 4);
        g.loss(x, 4);
        let refused = refused(&g.finish().unwrap(), 2);
        assert!(refused.starts_with("`norms` has no two linear layers"), "{refused}");
    }

    #[test]
    fn heads_that_are_permuted_out_of_their_features_are_divided() {
        let mut g = GraphBuilder::new("encoder");
        g.layer("all");
        let x = g.input(vec![5, 12]);
        let heads = |g: &mut GraphBuilder, name: &str, count: u64| {
            let y = g.linear(name, x, 3 * count);
            let shape = vec![5, count, 3];
            let y = g.add(format!("{name}.split"), Op::Reshape { shape }, &[y]);
            g.add(format!("{name}.heads"), Op::Permute { axes: vec![1, 0, 2] }, &[y])
        };
        let q = heads(&mut g, "q", 4);
        // As exporters write keys and values that several queries share.
        let [k, v] = ["k", "v"].map(|name| {
            let y = heads(&mut g, name, 2);
            let shape = vec![2, 1, 5, 3];
            let y = g.add(format!("{name}.apart"), Op::Reshape { shape }, &[y]);
            let y = g.add(format!("{name}.twice"), Op::Concat { axis: 1 }, &[y, y]);
            g.add(format!("{name}.shared"), Op::Reshape { shape: vec![4, 5, 3] }, &[y])
        });
        let op = Op::ScaledDotProduct { scale: 0.5, causal: false };
        let y = g.add("attention", op, &[q, k, v]);
        let y = g.add("back", Op::Permute { axes: vec![1, 0, 2] }, &[y]);
        let y = g.add("join", Op::Reshape { shape: vec![5, 12] }, &[y]);
        let y = g.linear("out", y, 12);
        let y = g.add("add", Op::Add, &[x, y]);
        let y = g.add("first", Op::FirstPosition, &[y]);
        let y = g.activation("tanh", Function::Tanh, y);
        let y = g.linear("head", y, 3);
        g.loss(y, 3);
        let whole = g.finish().unwrap();
        let refused = whole.shard(4).unwrap_err().to_string();
        assert_eq!(refused, "node `k.split`: 2 heads do not divide among 4 tensor-parallel ranks");
        let shard = whole.shard(2).unwrap();
        assert_eq!(named(&shard, "k.twice").1.output.shape, [1, 2, 5, 3]);
        assert_eq!(named(&shard, "attention").1.output.shape, [2, 5, 3]);
        assert_eq!(named(&shard, "join").1.output.shape, [5, 6]);
        assert_eq!(shard.parallel_linear(named(&shard, "v").0), Some(ParallelLinear::Column));
        assert_eq!(shard.parallel_linear(named(&shard, "out").0), Some(ParallelLinear::Row));
        assert_eq!(shard.parallel_linear(named(&shard, "head").0), None);
    }
}
