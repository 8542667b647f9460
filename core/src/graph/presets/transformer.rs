//! Transformers: GPT-2, GPT-3, LLaMA, BERT, and any by numbers.
//!
//! A block is one layer. Queries, keys and values come from one product (as in GPT-2), rotary
//! positions are part of the attention, dropout is left out.

use crate::graph::{Function, Graph, GraphBuilder, GraphError, Op};
use crate::ids::NodeId;
use std::fmt;

/// A decoder by numbers. Plain ones have GPT-2's blocks (Radford et al. 2019): layer norm before
/// each part, biases, GELU, learnt positions. `gated` ones have LLaMA's (Touvron et al. 2023): RMS
/// norm, no biases, `silu(gate) x up`, rotary positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transformer {
    /// Blocks.
    pub layers: u32,
    /// Size of the vector of a position.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Heads of keys and values; `heads` unless groups of queries share them.
    pub kv_heads: u64,
    /// Inner size of the feed-forward part.
    pub ffn: u64,
    /// Positions of a sample.
    pub sequence: u64,
    /// Different tokens.
    pub vocabulary: u64,
    /// Whether the output layer uses the embedding's table.
    pub tied: bool,
    /// Whether the blocks are LLaMA's.
    pub gated: bool,
    /// What takes the place of the feed-forward part, where it is not one for all tokens.
    pub experts: Option<Experts>,
}

/// A mixture of experts (Shazeer et al. 2017): each token goes to some of several feed-forward parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Experts {
    /// How many there are.
    pub count: u64,
    /// To how many of them a token goes. To one: by its share of all (Switch, Fedus et al. 2021); to several: by
    /// shares that sum up to 1 (Mixtral, Jiang et al. 2024).
    pub top_k: u64,
    /// Hundredths of the rows that an expert has if all get equally many; tokens beyond are left out.
    pub capacity: u64,
}

impl Experts {
    /// Rows of an expert for a sample of so many tokens: no more than there are tokens, of which none comes twice.
    fn rows(self, tokens: u64) -> u64 {
        (self.top_k * tokens * self.capacity).div_ceil(100 * self.count).min(tokens)
    }
}

/// Names of the numbers, in the order in which they are written.
pub(super) const KEYS: [&str; 9] =
    ["layers", "hidden", "heads", "kv", "ffn", "sequence", "vocabulary", "experts", "top_k"];

/// Most experts that a block has, and most rows as a multiple of those that equal shares need.
pub(super) const EXPERTS_MAX: u64 = 1024;

impl Transformer {
    /// GPT-2's blocks with tied embeddings.
    pub(super) const fn gpt(layers: u32, hidden: u64, heads: u64, sequence: u64) -> Self {
        let (kv_heads, ffn, vocabulary) = (heads, 4 * hidden, 50_257);
        let (tied, gated, experts) = (true, false, None);
        Self { layers, hidden, heads, kv_heads, ffn, sequence, vocabulary, tied, gated, experts }
    }

    /// LLaMA's blocks.
    pub(super) const fn llama(layers: u32, hidden: u64, heads: [u64; 2], ffn: u64) -> Self {
        let ([heads, kv_heads], vocabulary) = (heads, 32_000);
        let sequence = if kv_heads < heads { 4096 } else { 2048 };
        let (tied, gated, experts) = (false, true, None);
        Self { layers, hidden, heads, kv_heads, ffn, sequence, vocabulary, tied, gated, experts }
    }

    /// The same with Mixtral's experts, with a quarter more rows than equal shares need.
    pub(super) const fn mixture(self) -> Self {
        let experts = Some(Experts { count: 8, top_k: 2, capacity: USUAL_CAPACITY });
        Self { experts, ..self }
    }

    /// Mixtral's blocks, small enough to train anywhere.
    pub(super) const fn mixtral_mini() -> Self {
        let (sequence, vocabulary) = (128, 256);
        Self { sequence, vocabulary, ..Self::llama(4, 128, [8, 4], 256).mixture() }
    }

