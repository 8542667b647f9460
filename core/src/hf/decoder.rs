//! Decoders with LLaMA's blocks (Touvron et al. 2023) and what has become of them: LLaMA, Mistral, Qwen2 and 3, Phi-3,
//! OLMo 2, SmolLM3.

use super::block::{Block, Experts, Normed, Rope};
use super::fields::Fields;
use super::{Head, HfError};
use crate::graph::{Graph, GraphBuilder, Op, RopeScaling};

pub(super) fn graph(
    name: &str,
    kind: &str,
    fields: &Fields,
    length: u64,
) -> Result<Graph, HfError> {
    let (vocabulary, layers) = (fields.number("vocab_size")?, fields.number("num_hidden_layers")?);
    let block = read(kind, fields, length)?;
    window(kind, fields, length)?;
    let turning = turning(kind, fields, layers)?;
    let mut g = GraphBuilder::new(name);
    g.layer("model.embed_tokens");
    let tokens = g.add("tokens", Op::Tokens { length, vocabulary }, &[]);
    let features = block.hidden;
    let table = Op::Embedding { entries: vocabulary, features, positions: 0, kinds: 0 };
    let table = g.add("model.embed_tokens", table, &[tokens]);
    let mut x = table;
    for (layer, turns) in turning.into_iter().enumerate() {
        let layer = format!("model.layers.{layer}");
        g.layer(&layer);
        x = block.add(&mut g, &layer, turns, x);
    }
    g.layer("model.norm");
    let x = g.add("model.norm", Op::RmsNorm { eps: block.eps }, &[x]);
    let tied = fields.flag("tie_word_embeddings", kind == "smollm3")?;
    Head { tokens: table, tied, length, vocabulary }.attach(&mut g, x);
    Ok(g.finish()?)
}

