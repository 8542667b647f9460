//! Layers of a graph that Megatron has a type for.

use super::megatron::LayerKind;
use crate::graph::{Graph, Op};
use thiserror::Error;

/// A layer that no Megatron model has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "layer `{layer}` of `{model}` is not an embedding, a decoder block or the head; Megatron's layout \
     describes transformers only, use PyTorch's split points"
)]
pub struct NotMegatron {
    /// The model.
    pub model: String,
    /// The layer.
    pub layer: String,
}

/// The kind of each layer: one with the loss is the head, one with attention a decoder block, one
/// with an embedding the embedding. Linear in the nodes.
///
/// # Errors
/// The first layer that is none of these.
pub fn layer_kinds(graph: &Graph) -> Result<Vec<LayerKind>, NotMegatron> {
    let mut kinds = vec![];
    for (index, layer) in graph.layers().iter().enumerate() {
        let range = graph.layer_nodes(index);
        let has = |wanted: fn(&Op) -> bool| {
            graph.nodes()[range.start as usize..range.end as usize].iter().any(|n| wanted(&n.op))
        };
        kinds.push(if has(Op::is_loss) {
            LayerKind::Loss
        } else if has(|op| matches!(op, Op::Attention { .. })) {
            LayerKind::Decoder
        } else if has(|op| matches!(op, Op::Embedding { .. })) {
            LayerKind::Embedding
        } else {
            return Err(NotMegatron { model: graph.name().into(), layer: layer.name.clone() });
        });
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::presets::Preset;
    use crate::plan::export::Layout;

    #[test]
    fn a_transformer_has_a_layout_and_an_image_network_has_none() {
        let graph = "gpt2".parse::<Preset>().unwrap().graph().unwrap();
        let kinds = layer_kinds(&graph).unwrap();
        let layout = Layout::new(&kinds, &[7]).unwrap();
        assert_eq!(layout.to_string(), "Et*6|t*6L");
        let error = layer_kinds(&Preset::Vgg16.graph().unwrap()).unwrap_err().to_string();
        assert!(error.contains("`features.0` of `vgg16`"), "{error}");
    }
}
