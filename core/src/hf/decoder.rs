//! Decoders with LLaMA's blocks (Touvron et al. 2023): LLaMA, Mistral, Qwen2.

use super::fields::Fields;
use super::{Head, HfError};
use crate::graph::{Graph, GraphBuilder, Op};
use crate::ids::NodeId;

/// What a configuration says of a block.
struct Block {
    hidden: u64,
    inner: u64,
    heads: u64,
    kv_heads: u64,
    /// Size of a head.
    size: u64,
    length: u64,
    eps: f32,
    rope_base: f32,
    /// Whether queries, keys and values have biases; the output of the attention; the feed-forward part.
    biases: [bool; 3],
}

pub(super) fn graph(
    name: &str,
    kind: &str,
    fields: &Fields,
    length: u64,
) -> Result<Graph, HfError> {
    let (vocabulary, layers) = (fields.number("vocab_size")?, fields.number("num_hidden_layers")?);
    let block = Block::read(kind, fields, length)?;
    window(kind, fields, length)?;
    let mut g = GraphBuilder::new(name);
    g.layer("model.embed_tokens");
    let tokens = g.add("tokens", Op::Tokens { length, vocabulary }, &[]);
    let features = block.hidden;
    let table = Op::Embedding { entries: vocabulary, features, positions: 0, kinds: 0 };
    let table = g.add("model.embed_tokens", table, &[tokens]);
    let mut x = table;
    for layer in 0..layers {
        let layer = format!("model.layers.{layer}");
        g.layer(&layer);
        x = block.add(&mut g, &layer, x);
    }
    g.layer("model.norm");
    let x = g.add("model.norm", Op::RmsNorm { eps: block.eps }, &[x]);
    let tied = fields.flag("tie_word_embeddings", false)?;
    Head { tokens: table, tied, length, vocabulary }.attach(&mut g, x);
    Ok(g.finish()?)
}

/// Refuses attention that does not see the whole sample.
fn window(kind: &str, fields: &Fields, length: u64) -> Result<(), HfError> {
    let usual = kind == "mistral";
    if !fields.flag("use_sliding_window", usual)? {
        return Ok(());
    }
    match fields.number_or("sliding_window", None)? {
        Some(window) if window < length => Err(fields.refused(
            "sliding_window",
            &format!(
                "attention here sees the whole sample, of {length} tokens; a sample no longer than the \
                 window is the same: --size sequence={window}"
            ),
        )),
        _ => Ok(()),
    }
}

/// The base of rotary positions, as transformers has written it before version 5 and since.
fn rope_base(fields: &Fields) -> Result<f32, HfError> {
    let plain = "rotary positions are those of RoFormer; of their scalings none can be read";
    let inside = fields.inside("rope_parameters")?;
    for scaling in [inside.as_ref(), fields.inside("rope_scaling")?.as_ref()].into_iter().flatten()
    {
        for field in ["rope_type", "type"] {
            if scaling.text(field)?.is_some_and(|kind| kind != "default") {
                return Err(scaling.refused(field, plain));
            }
        }
    }
    let share =
        inside.as_ref().map_or(1.0, |f| f.float("partial_rotary_factor", 1.0).unwrap_or(0.0));
    if share != 1.0 || fields.float("partial_rotary_factor", 1.0)? != 1.0 {
        return Err(fields.refused("partial_rotary_factor", "all of a head turns"));
    }
    let usual = f64::from(fields.float("rope_theta", 10_000.0)?);
    inside.map_or(Ok(usual as f32), |inside| inside.float("rope_theta", usual))
}

