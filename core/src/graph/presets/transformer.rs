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
}

/// Names of the numbers, in the order in which they are written.
pub(super) const KEYS: [&str; 7] =
    ["layers", "hidden", "heads", "kv", "ffn", "sequence", "vocabulary"];

impl Transformer {
    /// GPT-2's blocks with tied embeddings.
    pub(super) const fn gpt(layers: u32, hidden: u64, heads: u64, sequence: u64) -> Self {
        let (kv_heads, ffn, vocabulary) = (heads, 4 * hidden, 50_257);
        let (tied, gated) = (true, false);
        Self { layers, hidden, heads, kv_heads, ffn, sequence, vocabulary, tied, gated }
    }

    /// LLaMA's blocks.
    pub(super) const fn llama(layers: u32, hidden: u64, heads: [u64; 2], ffn: u64) -> Self {
        let ([heads, kv_heads], vocabulary) = (heads, 32_000);
        let sequence = if kv_heads < heads { 4096 } else { 2048 };
        let (tied, gated) = (false, true);
        Self { layers, hidden, heads, kv_heads, ffn, sequence, vocabulary, tied, gated }
    }

    /// Reads `layers=24,hidden=1024,heads=16,sequence=1024,vocabulary=50257,tied`; `kv` and `ffn`
    /// may be left out. `None` for anything that is no network.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = [0u64; 7];
        let (mut tied, mut gated) = (false, false);
        for part in text.split(',') {
            match part.split_once('=') {
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
        let [layers, hidden, heads, kv, ffn, sequence, vocabulary] = numbers;
        let kv_heads = if kv == 0 { heads } else { kv };
        // LLaMA keeps the work of its three products at that of two of four times the size.
        let usual = if gated { (8 * hidden / 3).next_multiple_of(256) } else { 4 * hidden };
        let ffn = if ffn == 0 { usual } else { ffn };
        let whole = layers <= 1024
            && [layers, hidden, heads, sequence, vocabulary].iter().all(|n| *n > 0)
            && hidden.is_multiple_of(heads)
            && heads.is_multiple_of(kv_heads);
        let layers = layers as u32;
        let found =
            Self { layers, hidden, heads, kv_heads, ffn, sequence, vocabulary, tied, gated };
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
        let numbers = [u64::from(self.layers), hidden, heads, kv_heads, ffn, sequence, vocabulary];
        let numbers: Vec<String> =
            KEYS.iter().zip(numbers).map(|(key, n)| format!("{key}={n}")).collect();
        write!(f, "{}", numbers.join(","))?;
        let flags = [(self.tied, ",tied"), (self.gated, ",gated")];
        flags.into_iter().filter(|(on, _)| *on).try_for_each(|(_, text)| write!(f, "{text}"))
    }
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
