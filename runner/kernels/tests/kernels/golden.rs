//! Golden vectors: what PyTorch computes in double precision (see `tests/vectors`).

use crate::case::{Case, Launch};
use crate::vector::Vector;
use pipewright_core::graph::{Function, Op, TensorSpec};

/// Largest difference allowed, as a share of the largest expected number of a tensor.
const TOLERANCE: f32 = 1e-4;

/// Vectors there are at least: a folder that went missing is no success.
const VECTORS: usize = 51;

/// Compares output, input gradients and parameter gradients of every vector.
#[allow(dead_code, reason = "not all who include this compute in single precision alone")]
pub fn suite(launch: Launch) {
    within(TOLERANCE, launch);
}

/// The same with another tolerance.
pub fn within(tolerance: f32, launch: Launch) {
    let mut files: Vec<_> =
        std::fs::read_dir(crate::vector::folder()).expect("vectors").flatten().collect();
    files.sort_by_key(|file| file.file_name());
    assert!(files.len() >= VECTORS, "only {} vectors", files.len());
    for file in files {
        let name = file.file_name().to_string_lossy().replace(".safetensors", "");
        let bytes = std::fs::read(file.path()).expect("a vector");
        let mut vector = Vector::new(&name, &bytes);
        vector.tolerance = tolerance;
        check(&vector, launch);
    }
}

fn check(vector: &Vector, launch: Launch) {
    match vector.op.as_str() {
        "cross_entropy" | "mse_loss" => check_loss(vector, launch),
        "split" => check_split(vector, launch),
        "div" => check_quotient(vector, launch),
        "attention" => {
            check_node(vector, launch);
            if vector.shape("in.q") == vector.shape("in.k") {
                check_packed(vector, launch);
            }
        }
        _ => check_node(vector, launch),
    }
}

/// A vector that is one node.
fn check_node(vector: &Vector, launch: Launch) {
    let mut case = vector.case();
    let forward = case.forward(launch);
    close(vector, "out.0", &forward.output);
    let backward = case.backward(launch, &forward, &vector.floats("gout.0"));
    for (name, gradient) in vector.inputs().iter().zip(&backward.inputs) {
        if !gradient.is_empty() {
            close(vector, &format!("gin.{name}"), gradient);
        }
    }
    for (key, gradient) in ["gin.w", "gin.b"].iter().zip(&backward.params) {
        close(vector, key, gradient);
    }
}

/// The vector has the mean; the kernel gives the sum and leaves the mean to the scale.
fn check_loss(vector: &Vector, launch: Launch) {
    let mut case = vector.case();
    case.loss_scale = vector.floats("gout.0")[0] / case.samples as f32;
    let forward = case.forward(launch);
    close(vector, "out.0", &[forward.output[0] / case.samples as f32]);
    let backward = case.backward(launch, &forward, &[]);
    close(vector, "gin.x", &backward.inputs[0]);
}

/// Slices one after the other; the gradients of all of them add up.
fn check_split(vector: &Vector, launch: Launch) {
    let shape = vector.shape("in.x");
    let (mut start, mut sum) = (0, vec![0.0; vector.floats("in.x").len()]);
    let sizes = vector.attrs["sizes"].as_array().expect("sizes");
    for (i, size) in sizes.iter().map(|size| size.as_u64().expect("a size")).enumerate() {
        let axis = shape.len() as u64 - 2;
        let op = Op::Slice { axis, start, end: start + size, step: 1 };
        let mut case = Case::new(op, vec![TensorSpec::f32(shape[1..].to_vec())], shape[0]);
        case.inputs[0] = vector.floats("in.x");
        let forward = case.forward(launch);
        close(vector, &format!("out.{i}"), &forward.output);
        let backward = case.backward(launch, &forward, &vector.floats(&format!("gout.{i}")));
        sum.iter_mut().zip(&backward.inputs[0]).for_each(|(sum, g)| *sum += g);
        start += size;
    }
    close(vector, "gin.x", &sum);
}

/// `a / (b b + 1)`, node after node.
fn check_quotient(vector: &Vector, launch: Launch) {
    let shape = vector.shape("in.a");
    let spec = || TensorSpec::f32(shape[1..].to_vec());
    let samples = shape[0];
    let square = Op::Activation { function: Function::Square };
    let mut square = Case::new(square, vec![spec()], samples);
    square.inputs[0] = vector.floats("in.b");
    let squared = square.forward(launch);
    let mut plus_one = Case::new(Op::Affine { scale: 1.0, shift: 1.0 }, vec![spec()], samples);
    plus_one.inputs[0].clone_from(&squared.output);
    let below = plus_one.forward(launch);
    let mut quotient = Case::new(Op::Divide, vec![spec(), spec()], samples);
    quotient.inputs = vec![vector.floats("in.a"), below.output.clone()];
    let forward = quotient.forward(launch);
    close(vector, "out.0", &forward.output);
    let gradient = quotient.backward(launch, &forward, &vector.floats("gout.0"));
    close(vector, "gin.a", &gradient.inputs[0]);
    let gradient = plus_one.backward(launch, &below, &gradient.inputs[1]);
    let gradient = square.backward(launch, &squared, &gradient.inputs[0]);
    close(vector, "gin.b", &gradient.inputs[0]);
}

/// The same attention of queries, keys and values side by side.
fn check_packed(vector: &Vector, launch: Launch) {
    let shape = vector.shape("in.q");
    let [samples, heads, length, d] = shape[..] else { panic!("[samples, heads, length, d]") };
    let causal = vector.attrs["causal"].as_bool().expect("causal");
    let op = Op::Attention { heads, kv_heads: heads, causal };
    let wide = 3 * heads * d;
    let mut case = Case::new(op, vec![TensorSpec::f32(vec![length, wide])], samples);
    // Element (sample, head, position, i) of part p is at (sample, position, p, head, i).
    let place = |part: u64, i: usize, parts: u64| {
        let (i, at) = (i as u64 % d, i as u64 / d);
        let (position, head, sample) = (at % length, at / length % heads, at / length / heads);
        ((((sample * length + position) * parts + part) * heads + head) * d + i) as usize
    };
    for (part, key) in (0..).zip(["in.q", "in.k", "in.v"]) {
        for (i, x) in vector.floats(key).into_iter().enumerate() {
            case.inputs[0][place(part, i, 3)] = x;
        }
    }
    let forward = case.forward(launch);
    let mut upstream = vec![0.0; forward.output.len()];
    let gradient = vector.floats("gout.0");
    gradient.iter().enumerate().for_each(|(i, g)| upstream[place(0, i, 1)] = *g);
    let picked = |from: &[f32], part, parts| -> Vec<f32> {
        (0..gradient.len()).map(|i| from[place(part, i, parts)]).collect()
    };
    close(vector, "out.0", &picked(&forward.output, 0, 1));
    let backward = case.backward(launch, &forward, &upstream);
    for (part, key) in (0..).zip(["gin.q", "gin.k", "gin.v"]) {
        close(vector, key, &picked(&backward.inputs[0], part, 3));
    }
}

fn close(vector: &Vector, key: &str, got: &[f32]) {
    let (name, expected) = (&vector.name, vector.floats(key));
    assert_eq!(got.len(), expected.len(), "{name} {key}");
    let largest = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!(
            (a - b).abs() <= vector.tolerance * largest,
            "{name} {key}[{i}]: {a}, expected {b}"
        );
    }
}
