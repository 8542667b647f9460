//! GPT-2's decoder (Radford et al. 2019).

use super::fields::Fields;
use super::{Head, HfError, Rows, activated, activation};
use crate::graph::{Graph, GraphBuilder, Op};

pub(super) fn graph(name: &str, fields: &Fields, length: u64) -> Result<Graph, HfError> {
    let [vocabulary, hidden, layers, heads, positions] =
        ["vocab_size", "n_embd", "n_layer", "n_head", "n_positions"].map(|f| fields.number(f));
    let (vocabulary, hidden, layers, heads) = (vocabulary?, hidden?, layers?, heads?);
    let inner = fields.number_or("n_inner", Some(4 * hidden))?.unwrap_or(4 * hidden);
    let function = activation(fields, "activation_function")?;
    let eps = fields.float("layer_norm_epsilon", 1e-5)?;
    let plain = "attention is scaled by the size of a head alone";
    fields.must_be("scale_attn_weights", true, plain)?;
    fields.must_be("scale_attn_by_inverse_layer_idx", false, plain)?;
    fields.must_be("add_cross_attention", false, "there is no encoder to attend to")?;
    if !hidden.is_multiple_of(heads) {
        return Err(fields.refused("n_head", "it does not divide n_embd"));
    }
    let mut g = GraphBuilder::new(name);
    g.layer("transformer.wte");
    let tokens = g.add("tokens", Op::Tokens { length, vocabulary }, &[]);
    let table = Op::Embedding { entries: vocabulary, features: hidden, positions: 0, kinds: 0 };
    let table = g.add("transformer.wte", table, &[tokens]);
    g.layer("transformer.wpe");
    let shape = [positions?, hidden];
    let mut x = Rows { name: "transformer.wpe", shape, used: length }.added_to(&mut g, table);
    for layer in 0..layers {
        let layer = format!("transformer.h.{layer}");
        let part = |end: &str| format!("{layer}.{end}");
        g.layer(&layer);
        let y = g.add(part("ln_1"), Op::LayerNorm { eps }, &[x]);
        let y = g.linear(&part("attn.c_attn"), y, 3 * hidden);
        let attention = Op::Attention { heads, kv_heads: heads, causal: true };
        let y = g.add(part("attn"), attention, &[y]);
        let y = g.linear(&part("attn.c_proj"), y, hidden);
        x = g.add(part("add_1"), Op::Add, &[x, y]);
        let y = g.add(part("ln_2"), Op::LayerNorm { eps }, &[x]);
        let y = g.linear(&part("mlp.c_fc"), y, inner);
        let y = activated(&mut g, &part("mlp.act"), function, y);
        let y = g.linear(&part("mlp.c_proj"), y, hidden);
        x = g.add(part("add_2"), Op::Add, &[x, y]);
    }
    g.layer("transformer.ln_f");
    let x = g.add("transformer.ln_f", Op::LayerNorm { eps }, &[x]);
    let tied = fields.flag("tie_word_embeddings", true)?;
    Head { tokens: table, tied, length, vocabulary }.attach(&mut g, x);
    Ok(g.finish()?)
}
