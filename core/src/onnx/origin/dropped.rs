//! Biases of zeros, which the exporter leaves out here and adds there.

use super::program::Call;
use super::{Origins, Weights};
use crate::onnx::proto::{Attribute, Node, Tensor, data_type};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Puts a bias of zeros where the program has one and no node of its call reads it.
pub(super) fn biases(
    weights: &mut Weights<'_>,
    nodes: &mut Vec<Node>,
    calls: &[Option<Call<'_>>],
    origins: &mut Origins,
) {
    let mut added: BTreeMap<usize, Node> = BTreeMap::new();
    for (at, call) in calls.iter().enumerate() {
        if call.as_ref().is_some_and(|call| is_extra(weights, &nodes[at], call)) {
            origins.constants.insert(nodes[at].input[2].clone());
        }
        let Some(bias) =
            call.as_ref().and_then(bias).filter(|b| !origins.parameters.values().any(|p| p == b))
        else {
            continue;
        };
        let Some(outputs) = outputs(weights, &nodes[at]) else { continue };
        let name = weights.free(bias);
        weights.add(zeros(name.clone(), outputs));
        origins.parameters.insert(name.clone(), bias.to_string());
        if nodes[at].op_type == "MatMul" {
            let product = weights.free(&format!("{}_product", nodes[at].output[0]));
            let sum = std::mem::replace(&mut nodes[at].output[0], product.clone());
            let node = Node {
                op_type: "Add".into(),
                name: format!("{}_bias", nodes[at].name),
                input: vec![product, name],
                output: vec![sum],
                attribute: Vec::<Attribute>::new(),
                ..nodes[at].clone()
            };
            added.insert(at, node);
        } else {
            nodes[at].input.truncate(2);
            nodes[at].input.push(name);
        }
    }
    if added.is_empty() {
        return;
    }
    let old = std::mem::take(nodes);
    for (at, node) in old.into_iter().enumerate() {
        nodes.push(node);
        nodes.extend(added.remove(&at));
    }
}

/// Whether a convolution reads a bias of zeros that the program's call has not.
fn is_extra(weights: &Weights<'_>, node: &Node, call: &Call<'_>) -> bool {
    let bias = node.input.get(2).and_then(|bias| weights.get(bias));
    node.op_type == "Conv"
        && call.op.starts_with("conv")
        && call.parameters.len() == 1
        && bias.is_some_and(|b| b.data_location != 1 && b.raw_data.iter().all(|byte| *byte == 0))
        && !call.is_parameter(&node.input[2])
}

/// The bias among the parameters of a linear layer or a convolution.
fn bias<'c>(call: &Call<'c>) -> Option<&'c str> {
    match (call.op.as_str(), &call.parameters[..]) {
        ("addmm", [bias, _]) => Some(bias),
        ("linear" | "convolution" | "conv1d" | "conv2d" | "conv_transpose2d", [_, bias]) => {
            Some(bias)
        }
        _ => None,
    }
}

/// Features that a node without bias gives.
fn outputs(weights: &Weights<'_>, node: &Node) -> Option<i64> {
    if node.input.get(2).is_some_and(|bias| !bias.is_empty()) {
        return None;
    }
    let dims = &weights.get(node.input.get(1)?)?.dims;
    let int = |name: &str| node.attribute.iter().find(|a| a.name == name).map(|a| a.i);
    match node.op_type.as_str() {
        "Gemm" if int("transB").unwrap_or(0) == 0 => dims.get(1).copied(),
        "Gemm" | "Conv" => dims.first().copied(),
        "ConvTranspose" => dims.get(1)?.checked_mul(int("group").unwrap_or(1)),
        "MatMul" => dims.last().copied().filter(|_| dims.len() == 2),
        _ => None,
    }
}

fn zeros(name: String, elements: i64) -> Tensor {
    let bytes = usize::try_from(elements).unwrap_or(0).min(1 << 24) * 4;
    Tensor {
        name,
        dims: vec![elements],
        data_type: data_type::FLOAT,
        raw_data: Bytes::from(vec![0; bytes]),
        ..Tensor::default()
    }
}
