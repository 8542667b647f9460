//! Nodes in an order that works, with functions replaced by what they stand for.

use super::OnnxError;
use super::proto::{Attribute, Function, Model, Node};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Functions may call functions, this often; beyond it they call themselves.
const DEPTH_MAX: usize = 32;

/// More nodes than any network has.
const NODES_MAX: usize = 1 << 20;

/// The nodes of the graph, functions inlined, sorted if they are not.
pub(super) fn nodes(model: &Model, known: &BTreeSet<&str>) -> Result<Vec<Node>, OnnxError> {
    let graph = model.graph.as_ref().ok_or(OnnxError::Empty)?;
    let mut functions = BTreeMap::new();
    for f in &model.functions {
        functions.insert((f.domain.as_str(), f.name.as_str(), f.overload.as_str()), f);
    }
    let mut flat = vec![];
    for node in &graph.node {
        inline(node.clone(), &functions, 0, &mut flat)?;
    }
    sort(flat, known)
}

type Functions<'a> = BTreeMap<(&'a str, &'a str, &'a str), &'a Function>;

fn inline(
    node: Node,
    functions: &Functions<'_>,
    depth: usize,
    flat: &mut Vec<Node>,
) -> Result<(), OnnxError> {
    let key = (node.domain.as_str(), node.op_type.as_str(), node.overload.as_str());
    let Some(function) = functions.get(&key) else {
        flat.push(node);
        return match flat.len() > NODES_MAX {
            true => Err(OnnxError::Nodes { limit: NODES_MAX }),
            false => Ok(()),
        };
    };
    if depth == DEPTH_MAX {
        return Err(OnnxError::Recursion { function: function.name.clone() });
    }
    let call = match node.name.is_empty() {
        true => format!("{}_{}", node.op_type, flat.len()),
        false => node.name.clone(),
    };
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for (i, inner) in function.input.iter().enumerate() {
        names.insert(inner, node.input.get(i).cloned().unwrap_or_default());
    }
    for (inner, outer) in function.output.iter().zip(&node.output) {
        names.insert(inner, outer.clone());
    }
    let outside = |name: &String| match names.get(name.as_str()) {
        Some(outer) => outer.clone(),
        None if name.is_empty() => String::new(),
        None => format!("{call}/{name}"),
    };
    for inner in &function.node {
        let mut body = inner.clone();
        body.input = inner.input.iter().map(outside).collect();
        body.output = inner.output.iter().map(outside).collect();
        body.name = format!("{call}/{}", inner.name);
        body.attribute =
            inner.attribute.iter().filter_map(|a| resolve(a, &node, function)).collect();
        if body.metadata_props.is_empty() {
            body.metadata_props.clone_from(&node.metadata_props);
        }
        inline(body, functions, depth + 1, flat)?;
    }
    Ok(())
}

/// An attribute of a function's node, with the value that the call gives it.
fn resolve(attribute: &Attribute, call: &Node, function: &Function) -> Option<Attribute> {
    if attribute.ref_attr_name.is_empty() {
        return Some(attribute.clone());
    }
    let wanted = |a: &&Attribute| a.name == attribute.ref_attr_name;
    let value = call
        .attribute
        .iter()
        .find(wanted)
        .or_else(|| function.attribute_proto.iter().find(wanted))?;
    Some(Attribute { name: attribute.name.clone(), ..value.clone() })
}

/// Producers before readers; files should have this order, few do not.
fn sort(nodes: Vec<Node>, known: &BTreeSet<&str>) -> Result<Vec<Node>, OnnxError> {
    let mut producer: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            if known.contains(output.as_str()) || producer.insert(output, i).is_some() {
                return Err(OnnxError::Twice { value: output.clone() });
            }
        }
    }
    let mut waiting = vec![0usize; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![vec![]; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        for input in node.input.iter().filter(|i| !i.is_empty() && !known.contains(i.as_str())) {
            let from = producer
                .get(input.as_str())
                .ok_or_else(|| OnnxError::Missing { node: label(node), value: input.clone() })?;
            waiting[i] += 1;
            readers[*from].push(i);
        }
    }
    let in_order = nodes.iter().enumerate().all(|(i, _)| readers[i].iter().all(|r| *r > i));
    if in_order {
        return Ok(nodes);
    }
    let mut ready: VecDeque<usize> = (0..nodes.len()).filter(|i| waiting[*i] == 0).collect();
    let mut order = vec![];
    while let Some(i) = ready.pop_front() {
        order.push(i);
        for reader in &readers[i] {
            waiting[*reader] -= 1;
            if waiting[*reader] == 0 {
                ready.push_back(*reader);
            }
        }
    }
    if let Some(stuck) = (0..nodes.len()).find(|i| waiting[*i] > 0) {
        return Err(OnnxError::Cycle { node: label(&nodes[stuck]) });
    }
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| nodes[i].take()).collect())
}

/// What a node is called in messages.
pub(super) fn label(node: &Node) -> String {
    match (node.name.is_empty(), node.output.first()) {
        (true, Some(output)) => output.clone(),
        _ => node.name.clone(),
    }
}
