//! Small ONNX files, whole and damaged.

#[path = "../../../../core/src/onnx/proto.rs"]
#[expect(dead_code, reason = "no file of a test has all types of values")]
mod proto;

use prost::Message;
use proto::{
    Attribute, Dimension, Entry, Graph, Model, Node, OperatorSet, Shape, Tensor, TensorType, Type,
    ValueInfo,
};

fn node(op: &str, inputs: &[&str], output: &str, name: &str) -> Node {
    Node {
        op_type: op.into(),
        name: name.into(),
        input: inputs.iter().map(|i| (*i).to_string()).collect(),
        output: vec![output.into()],
        ..Node::default()
    }
}

/// `x [N, sizes..]` through nodes to `y`.
fn file(node: Vec<Node>, initializer: Vec<Tensor>, sizes: &[i64]) -> Vec<u8> {
    let batch = Dimension { dim_value: None, dim_param: Some("N".into()) };
    let size = |n: &i64| Dimension { dim_value: Some(*n), dim_param: None };
    let dim = std::iter::once(batch).chain(sizes.iter().map(size)).collect();
    let tensor_type = Some(TensorType { elem_type: 1, shape: Some(Shape { dim }) });
    let graph = Graph {
        node,
        initializer,
        input: vec![ValueInfo { name: "x".into(), r#type: Some(Type { tensor_type }) }],
        output: vec![ValueInfo { name: "y".into(), r#type: None }],
        ..Graph::default()
    };
    let opset_import = vec![OperatorSet { domain: String::new(), version: 17 }];
    Model { graph: Some(graph), opset_import, ..Model::default() }.encode_to_vec()
}

fn weight(dims: &[i64], bytes: &[u8]) -> Tensor {
    let raw_data = bytes.to_vec().into();
    Tensor { name: "w".into(), dims: dims.to_vec(), data_type: 1, raw_data, ..Tensor::default() }
}

/// A product with a weight of such sizes and such bytes.
pub fn initialised(dims: &[i64], bytes: &[u8]) -> Vec<u8> {
    file(vec![node("MatMul", &["x", "w"], "y", "a")], vec![weight(dims, bytes)], &[8])
}

/// A product with a weight of 64 values in another file.
pub fn external(location: &str, length: Option<u64>) -> Vec<u8> {
    let entry = |key: &str, value: String| Entry { key: key.into(), value };
    let mut external_data = vec![entry("location", location.into())];
    external_data.extend(length.map(|length| entry("length", length.to_string())));
    let weight = Tensor { data_location: 1, external_data, ..weight(&[8, 8], &[]) };
    file(vec![node("MatMul", &["x", "w"], "y", "a")], vec![weight], &[8])
}

/// An operation that nobody knows, and so many others behind it.
pub fn nodes(first: &str, other: &str, count: usize) -> Vec<u8> {
    let mut nodes = vec![node(first, &["x", "w"], "h0", "a")];
    for i in 0..count {
        let output = if i + 1 == count { "y".into() } else { format!("h{}", i + 1) };
        nodes.push(node(other, &[&format!("h{i}")], &output, &format!("n{i}")));
    }
    file(nodes, vec![weight(&[8, 8], &[0; 256])], &[8])
}

/// Operations of one input in a row, behind a product.
pub fn unary(ops: &[&str]) -> Vec<u8> {
    let mut nodes = vec![node("MatMul", &["x", "w"], "h0", "a")];
    for (i, op) in ops.iter().enumerate() {
        let output = if i + 1 == ops.len() { "y".into() } else { format!("h{}", i + 1) };
        nodes.push(node(op, &[&format!("h{i}")], &output, &format!("n{i}")));
    }
    file(nodes, vec![weight(&[8, 8], &[0; 256])], &[8])
}

/// A convolution of 64 channels; uneven padding has no counterpart here.
pub fn convolution(pads: &[i64]) -> Vec<u8> {
    let pads = Attribute { name: "pads".into(), ints: pads.to_vec(), ..Attribute::default() };
    let conv = Node { attribute: vec![pads], ..node("Conv", &["x", "w"], "y", "a") };
    file(vec![conv], vec![weight(&[64, 64, 3, 3], &[0; 4 * 64 * 64 * 9])], &[64, 16, 16])
}