    /// Reads `layers=24,hidden=1024,heads=16,sequence=1024,vocabulary=50257,tied`; `kv` and `ffn`
    /// may be left out, and with `experts=8` also `top_k` and `capacity`. `None` for anything that is no network.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = [0u64; KEYS.len()];
        let (mut tied, mut gated, mut capacity) = (false, false, None);
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("capacity", value)) if capacity.is_none() => {
                    capacity = Some(hundredths(value)?);
                }
                Some((key, value)) => {
                    let slot = &mut numbers[KEYS.iter().position(|k| *k == key)?];
                    let value = value.parse().ok().filter(|n| (1..=1 << 20).contains(n))?;
                    if std::mem::replace(slot, value) != 0 {
                        return None;
                    }
                }
                None if part == "tied" && !tied => tied = true,
                None if part == "gated" && !gated => gated = true,
                None => return None,
            }
        }
        let [layers, hidden, heads, kv, ffn, sequence, vocabulary, count, top_k] = numbers;
        let experts = experts([count, top_k], capacity)?;
        let kv_heads = if kv == 0 { heads } else { kv };
        // LLaMA keeps the work of its three products at that of two of four times the size.
        let usual = if gated { (8 * hidden / 3).next_multiple_of(256) } else { 4 * hidden };
        let ffn = if ffn == 0 { usual } else { ffn };
        let whole = layers <= 1024
            && [layers, hidden, heads, sequence, vocabulary].iter().all(|n| *n > 0)
            && hidden.is_multiple_of(heads)
            && heads.is_multiple_of(kv_heads);
        let layers = layers as u32;
        let found = Self {
            layers,
            hidden,
            heads,
            kv_heads,
            ffn,
            sequence,
            vocabulary,
            tied,
            gated,
            experts,
        };
        whole.then_some(found)
    }

    /// Tokens in, the next token at each position out.
    pub(super) fn graph(self, name: String) -> Result<Graph, GraphError> {
        let Self { sequence, vocabulary, hidden, .. } = self;
        let mut g = GraphBuilder::new(name);
        g.layer("embedding");
        let tokens = Op::Tokens { length: sequence, vocabulary };
        let tokens = g.add("tokens", tokens, &[]);
        let positions = if self.gated { 0 } else { sequence };
        let table = Op::Embedding { entries: vocabulary, features: hidden, positions, kinds: 0 };
        let embedding = g.add("embedding", table, &[tokens]);
        let mut x = embedding;
        for i in 0..self.layers {
            let name = format!("h.{i}");
            g.layer(name.clone());
            x = self.block(&mut g, &name, x);
        }
        g.layer("head");
        let x = self.norm(&mut g, "ln_f", x);
        let x = match self.tied {
            true => {
                let op = Op::TiedLinear { weight: g.weight(embedding), out_features: vocabulary };
                g.add("head", op, &[x])
            }
            false => g.add("head", Op::Linear { out_features: vocabulary, bias: false }, &[x]),
        };
        g.losses(x, sequence, vocabulary);
        g.finish()
    }

    fn block(self, g: &mut GraphBuilder, name: &str, x: NodeId) -> NodeId {
        let part = |end: &str| format!("{name}.{end}");
        let linear = |g: &mut GraphBuilder, end: &str, x, out_features| {
            g.add(part(end), Op::Linear { out_features, bias: !self.gated }, &[x])
        };
        let y = self.norm(g, &part("ln_1"), x);
        let size = self.hidden / self.heads;
        let y = linear(g, "attn.qkv", y, (self.heads + 2 * self.kv_heads) * size);
        let attention = Op::Attention { heads: self.heads, kv_heads: self.kv_heads, causal: true };
        let y = g.add(part("attn"), attention, &[y]);
        let y = linear(g, "attn.proj", y, self.hidden);
        let x = g.add(part("add_1"), Op::Add, &[x, y]);
        let y = self.norm(g, &part("ln_2"), x);
        if let Some(experts) = self.experts {
            let y = self.mixture_of(g, name, experts, y);
            return g.add(part("add_2"), Op::Add, &[x, y]);
        }
        let y = if self.gated {
            let gate = linear(g, "mlp.gate", y, self.ffn);
            let gate = g.activation(&part("mlp.silu"), Function::Silu, gate);
            let up = linear(g, "mlp.up", y, self.ffn);
            g.add(part("mlp.multiply"), Op::Multiply, &[gate, up])
        } else {
            let y = linear(g, "mlp.fc", y, self.ffn);
            g.activation(&part("mlp.gelu"), Function::Gelu, y)
        };
        let y = linear(g, "mlp.proj", y, self.hidden);
        g.add(part("add_2"), Op::Add, &[x, y])
    }

    /// A router, its choice, the experts' products as one operation each, and their sum.
    fn mixture_of(self, g: &mut GraphBuilder, name: &str, experts: Experts, x: NodeId) -> NodeId {
        let part = |end: &str| format!("{name}.moe.{end}");
        let Experts { count, top_k, .. } = experts;
        let router = Op::Linear { out_features: count, bias: false };
        let logits = g.add(part("router"), router, &[x]);
        let top = Op::TopKSoftmax { k: top_k, normalize: top_k > 1 };
        let shares = g.add(part("shares"), top, &[logits]);
        let dispatch = Op::Dispatch { experts: count, capacity: experts.rows(self.sequence) };
        let rows = g.add(part("dispatch"), dispatch, &[x, shares]);
        let product = |g: &mut GraphBuilder, end: &str, x, out_features| {
            g.add(part(end), Op::GroupedLinear { out_features }, &[x])
        };
        let y = if self.gated {
            let gate = product(g, "experts.gate", rows, self.ffn);
            let gate = g.activation(&part("experts.silu"), Function::Silu, gate);
            let up = product(g, "experts.up", rows, self.ffn);
            g.add(part("experts.multiply"), Op::Multiply, &[gate, up])
        } else {
            let y = product(g, "experts.fc", rows, self.ffn);
            g.activation(&part("experts.gelu"), Function::Gelu, y)
        };
        let y = product(g, "experts.proj", y, self.hidden);
        g.add(part("combine"), Op::Combine, &[shares, y])
    }

    fn norm(self, g: &mut GraphBuilder, name: &str, x: NodeId) -> NodeId {
        match self.gated {
            true => g.add(name, Op::RmsNorm { eps: 1e-6 }, &[x]),
            false => g.add(name, Op::LayerNorm { eps: 1e-5 }, &[x]),
        }
    }
}

