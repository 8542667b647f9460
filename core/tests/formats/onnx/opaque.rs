//! Operations without a counterpart: what they cost, and what is damage instead.

use super::built::{EIGHT, floats, import, ints, linear, model, node, value, with};
use super::proto::{Entry, Model, data_type};
use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::{Graph, Op, Precision};
use pipewright_core::onnx::{Options, read_with};
use prost::Message;

/// `x [n, 3, 8, 8]`, a convolution of 4 channels whose padding nothing here has, a ReLU.
fn uneven(pads: &[i64]) -> Graph {
    let nodes = vec![
        with(node("Conv", &["x", "c.weight"], "h"), vec![ints("pads", pads)]),
        node("Relu", &["h"], "y"),
    ];
    let mut model = model(nodes, vec![floats("c.weight", &[4, 3, 3, 3], &[0.1; 108])]);
    let image = [None, Some(3), Some(8), Some(8)];
    model.graph.as_mut().unwrap().input = vec![value("x", data_type::FLOAT, &image)];
    import(&model).unwrap().graph
}

#[test]
fn an_opaque_convolution_costs_its_arithmetic() {
    let known = uneven(&[1, 1, 1, 1]);
    let opaque = uneven(&[0, 0, 2, 2]);
    let of = |graph: &Graph, name| {
        graph.nodes().iter().position(|node| node.op.name() == name).expect("it is there")
    };
    let (conv, other) = (of(&known, "conv2d"), of(&opaque, "opaque"));
    let Op::Opaque { output, parameters, flops, unpriced, .. } = opaque.nodes()[other].op else {
        panic!("{:?}", opaque.nodes()[other])
    };
    assert_eq!((output, parameters, unpriced), (4 * 4 * 64, 4 * 108, false));
    assert_eq!(flops, 2 * 4 * 64 * 27);
    assert_eq!(opaque.unpriced(), 0);
    let mut cluster = Cluster::preset("dgx-a100").unwrap();
    // As if arithmetic took all the time, at one rate for all operations.
    cluster.device.efficiencies = None;
    cluster.device.memory_bytes_per_sec = 1e18;
    let cost = |graph: &Graph, at: usize| {
        Costs::new(graph, &cluster, 1 << 16, Precision::F32).nodes[at].forward
    };
    assert_eq!(cost(&known, conv), cost(&opaque, other));
}

#[test]
fn what_nothing_tells_the_price_of_is_marked() {
    let weight = || vec![floats("w", &[4, 2], &EIGHT)];
    let unpriced = |nodes| import(&model(nodes, weight())).unwrap().graph.unpriced();
    let relu = |from: &str| node("Relu", &[from], "y");
    assert_eq!(unpriced(vec![node("MatMul", &["x", "w"], "h"), relu("h")]), 0);
    // Moves cost their bytes, element-wise operations as many operations as elements.
    assert_eq!(unpriced(vec![node("Tan", &["x"], "h"), relu("h")]), 0);
    // No shapes: the operation and what is behind it.
    assert_eq!(unpriced(vec![node("Einsum", &["x", "w"], "h"), relu("h")]), 2);
    assert_eq!(
        unpriced(vec![node("Own", &["x", "w"], "h"), relu("h"), node("Abs", &["y"], "z")]),
        2
    );
}

/// Plans of before have neither field, and a plan that has them keeps them.
#[test]
fn the_price_is_in_the_plan_file() {
    let before = r#"{"op":"opaque","output":8,"parameters":0}"#;
    let op: Op = serde_json::from_str(before).unwrap();
    assert_eq!(op, Op::Opaque { output: 8, parameters: 0, flops: 0, unpriced: false, kept: None });
    assert_eq!(serde_json::to_string(&op).unwrap(), before);
    let priced = Op::Opaque { output: 8, parameters: 0, flops: 7, unpriced: true, kept: None };
    let text = serde_json::to_string(&priced).unwrap();
    assert_eq!(serde_json::from_str::<Op>(&text).unwrap(), priced);
    let endless =
        Op::Opaque { output: 8, parameters: 0, flops: u64::MAX, unpriced: false, kept: None };
    assert!(endless.infer(&[]).unwrap_err().contains("more than 2^56"));
}

#[test]
fn damage_is_not_an_operation_that_is_not_supported() {
    type Change = fn(&mut Model);
    let cases: [(&str, Change); 6] = [
        ("`fc.w` has 8 values for 17179869184 elements", |m| {
            weight(m).dims = vec![1 << 17, 1 << 17];
        }),
        ("`fc.w` has 7 values for 8 elements", |m| {
            weight(m).float_data.pop();
        }),
        ("`fc.w` has 31 bytes for 8 elements", |m| raw(m, 31)),
        ("`fc.w` has 36 bytes for 8 elements", |m| raw(m, 36)),
        ("`fc.w` has sizes [-4, 2]", |m| weight(m).dims = vec![-4, 2]),
        ("`fc.w` has 4611686018427387904 bytes in `w.bin` for 8 elements", |m| {
            let weight = weight(m);
            weight.float_data.clear();
            weight.data_location = 1;
            let length = (1u64 << 62).to_string();
            weight.external_data = vec![entry("location", "w.bin"), entry("length", &length)];
        }),
    ];
    for (words, change) in cases {
        let mut model = linear();
        change(&mut model);
        let error = import(&model).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    let mut whole = linear();
    raw(&mut whole, 32);
    import(&whole).unwrap();
}

fn entry(key: &str, value: &str) -> Entry {
    Entry { key: key.into(), value: value.into() }
}

fn weight(model: &mut Model) -> &mut super::proto::Tensor {
    &mut model.graph.as_mut().unwrap().initializer[0]
}

fn raw(model: &mut Model, bytes: usize) {
    let weight = weight(model);
    weight.float_data.clear();
    weight.raw_data = vec![0; bytes].into();
}

#[test]
fn sizes_of_no_axis_are_refused() {
    let mut model = linear();
    let axes = [None, None, Some(4)];
    let mut input = value("x", data_type::FLOAT, &axes);
    let tensor = input.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
    tensor.shape.as_mut().unwrap().dim[1].dim_param = Some("length".into());
    model.graph.as_mut().unwrap().input = vec![input];
    let with = |sizes: &[(&str, u64)]| {
        let sizes = sizes.iter().map(|(name, size)| ((*name).to_string(), *size)).collect();
        let found =
            read_with(model.encode_to_vec(), &Options { sizes, ..Options::default() }, &|_| None);
        found.map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(with(&[("length", 3)]), Ok(()));
    let refused =
        |name: &str| format!("no open size of the inputs is called `{name}`; open are length");
    assert_eq!(with(&[("length", 3), ("foo", 5)]), Err(refused("foo")));
    assert_eq!(with(&[("length", 3), ("n", 5)]), Err(refused("n")), "the batch stays open");
}
