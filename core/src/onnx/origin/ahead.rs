//! Weights with which the exporter computed ahead: rows looked up, tokens repeated for each sample,
//! scales of norms plus one.

use super::program::Program;
use super::{Origins, Weights};
use crate::onnx::names;
use crate::onnx::proto::{Node, Tensor, data_type};
use std::collections::BTreeSet;

/// A table of vectors looked up at known positions is an initialiser of the rows that were taken,
/// called after the call: `embedding_1`; a class token repeated for each sample is called `expand`.
/// Where just one such parameter of the module is missing, that is it.
pub(super) fn tables(
    weights: &mut Weights<'_>,
    nodes: &mut Vec<Node>,
    program: &Program,
    origins: &mut Origins,
) {
    let missing: Vec<String> = program.missing(origins).into_iter().map(str::to_string).collect();
    for rows in named(weights, nodes, program, "embedding") {
        let features = rows.dims.last().copied().unwrap_or(1);
        let mut length: i64 = rows.dims[..rows.dims.len() - 1].iter().product();
        let mut tensor = Tensor { dims: vec![length, features], ..rows };
        // One row for all positions: of a table of segments.
        let kind = match first_copy(&tensor, "_token") {
            Some(row) if length > 1 => {
                (length, tensor) = (1, Tensor { name: tensor.name, ..row });
                "type"
            }
            _ => "pos",
        };
        let fits = |name: &&String| {
            let module = name.strip_suffix(".weight").and_then(|m| m.rsplit('.').next());
            module.is_some_and(|m| m.contains(kind) || kind == "pos" && m == "wpe")
        };
        let Some(table) = one(missing.iter().filter(fits)) else { continue };
        let taken = if length == 1 { "row" } else { "rows" };
        origins.warnings.push(format!(
            "of `{table}` the file has the {length} {taken} that the example took, which are trained"
        ));
        rename(weights, nodes, tensor, table, origins);
    }
    let token = |name: &&String| name.ends_with("_token") || name.ends_with("class_embedding");
    if let (Some(copies), Some(name)) =
        (named(weights, nodes, program, "expand").pop(), one(missing.iter().filter(token)))
        && let Some(tensor) = first_copy(&copies, name)
    {
        weights.add(tensor);
        let shape = weights.free(&format!("{}_shape", copies.name));
        let sizes = copies.dims.iter().flat_map(|n| n.to_le_bytes());
        weights.add(Tensor {
            name: shape.clone(),
            dims: vec![copies.dims.len() as i64],
            data_type: data_type::INT64,
            raw_data: sizes.collect::<Vec<u8>>().into(),
            ..Tensor::default()
        });
        let repeat = Node {
            op_type: "Expand".into(),
            input: vec![name.clone(), shape],
            output: vec![copies.name],
            ..Node::default()
        };
        nodes.insert(0, repeat);
        origins.parameters.insert(name.clone(), name.clone());
    }
}

fn one<'n>(mut names: impl Iterator<Item = &'n String>) -> Option<&'n String> {
    let first = names.next();
    if names.next().is_none() { first } else { None }
}

/// The initialisers of several axes whose names begin so.
fn named(weights: &Weights<'_>, nodes: &[Node], program: &Program, prefix: &str) -> Vec<Tensor> {
    let fits = |name: &&String| {
        name.starts_with(prefix)
            && !name.contains('.')
            && !program.has(name)
            && weights.get(name).is_some_and(|t| t.dims.len() > 1)
    };
    let names: BTreeSet<&String> = nodes.iter().flat_map(|node| &node.input).filter(fits).collect();
    names.into_iter().filter_map(|name| weights.get(name).cloned()).collect()
}

