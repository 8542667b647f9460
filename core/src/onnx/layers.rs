//! Layers: the units in which a network is cut.

use super::names;
use crate::graph::{GraphParts, Layer, Op};
use crate::ids::NodeId;
use std::collections::BTreeSet;

/// Consecutive nodes of one block of modules are a layer. Nodes that belong to no block, or to one
/// that a layer has had before, and blocks without parameters go with the layer before them; so do
/// the parts of one module between which several values pass, such as the branches of an inception
/// block: a cut there would send them all. A block is parted further wherever one value alone passes
/// from a module with parameters to the next.
pub(super) fn layers(parts: &GraphParts, scopes: &[String]) -> Vec<Layer> {
    let crossing = crossing(parts);
    let common = common(scopes);
    let scopes: Vec<&str> =
        scopes.iter().map(|scope| scope.strip_prefix(&common).unwrap_or(scope)).collect();
    let mut layers = blocks(parts, &scopes, &crossing);
    part(&mut layers, parts, &scopes, &crossing);
    layers
}

fn blocks(parts: &GraphParts, scopes: &[&str], crossing: &[i64]) -> Vec<Layer> {
    let owns = |at: usize| !parts.nodes[at].params.is_empty();
    let mut layers = vec![Layer { name: parts.nodes[0].name.clone(), first_node: NodeId(0) }];
    let mut seen = BTreeSet::new();
    let mut module = String::new();
    for (i, scope) in scopes.iter().enumerate().skip(1) {
        let name = names::block(scope);
        let mut run = (i..scopes.len()).take_while(|at| names::block(scopes[*at]) == name);
        if scope.is_empty() || seen.contains(&name) || !run.any(owns) {
            continue;
        }
        let outer = name.split('.').next().unwrap_or(&name).to_string();
        let before = &layers[layers.len() - 1].name;
        // Blocks in a row may hand on one value besides, as T5 does with its positions.
        let inside = outer == module && crossing[i] > 1 + i64::from(follows(before, &name));
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

/// Whether two blocks are neighbours in a list of modules: `block.3` and `block.4`.
fn follows(before: &str, name: &str) -> bool {
    let number = |name: &str| {
        let (list, number) = name.rsplit_once('.')?;
        Some((list.to_string(), number.parse::<u64>().ok()?))
    };
    match (number(before), number(name)) {
        (Some((a, first)), Some((b, second))) => a == b && first.checked_add(1) == Some(second),
        _ => false,
    }
}

/// Cuts layers further where one value passes from a module with parameters to another one.
fn part(layers: &mut Vec<Layer>, parts: &GraphParts, scopes: &[&str], crossing: &[i64]) {
    let owns = |at: &usize| {
        let node = &parts.nodes[*at];
        !node.params.is_empty() && !matches!(node.op, Op::Parameter { .. })
    };
    let mut taken: BTreeSet<String> = layers.iter().map(|layer| layer.name.clone()).collect();
    let starts: BTreeSet<usize> = layers.iter().map(|layer| layer.first_node.index()).collect();
    // The last node with parameters before each place, within its layer.
    let mut last: Option<usize> = None;
    let mut added = vec![];
    for i in 0..parts.nodes.len() {
        if starts.contains(&i) {
            last = None;
        }
        if let (true, Some(before)) = (owns(&i), last) {
            // The new module begins behind the last point that one value passes.
            let begin = (before + 1..=i).rev().find(|at| crossing[*at] == 1);
            let name = beyond(scopes[before], scopes[i]);
            if let (Some(begin), Some(name)) = (begin, name)
                && scopes[begin..=i].iter().all(|s| s.is_empty() || s.starts_with(&name))
                && taken.insert(name.clone())
            {
                added.push(Layer { name, first_node: NodeId(begin as u32) });
            }
        }
        if owns(&i) {
            last = Some(i);
        }
    }
    layers.extend(added);
    layers.sort_by_key(|layer| layer.first_node.index());
}

/// The module of `scope` that `before` is not in: `h.0.mlp` of `h.0.mlp.fc` after `h.0.attn.proj`.
fn beyond(before: &str, scope: &str) -> Option<String> {
    let (own, other): (Vec<&str>, Vec<&str>) =
        (scope.split('.').collect(), before.split('.').collect());
    let common = own.iter().zip(&other).take_while(|(a, b)| a == b).count();
    (!scope.is_empty() && common < own.len()).then(|| own[..=common].join("."))
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
/// count: they can stand on both sides. Nor do the sample's tokens, a number where others send features.
fn crossing(parts: &GraphParts) -> Vec<i64> {
    let count = parts.nodes.len();
    let mut last = vec![0usize; count];
    for (i, node) in parts.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|input| last[input.index()] = i);
    }
    // One more from the node behind it on, one less behind its last reader.
    let mut change = vec![0i64; count + 1];
    for (i, node) in parts.nodes.iter().enumerate() {
        if !matches!(node.op, Op::Parameter { .. } | Op::Tokens { .. }) && last[i] > i {
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