/// Refuses attention that does not see the whole sample.
fn window(kind: &str, fields: &Fields, length: u64) -> Result<(), HfError> {
    // The others have a flag beside the number.
    let usual = matches!(kind, "mistral" | "mixtral" | "phi3");
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

/// Layers in which positions matter: in SmolLM3 three of four.
fn turning(kind: &str, fields: &Fields, layers: u64) -> Result<Vec<bool>, HfError> {
    if kind != "smollm3" {
        return Ok(vec![true; layers as usize]);
    }
    let every = fields.number_or("no_rope_layer_interval", Some(4))?.unwrap_or(4);
    match fields.flags("no_rope_layers")? {
        Some(list) if list.len() as u64 != layers => {
            Err(fields.refused("no_rope_layers", &format!("there are {layers} layers")))
        }
        Some(list) => Ok(list),
        None => Ok((1..=layers).map(|layer| !layer.is_multiple_of(every)).collect()),
    }
}

/// Rotary positions, as transformers has written them before version 5 and since.
fn rope(kind: &str, fields: &Fields, size: u64) -> Result<Rope, HfError> {
    let inside = fields.inside("rope_parameters")?;
    let old = fields.inside("rope_scaling")?;
    let mut scaling = None;
    for given in [inside.as_ref(), old.as_ref()].into_iter().flatten() {
        scaling = scaled(given)?.or(scaling);
    }
    let share = fields.float("partial_rotary_factor", 1.0)?;
    let share =
        inside.as_ref().map_or(Ok(share), |f| f.float("partial_rotary_factor", share.into()))?;
    let turning = (f64::from(share) * size as f64) as u64;
    if turning == 0 || turning > size || !turning.is_multiple_of(2) {
        let why = format!("an even number of a head's {size} elements turns");
        return Err(fields.refused("partial_rotary_factor", &why));
    }
    let usual = match kind {
        "smollm3" => 2e6,
        "mixtral" => 1e6,
        _ => 1e4,
    };
    let usual = f64::from(fields.float("rope_theta", usual)?);
    let base = inside.map_or(Ok(usual as f32), |inside| inside.float("rope_theta", usual))?;
    Ok(Rope { base, scaling, turning })
}

/// How frequencies are scaled.
fn scaled(given: &Fields) -> Result<Option<RopeScaling>, HfError> {
    for field in ["rope_type", "type"] {
        let Some(kind) = given.text(field)? else { continue };
        let number = |field: &str| match given.has(field) {
            true => given.float(field, 1.0),
            false => Err(HfError::Missing(field.into())),
        };
        return match kind.as_str() {
            "default" => Ok(None),
            "linear" => Ok(Some(RopeScaling::linear(number("factor")?))),
            "llama3" => Ok(Some(RopeScaling {
                factor: number("factor")?,
                low_freq_factor: number("low_freq_factor")?,
                high_freq_factor: number("high_freq_factor")?,
                original_length: number("original_max_position_embeddings")?,
            })),
            _ => Err(given.refused(
                field,
                "rotary positions can be scaled as linear and llama3; for a sample no longer than the \
                 network was first trained on, leave the scaling out",
            )),
        };
    }
    Ok(None)
}

fn read(kind: &str, fields: &Fields, length: u64) -> Result<Block, HfError> {
    let (hidden, heads) = (fields.number("hidden_size")?, fields.number("num_attention_heads")?);
    let open = |field, open| Ok::<_, HfError>(fields.number_or(field, Some(open))?.unwrap_or(open));
    let size = open("head_dim", if kind == "qwen3" { 128 } else { hidden / heads })?;
    let usual = match kind {
        "mistral" | "mixtral" => 8,
        "smollm3" => 4,
        _ => heads,
    };
    let kv_heads = open("num_key_value_heads", usual)?;
    if !heads.is_multiple_of(kv_heads) {
        return Err(fields.refused("num_key_value_heads", "it does not divide the heads"));
    }
    if !matches!(fields.text("hidden_act")?.as_deref(), None | Some("silu" | "swish")) {
        return Err(fields.refused("hidden_act", "the gate is a SiLU"));
    }
    // Mistral and Phi-3 have none, Qwen2 has those of queries, keys and values.
    let biases = match kind {
        "mistral" | "mixtral" | "phi3" => [false; 3],
        "qwen2" => [true, false, false],
        kind => {
            let attention = fields.flag("attention_bias", false)?;
            let has_flag = matches!(kind, "llama" | "smollm3");
            [attention, attention, has_flag && fields.flag("mlp_bias", false)?]
        }
    };
    Ok(Block {
        hidden,
        inner: fields.number("intermediate_size")?,
        heads,
        kv_heads,
        size,
        length,
        eps: fields.float(
            "rms_norm_eps",
            if matches!(kind, "phi3" | "olmo2" | "mixtral") { 1e-5 } else { 1e-6 },
        )?,
        rope: rope(kind, fields, size)?,
        biases,
        normed: match kind {
            "qwen3" | "qwen3_moe" => Normed::EachHead,
            "olmo2" => Normed::AllHeads,
            _ => Normed::Nothing,
        },
        norms_after: kind == "olmo2",
        fused: kind == "phi3",
        experts: experts(kind, fields)?,
    })
}

/// The mixture of experts that each block has, if it has one.
fn experts(kind: &str, fields: &Fields) -> Result<Option<Experts>, HfError> {
    let mixture = match kind {
        "mixtral" => Experts {
            count: fields.number_or("num_local_experts", Some(8))?.unwrap_or(8),
            top_k: fields.number_or("num_experts_per_tok", Some(2))?.unwrap_or(2),
            normalize: true,
            inner: fields.number("intermediate_size")?,
            module: "block_sparse_moe",
            layers: ["w1", "w3", "w2"],
        },
        "qwen3_moe" => Experts {
            count: fields.number("num_experts")?,
            top_k: fields.number("num_experts_per_tok")?,
            normalize: fields.flag("norm_topk_prob", false)?,
            inner: fields.number("moe_intermediate_size")?,
            module: "mlp",
            layers: ["gate_proj", "up_proj", "down_proj"],
        },
        _ => return Ok(None),
    };
    if mixture.top_k > mixture.count {
        let why = format!("there are {} experts", mixture.count);
        return Err(fields.refused("num_experts_per_tok", &why));
    }
    let every = "experts in some layers only cannot be read";
    if fields.number_or("decoder_sparse_step", Some(1))? != Some(1) {
        return Err(fields.refused("decoder_sparse_step", every));
    }
    if fields.has("mlp_only_layers") && !fields.is_empty_list("mlp_only_layers") {
        return Err(fields.refused("mlp_only_layers", every));
    }
    fields.must_be("output_router_logits", false, "there is no loss that balances experts")?;
    Ok(Some(mixture))
}