/// The first of equal copies along the first axis. Tokens of the vision transformers have axes of
/// size 1 in front, CLIP's class embedding has none.
fn first_copy(copies: &Tensor, name: &str) -> Option<Tensor> {
    let count = usize::try_from(*copies.dims.first()?).ok().filter(|n| *n > 0)?;
    let bytes = copies.raw_data.len() / count;
    let mut parts = copies.raw_data.chunks(bytes.max(1));
    let first = parts.next()?;
    if copies.data_location == 1 || !parts.all(|part| part == first) {
        return None;
    }
    let mut dims = [&[1], &copies.dims[1..]].concat();
    if !name.ends_with("_token") {
        dims = dims.split_off(dims.iter().take_while(|n| **n == 1).count());
    }
    let raw_data = copies.raw_data.slice(..bytes);
    Some(Tensor { name: name.into(), raw_data, dims, ..copies.clone() })
}

/// Lets all that read a tensor read it under another name.
fn rename(
    weights: &mut Weights<'_>,
    nodes: &mut [Node],
    mut tensor: Tensor,
    name: &str,
    origins: &mut Origins,
) {
    let old = std::mem::replace(&mut tensor.name, name.to_string());
    weights.add(tensor);
    for input in nodes.iter_mut().flat_map(|node| &mut node.input).filter(|i| **i == old) {
        *input = name.to_string();
    }
    origins.parameters.insert(name.to_string(), name.to_string());
}

/// Gemma's norms scale by the weight plus one, which the exporter adds up ahead: the weight is put
/// back, and the sum.
pub(super) fn shifted(
    weights: &mut Weights<'_>,
    nodes: &mut Vec<Node>,
    program: &Program,
    origins: &mut Origins,
) {
    let old = std::mem::take(nodes);
    let one = weights.free("one");
    for mut node in old {
        if let Some((slot, sum, name)) = plus_one(weights, &node, program, origins)
            && let Some(weight) = less_one(&sum, &name)
        {
            if !weights.at.contains_key(&one) {
                let raw_data = 1f32.to_le_bytes().to_vec().into();
                let (name, data_type) = (one.clone(), data_type::FLOAT);
                weights.add(Tensor { name, data_type, raw_data, ..Tensor::default() });
            }
            weights.add(weight);
            origins.parameters.insert(name.clone(), name.clone());
            let output = weights.free(&format!("{}_scale", node.output[0]));
            nodes.push(Node {
                op_type: "Add".into(),
                name: format!("{}_scale", node.name),
                input: vec![name, one.clone()],
                output: vec![output.clone()],
                attribute: vec![],
                ..node.clone()
            });
            node.input[slot] = output;
        }
        nodes.push(node);
    }
}

/// The slot in which a product of a norm of Gemma reads a sum, the sum, and the weight's name.
fn plus_one(
    weights: &Weights<'_>,
    node: &Node,
    program: &Program,
    origins: &Origins,
) -> Option<(usize, Tensor, String)> {
    let classes = node.metadata_props.iter().find(|e| e.key.ends_with("class_hierarchy"))?;
    let norm = |class: &str| class.contains("gemma") && class.ends_with("RMSNorm");
    let of_norm = classes.value.split('\'').any(norm);
    let name = format!("{}.weight", names::scope(node));
    if node.op_type != "Mul" || !of_norm || !program.missing(origins).contains(&name.as_str()) {
        return None;
    }
    let slot = node.input.iter().position(|i| weights.get(i).is_some())?;
    Some((slot, weights.get(&node.input[slot])?.clone(), name))
}

/// The tensor less one.
fn less_one(sum: &Tensor, name: &str) -> Option<Tensor> {
    let (values, rest) = sum.raw_data.as_chunks::<4>();
    if sum.data_type != data_type::FLOAT || sum.data_location == 1 || !rest.is_empty() {
        return None;
    }
    let less = values.iter().flat_map(|v| (f32::from_le_bytes(*v) - 1.0).to_le_bytes());
    Some(Tensor { name: name.into(), raw_data: less.collect::<Vec<u8>>().into(), ..sum.clone() })
}
