//! Layers: the units in which a network is cut.

use super::names;
use crate::graph::{GraphParts, Layer, Op};
use crate::ids::NodeId;
use std::collections::BTreeSet;

/// Consecutive nodes of one block of modules are a layer. Nodes that belong to no block, or to one
/// that a layer has had before, and blocks without parameters go with the layer before them; so do
/// the parts of one module between which several values pass, such as the branches of an inception
/// block: a cut there would send them all.
pub(super) fn layers(parts: &GraphParts, scopes: &[String]) -> Vec<Layer> {
    let common = common(scopes);
    let block = |scope: &str| names::block(scope.strip_prefix(&common).unwrap_or(scope));
    let crossing = crossing(parts);
    let owns = |at: usize| !parts.nodes[at].params.is_empty();
    let mut layers = vec![Layer { name: parts.nodes[0].name.clone(), first_node: NodeId(0) }];
    let mut seen = BTreeSet::new();
    let mut module = String::new();
    for (i, scope) in scopes.iter().enumerate().skip(1) {
        let name = block(scope);
        let mut run = (i..scopes.len()).take_while(|at| block(&scopes[*at]) == name);
        if scope.is_empty() || seen.contains(&name) || !run.any(owns) {
            continue;
        }
        let outer = name.split('.').next().unwrap_or(&name).to_string();
        let inside = outer == module && crossing[i] > 1;
        seen.insert(name.clone());
        if inside {
            continue;
        }
        // The sample alone is no layer: it goes with what reads it first.
        if layers.len() == 1 && !(0..i).any(owns) {
            layers[0].name = name;
        } else {
            layers.push(Layer { name, first_node: NodeId(i as u32) });
        }
        module = outer;
    }
    layers
}

/// The path that all modules begin with: that of a wrapper around the network.
fn common(scopes: &[String]) -> String {
    let mut named = scopes.iter().filter(|scope| !scope.is_empty());
    let first = named.next().map_or("", String::as_str);
    let parts: Vec<&str> = first.split('.').collect();
    let shared = (1..parts.len()).rev().map(|n| format!("{}.", parts[..n].join(".")));
    let mut shared = shared.filter(|prefix| named.clone().all(|scope| scope.starts_with(prefix)));
    shared.next().unwrap_or_default()
}

/// How many values that are computed before each node are read by it or after it. Weights do not
/// count: they can stand on both sides.
fn crossing(parts: &GraphParts) -> Vec<i64> {
    let count = parts.nodes.len();
    let mut last = vec![0usize; count];
    for (i, node) in parts.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|input| last[input.index()] = i);
    }
    // One more from the node behind it on, one less behind its last reader.
    let mut change = vec![0i64; count + 1];
    for (i, node) in parts.nodes.iter().enumerate() {
        if !matches!(node.op, Op::Parameter { .. }) && last[i] > i {
            change[i + 1] += 1;
            change[last[i] + 1] -= 1;
        }
    }
    let mut open = 0;
    let sums = change.iter().map(|change| {
        open += change;
        open
    });
    sums.take(count).collect()
}