impl Block {
    fn read(kind: &str, fields: &Fields, length: u64) -> Result<Self, HfError> {
        let (hidden, heads) =
            (fields.number("hidden_size")?, fields.number("num_attention_heads")?);
        let open =
            |field, open| Ok::<_, HfError>(fields.number_or(field, Some(open))?.unwrap_or(open));
        let size = open("head_dim", hidden / heads)?;
        let kv_heads = open("num_key_value_heads", if kind == "mistral" { 8 } else { heads })?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(fields.refused("num_key_value_heads", "it does not divide the heads"));
        }
        if !matches!(fields.text("hidden_act")?.as_deref(), None | Some("silu" | "swish")) {
            return Err(fields.refused("hidden_act", "the gate is a SiLU"));
        }
        // Mistral has none, Qwen2 has those of queries, keys and values.
        let biases = match kind {
            "llama" => {
                let attention = fields.flag("attention_bias", false)?;
                [attention, attention, fields.flag("mlp_bias", false)?]
            }
            kind => [kind == "qwen2", false, false],
        };
        Ok(Self {
            hidden,
            inner: fields.number("intermediate_size")?,
            heads,
            kv_heads,
            size,
            length,
            eps: fields.float("rms_norm_eps", 1e-6)?,
            rope_base: rope_base(fields)?,
            biases,
        })
    }

    fn add(&self, g: &mut GraphBuilder, layer: &str, x: NodeId) -> NodeId {
        let part = |end: &str| format!("{layer}.{end}");
        let linear = |g: &mut GraphBuilder, end: &str, x, out_features, bias| {
            g.add(part(end), Op::Linear { out_features, bias }, &[x])
        };
        let norm = Op::RmsNorm { eps: self.eps };
        let [qkv_bias, output_bias, mlp_bias] = self.biases;
        let y = g.add(part("input_layernorm"), norm.clone(), &[x]);
        let (queries, others) = (self.heads * self.size, self.kv_heads * self.size);
        let q = linear(g, "self_attn.q_proj", y, queries, qkv_bias);
        let k = linear(g, "self_attn.k_proj", y, others, qkv_bias);
        let v = linear(g, "self_attn.v_proj", y, others, qkv_bias);
        let q = self.turned(g, &part("self_attn.q"), q, self.heads);
        let k = self.turned(g, &part("self_attn.k"), k, self.kv_heads);
        let qkv = g.add(part("self_attn.concat_qk"), Op::Concat { axis: 1 }, &[q, k]);
        let qkv = g.add(part("self_attn.concat_qkv"), Op::Concat { axis: 1 }, &[qkv, v]);
        let attention = Op::Attention { heads: self.heads, kv_heads: self.kv_heads, causal: true };
        let y = g.add(part("self_attn"), attention, &[qkv]);
        let y = linear(g, "self_attn.o_proj", y, self.hidden, output_bias);
        let x = g.add(part("add_1"), Op::Add, &[x, y]);
        let y = g.add(part("post_attention_layernorm"), norm, &[x]);
        let gate = linear(g, "mlp.gate_proj", y, self.inner, mlp_bias);
        let up = linear(g, "mlp.up_proj", y, self.inner, mlp_bias);
        let y = g.add(part("mlp.act"), Op::SwiGlu, &[gate, up]);
        let y = linear(g, "mlp.down_proj", y, self.hidden, mlp_bias);
        g.add(part("add_2"), Op::Add, &[x, y])
    }

    /// Rotary positions on the heads that lie side by side in the last axis.
    fn turned(&self, g: &mut GraphBuilder, name: &str, x: NodeId, heads: u64) -> NodeId {
        let swap = Op::Permute { axes: vec![1, 0, 2] };
        let apart = Op::Reshape { shape: vec![self.length, heads, self.size] };
        let x = g.add(format!("{name}.heads"), apart, &[x]);
        let x = g.add(format!("{name}.first"), swap.clone(), &[x]);
        let x = g.add(format!("{name}.rope"), Op::Rope { base: self.rope_base }, &[x]);
        let x = g.add(format!("{name}.back"), swap, &[x]);
        let together = Op::Reshape { shape: vec![self.length, heads * self.size] };
        g.add(format!("{name}.together"), together, &[x])
    }
}
