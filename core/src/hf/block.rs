//! Block of a decoder: attention with rotary positions and a gated feed-forward part, each beside a residual.

use super::names::expert_range;
use crate::graph::{GraphBuilder, Op, RopeScaling};
use crate::ids::NodeId;

/// Sizes of a block, and what families do differently.
pub(super) struct Block {
    pub hidden: u64,
    pub inner: u64,
    pub heads: u64,
    pub kv_heads: u64,
    /// Size of a head.
    pub size: u64,
    pub length: u64,
    pub eps: f32,
    pub rope: Rope,
    /// Whether queries, keys and values have biases; the output of the attention; the feed-forward part.
    pub biases: [bool; 3],
    /// What of queries and keys is normalised.
    pub normed: Normed,
    /// Whether what a part gives is normalised, not what it gets.
    pub norms_after: bool,
    /// Whether queries, keys and values are one linear layer, and gate and the other input of its product.
    pub fused: bool,
    /// What takes the place of the feed-forward part, if something does.
    pub experts: Option<Experts>,
}

/// A mixture of experts.
pub(super) struct Experts {
    pub count: u64,
    pub top_k: u64,
    /// Whether the shares of those that a token takes sum up to 1.
    pub normalize: bool,
    /// Inner size of an expert.
    pub inner: u64,
    /// The module's name.
    pub module: &'static str,
    /// Names of an expert's linear layers: gate, the other input of its product, output.
    pub layers: [&'static str; 3],
}

/// Rotary positions.
pub(super) struct Rope {
    pub base: f32,
    pub scaling: Option<RopeScaling>,
    /// Elements of a head that turn, the first ones.
    pub turning: u64,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Normed {
    Nothing,
    EachHead,
    AllHeads,
}

/// A block while it is made.
struct Making<'a> {
    block: &'a Block,
    g: &'a mut GraphBuilder,
    layer: &'a str,
}

impl Block {
    /// Adds it after `x`; `turns` says whether positions matter in it.
    pub fn add(&self, g: &mut GraphBuilder, layer: &str, turns: bool, x: NodeId) -> NodeId {
        let mut making = Making { block: self, g, layer };
        let y = match self.norms_after {
            true => x,
            false => making.norm("input_layernorm", x),
        };
        let y = making.attention(turns, y);
        let y = if self.norms_after { making.norm("post_attention_layernorm", y) } else { y };
        let x = making.put("add_1", Op::Add, &[x, y]);
        let y = match self.norms_after {
            true => x,
            false => making.norm("post_attention_layernorm", x),
        };
        let y = match &self.experts {
            Some(experts) => making.mixture(experts, y),
            None => making.feed_forward(y),
        };
        let y = if self.norms_after { making.norm("post_feedforward_layernorm", y) } else { y };
        making.put("add_2", Op::Add, &[x, y])
    }
}

impl Making<'_> {
    fn put(&mut self, end: &str, op: Op, inputs: &[NodeId]) -> NodeId {
        self.g.add(format!("{}.{end}", self.layer), op, inputs)
    }

    fn norm(&mut self, end: &str, x: NodeId) -> NodeId {
        self.put(end, Op::RmsNorm { eps: self.block.eps }, &[x])
    }

    fn linear(&mut self, end: &str, x: NodeId, out_features: u64, bias: bool) -> NodeId {
        self.put(end, Op::Linear { out_features, bias }, &[x])
    }

    /// Columns of a matrix.
    fn columns(&mut self, end: &str, x: NodeId, start: u64, end_of: u64) -> NodeId {
        self.put(end, Op::Slice { axis: 1, start, end: end_of, step: 1 }, &[x])
    }

