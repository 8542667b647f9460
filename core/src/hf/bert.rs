//! BERT (Devlin et al. 2019) with its pooler and a classifier of texts.

use super::fields::Fields;
use super::{HfError, Rows, activated, activation};
use crate::graph::{Graph, GraphBuilder, Op};

pub(super) fn graph(name: &str, fields: &Fields, length: u64) -> Result<Graph, HfError> {
    let (vocabulary, hidden) = (fields.number("vocab_size")?, fields.number("hidden_size")?);
    let (layers, heads) =
        (fields.number("num_hidden_layers")?, fields.number("num_attention_heads")?);
    let inner = fields.number("intermediate_size")?;
    let kinds = fields.number_or("type_vocab_size", Some(2))?.unwrap_or(2);
    let function = activation(fields, "hidden_act")?;
    let norm = Op::LayerNorm { eps: fields.float("layer_norm_eps", 1e-12)? };
    fields.must_be("is_decoder", false, "attention is in both directions")?;
    if fields.text("position_embedding_type")?.is_some_and(|kind| kind != "absolute") {
        return Err(fields.refused("position_embedding_type", "positions are absolute"));
    }
    if !hidden.is_multiple_of(heads) {
        return Err(fields.refused("num_attention_heads", "it does not divide hidden_size"));
    }
    let classes = fields.entries("id2label").unwrap_or(2);
    let mut g = GraphBuilder::new(name);
    g.layer("bert.embeddings");
    let embedding = |end: &str| format!("bert.embeddings.{end}");
    let tokens = g.add("tokens", Op::Tokens { length, vocabulary }, &[]);
    let table = Op::Embedding { entries: vocabulary, features: hidden, positions: 0, kinds: 0 };
    let x = g.add(embedding("word_embeddings"), table, &[tokens]);
    // All tokens are of the first kind.
    let shape = [kinds, hidden];
    let x = Rows { name: &embedding("token_type_embeddings"), shape, used: 1 }.added_to(&mut g, x);
    let shape = [fields.number("max_position_embeddings")?, hidden];
    let positions = embedding("position_embeddings");
    let x = Rows { name: &positions, shape, used: length }.added_to(&mut g, x);
    let mut x = g.add(embedding("LayerNorm"), norm.clone(), &[x]);
    for layer in 0..layers {
        let layer = format!("bert.encoder.layer.{layer}");
        let part = |end: &str| format!("{layer}.{end}");
        g.layer(&layer);
        let of = |end: &str| part(&format!("attention.{end}"));
        let [q, k, v] =
            ["self.query", "self.key", "self.value"].map(|end| g.linear(&of(end), x, hidden));
        let qk = g.add(of("self.concat_qk"), Op::Concat { axis: 1 }, &[q, k]);
        let qkv = g.add(of("self.concat_qkv"), Op::Concat { axis: 1 }, &[qk, v]);
        let attention = Op::Attention { heads, kv_heads: heads, causal: false };
        let y = g.add(of("self"), attention, &[qkv]);
        let y = g.linear(&of("output.dense"), y, hidden);
        let y = g.add(of("output.add"), Op::Add, &[x, y]);
        let middle = g.add(of("output.LayerNorm"), norm.clone(), &[y]);
        let y = g.linear(&part("intermediate.dense"), middle, inner);
        let y = activated(&mut g, &part("intermediate.act"), function, y);
        let y = g.linear(&part("output.dense"), y, hidden);
        let y = g.add(part("output.add"), Op::Add, &[middle, y]);
        x = g.add(part("output.LayerNorm"), norm.clone(), &[y]);
    }
    g.layer("bert.pooler");
    let x = g.add("bert.pooler.first", Op::FirstPosition, &[x]);
    let x = g.linear("bert.pooler.dense", x, hidden);
    let x = g.activation("bert.pooler.activation", crate::graph::Function::Tanh, x);
    g.layer("classifier");
    let x = g.linear("classifier", x, classes);
    g.loss(x, classes);
    Ok(g.finish()?)
}
