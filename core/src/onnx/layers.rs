//! Layers: the units in which a network is cut.

use super::names;
use crate::graph::{GraphParts, Layer};
use crate::ids::NodeId;
use std::collections::BTreeSet;

/// Consecutive nodes of one block of modules are a layer. Nodes that belong to no block, or to one
/// that a layer has had before, and blocks without parameters go with the layer before them.
pub(super) fn layers(parts: &GraphParts, scopes: &[String]) -> Vec<Layer> {
    let mut layers: Vec<Layer> = vec![];
    let mut seen = BTreeSet::new();
    for (i, scope) in scopes.iter().enumerate() {
        let first_node = NodeId(i as u32);
        if i == 0 {
            layers.push(Layer { name: parts.nodes[0].name.clone(), first_node });
            continue;
        }
        let block = names::block(scope);
        let owns = |at: &usize| !parts.nodes[*at].params.is_empty();
        let run = (i..scopes.len()).take_while(|at| names::block(&scopes[*at]) == block);
        if scope.is_empty() || seen.contains(&block) || !run.into_iter().any(|at| owns(&at)) {
            continue;
        }
        seen.insert(block.clone());
        // The sample alone is no layer: it goes with what reads it first.
        if layers.len() == 1 && !(0..i).any(|at| owns(&at)) {
            layers[0].name = block;
        } else {
            layers.push(Layer { name: block, first_node });
        }
    }
    layers
}