    fn attention(&mut self, turns: bool, x: NodeId) -> NodeId {
        let Block { heads, kv_heads, size, hidden, biases: [bias, output_bias, _], .. } =
            *self.block;
        let (queries, others) = (heads * size, kv_heads * size);
        let [q, k, v] = if self.block.fused {
            let all = self.linear("self_attn.qkv_proj", x, queries + 2 * others, bias);
            let (keys, values) = (queries + others, queries + 2 * others);
            [("q", 0, queries), ("k", queries, keys), ("v", keys, values)].map(
                |(name, start, end)| self.columns(&format!("self_attn.{name}"), all, start, end),
            )
        } else {
            [("q_proj", queries), ("k_proj", others), ("v_proj", others)]
                .map(|(name, size)| self.linear(&format!("self_attn.{name}"), x, size, bias))
        };
        let q = self.heads("q", q, heads, turns);
        let k = self.heads("k", k, kv_heads, turns);
        let qkv = self.put("self_attn.concat_qk", Op::Concat { axis: 1 }, &[q, k]);
        let qkv = self.put("self_attn.concat_qkv", Op::Concat { axis: 1 }, &[qkv, v]);
        let y = self.put("self_attn", Op::Attention { heads, kv_heads, causal: true }, &[qkv]);
        self.linear("self_attn.o_proj", y, hidden, output_bias)
    }

    fn feed_forward(&mut self, x: NodeId) -> NodeId {
        let Block { inner, hidden, biases: [.., bias], .. } = *self.block;
        let [gate, up] = if self.block.fused {
            let both = self.linear("mlp.gate_up_proj", x, 2 * inner, bias);
            [("gate", 0), ("up", inner)].map(|(name, start)| {
                self.columns(&format!("mlp.{name}"), both, start, start + inner)
            })
        } else {
            ["gate", "up"].map(|name| self.linear(&format!("mlp.{name}_proj"), x, inner, bias))
        };
        let y = self.put("mlp.act", Op::SwiGlu, &[gate, up]);
        self.linear("mlp.down_proj", y, hidden, bias)
    }

    /// Experts as transformers computes them: nobody is left out.
    fn mixture(&mut self, experts: &Experts, x: NodeId) -> NodeId {
        let Experts { count, top_k: k, normalize, inner, module, layers } = *experts;
        let of = |end: &str| format!("{module}.{end}");
        let logits = self.linear(&of("gate"), x, count, false);
        let shares = self.put(&of("shares"), Op::TopKSoftmax { k, normalize }, &[logits]);
        let dispatch = Op::Dispatch { experts: count, capacity: self.block.length };
        let rows = self.put(&of("dispatch"), dispatch, &[x, shares]);
        let [gate, up, down] = layers.map(|layer| of(&format!("{}.{layer}", expert_range(count))));
        let gate = self.put(&gate, Op::GroupedLinear { out_features: inner }, &[rows]);
        let up = self.put(&up, Op::GroupedLinear { out_features: inner }, &[rows]);
        let y = self.put(&of("act"), Op::SwiGlu, &[gate, up]);
        let product = Op::GroupedLinear { out_features: self.block.hidden };
        let y = self.put(&down, product, &[y]);
        self.put(&of("combine"), Op::Combine, &[shares, y])
    }

    /// Norms and rotary positions of queries or keys, whose heads lie side by side in the last axis.
    fn heads(&mut self, name: &str, x: NodeId, heads: u64, turns: bool) -> NodeId {
        let Block { length, size, normed, eps, ref rope, .. } = *self.block;
        let x = match normed {
            Normed::AllHeads => self.norm(&format!("self_attn.{name}_norm"), x),
            Normed::EachHead | Normed::Nothing => x,
        };
        if !turns && normed != Normed::EachHead {
            return x;
        }
        let (turning, rope) = (rope.turning, Op::Rope { base: rope.base, scaling: rope.scaling });
        let name = format!("self_attn.{name}");
        let mut part =
            |end: &str, op, inputs: &[NodeId]| self.put(&format!("{name}{end}"), op, inputs);
        let mut x = part(".heads", Op::Reshape { shape: vec![length, heads, size] }, &[x]);
        if normed == Normed::EachHead {
            x = part("_norm", Op::RmsNorm { eps }, &[x]);
        }
        if turns {
            let swap = Op::Permute { axes: vec![1, 0, 2] };
            x = part(".first", swap.clone(), &[x]);
            x = if turning == size {
                part(".rope", rope, &[x])
            } else {
                let slice = |start, end| Op::Slice { axis: 2, start, end, step: 1 };
                let first = part(".turning", slice(0, turning), &[x]);
                let rest = part(".rest", slice(turning, size), &[x]);
                let first = part(".rope", rope, &[first]);
                part(".turned", Op::Concat { axis: 2 }, &[first, rest])
            };
            x = part(".back", swap, &[x]);
        }
        part(".together", Op::Reshape { shape: vec![length, heads * size] }, &[x])
    }
}