impl fmt::Display for Transformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hidden, heads, kv_heads, ffn, sequence, vocabulary, .. } = *self;
        let Experts { count, top_k, capacity } = self.experts.unwrap_or_default();
        let layers = u64::from(self.layers);
        let numbers = [layers, hidden, heads, kv_heads, ffn, sequence, vocabulary, count, top_k];
        let named = KEYS.iter().zip(numbers).filter(|(_, n)| *n > 0);
        let numbers: Vec<String> = named.map(|(key, n)| format!("{key}={n}")).collect();
        write!(f, "{}", numbers.join(","))?;
        match (self.experts, capacity % 100) {
            (None, _) => {}
            (_, 0) => write!(f, ",capacity={}", capacity / 100)?,
            (_, rest) => write!(f, ",capacity={}.{rest:02}", capacity / 100)?,
        }
        let flags = [(self.tied, ",tied"), (self.gated, ",gated")];
        flags.into_iter().filter(|(on, _)| *on).try_for_each(|(_, text)| write!(f, "{text}"))
    }
}

/// Those of a decoder with so many, of which a token takes `top_k`; none where nothing speaks of experts.
fn experts([count, top_k]: [u64; 2], capacity: Option<u64>) -> Option<Option<Experts>> {
    if count == 0 {
        return (top_k == 0 && capacity.is_none()).then_some(None);
    }
    let top_k = if top_k == 0 { count.min(2) } else { top_k };
    let capacity = capacity.unwrap_or(USUAL_CAPACITY);
    (count <= EXPERTS_MAX && top_k <= count).then_some(Some(Experts { count, top_k, capacity }))
}

/// A quarter more rows than equal shares need, as Switch has them.
const USUAL_CAPACITY: u64 = 125;

/// `1.25` in hundredths: a number above 0 with two digits behind the point at most.
pub(super) fn hundredths(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| {
        let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        all.then(|| text.parse::<u64>().ok()).flatten()
    };
    let rest = digits(rest).filter(|_| rest.len() <= 2)? * if rest.len() == 1 { 10 } else { 1 };
    let whole = digits(whole).filter(|whole| *whole <= EXPERTS_MAX)?;
    Some(100 * whole + rest).filter(|capacity| *capacity > 0)
}

/// Devlin et al. 2019 (uncased, 512 positions) with its pooler and a classifier of two classes, as
/// for sentence classification: normalisation after each part.
pub(super) fn bert(name: &str, layers: u32, hidden: u64, heads: u64) -> Result<Graph, GraphError> {
    const LENGTH: u64 = 512;
    const VOCABULARY: u64 = 30_522;
    let mut g = GraphBuilder::new(name);
    g.layer("embedding");
    let tokens = g.add("tokens", Op::Tokens { length: LENGTH, vocabulary: VOCABULARY }, &[]);
    let table =
        Op::Embedding { entries: VOCABULARY, features: hidden, positions: LENGTH, kinds: 2 };
    let x = g.add("embedding", table, &[tokens]);
    let norm = Op::LayerNorm { eps: 1e-12 };
    let mut x = g.add("embedding.norm", norm.clone(), &[x]);
    for i in 0..layers {
        let part = |end: &str| format!("encoder.{i}.{end}");
        g.layer(format!("encoder.{i}"));
        let y = g.linear(&part("attn.qkv"), x, 3 * hidden);
        let attention = Op::Attention { heads, kv_heads: heads, causal: false };
        let y = g.add(part("attn"), attention, &[y]);
        let y = g.linear(&part("attn.proj"), y, hidden);
        let y = g.add(part("add_1"), Op::Add, &[x, y]);
        let x1 = g.add(part("ln_1"), norm.clone(), &[y]);
        let y = g.linear(&part("mlp.fc"), x1, 4 * hidden);
        let y = g.activation(&part("mlp.gelu"), Function::Gelu, y);
        let y = g.linear(&part("mlp.proj"), y, hidden);
        let y = g.add(part("add_2"), Op::Add, &[x1, y]);
        x = g.add(part("ln_2"), norm.clone(), &[y]);
    }
    g.layer("pooler");
    let x = g.add("first", Op::FirstPosition, &[x]);
    let x = g.linear("pooler", x, hidden);
    let x = g.activation("pooler.tanh", Function::Tanh, x);
    let x = g.linear("classifier", x, 2);
    g.loss(x, 2);
    g.finish()
}
