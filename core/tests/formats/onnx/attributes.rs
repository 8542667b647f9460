//! Attributes that change what a node computes, by the definitions of ONNX's operators.

use super::built::{floats, import, ints, model, node, value, with};
use super::proto::{Attribute, Model, Node, Tensor, data_type};
use pipewright_core::graph::{Graph, Op};

/// A network on an image `x [n, C, H, W]`.
fn on_image(axes: &[i64], nodes: Vec<Node>, initializer: Vec<Tensor>) -> Model {
    let mut model = model(nodes, initializer);
    let sizes: Vec<Option<i64>> =
        std::iter::once(None).chain(axes.iter().copied().map(Some)).collect();
    model.graph.as_mut().unwrap().input = vec![value("x", data_type::FLOAT, &sizes)];
    model
}

fn text(name: &str, text: &str) -> Attribute {
    Attribute { name: name.into(), s: text.as_bytes().to_vec().into(), ..Attribute::default() }
}

fn number(name: &str, i: i64) -> Attribute {
    Attribute { name: name.into(), i, ..Attribute::default() }
}

fn version(mut model: Model, version: i64) -> Model {
    model.opset_import[0].version = version;
    model
}

fn graph(model: &Model) -> Graph {
    let imported = import(model).unwrap();
    assert!(imported.unsupported.is_empty(), "{:?}", imported.unsupported);
    imported.graph
}

/// Shapes of a graph's nodes before its loss, by operation.
fn shapes(graph: &Graph) -> Vec<(&'static str, Vec<u64>)> {
    let plain = graph.nodes().iter().filter(|n| !n.op.is_loss() && n.op.name() != "target_values");
    plain.map(|node| (node.op.name(), node.output.shape.clone())).collect()
}

#[test]
fn a_softmax_before_operator_set_13_is_over_all_axes_from_its_own_on() {
    let softmax = |attributes: &[Attribute]| {
        let softmax = with(node("Softmax", &["x"], "y"), attributes.to_vec());
        on_image(&[5, 2, 3], vec![softmax], vec![])
    };
    let whole = vec![5, 2, 3];
    let input = ("input", whole.clone());
    let several = import(&version(softmax(&[]), 11)).unwrap().unsupported;
    assert_eq!(several[0].why, "over several axes, as before operator set 13");
    // Axes of one element do not matter.
    let node = node("Softmax", &["x"], "y");
    let classes = graph(&version(on_image(&[5, 1, 1], vec![node], vec![]), 11));
    assert!(shapes(&classes).contains(&("softmax", vec![1, 1, 5])), "{:?}", shapes(&classes));
    // Of the last axis alone nothing is to be flattened, and today's default is the last axis.
    for model in [version(softmax(&[number("axis", 3)]), 11), softmax(&[])] {
        assert_eq!(shapes(&graph(&model)), [input.clone(), ("softmax", whole.clone())]);
    }
}

fn conv(attributes: &[Attribute]) -> Node {
    with(node("Conv", &["p", "w"], "y"), attributes.to_vec())
}

#[test]
fn a_pad_of_another_value_than_zero_is_no_padding_of_a_convolution() {
    let padded = |value: f32| {
        let value = Attribute { name: "value".into(), f: value, ..Attribute::default() };
        let pads = ints("pads", &[0, 0, 1, 1, 0, 0, 1, 1]);
        let nodes = vec![with(node("Pad", &["x"], "p"), vec![pads, value]), conv(&[])];
        let weight = vec![floats("w", &[1, 2, 1, 1], &[0.5; 2])];
        version(on_image(&[2, 4, 4], nodes, weight), 9)
    };
    let zeros = graph(&padded(0.0));
    assert_eq!(shapes(&zeros)[1], ("conv2d", vec![1, 6, 6]));
    let imported = import(&padded(5.0)).unwrap();
    assert_eq!(imported.unsupported.iter().map(|u| u.op.as_str()).collect::<Vec<_>>(), ["Pad"]);
}

#[test]
fn a_valid_convolution_takes_the_padding_of_the_node_before() {
    let pads = ints("pads", &[0, 0, 1, 1, 0, 0, 1, 1]);
    let nodes = vec![
        with(node("Pad", &["x"], "p"), vec![pads]),
        // `pads` means nothing beside `VALID`.
        conv(&[text("auto_pad", "VALID"), ints("pads", &[3, 3, 3, 3])]),
    ];
    let weight = vec![floats("w", &[1, 2, 3, 3], &[0.5; 18])];
    let graph = graph(&version(on_image(&[2, 8, 8], nodes, weight), 9));
    assert_eq!(shapes(&graph)[1], ("conv2d", vec![1, 8, 8]));
}

#[test]
fn a_transposed_convolution_that_keeps_the_size_gives_input_times_stride() {
    let nodes = vec![with(
        node("ConvTranspose", &["x", "w"], "y"),
        vec![text("auto_pad", "SAME_UPPER"), ints("strides", &[3, 3])],
    )];
    let weight = vec![floats("w", &[2, 1, 5, 5], &[0.1; 50])];
    let graph = graph(&on_image(&[2, 4, 4], nodes, weight));
    assert_eq!(shapes(&graph)[1], ("conv_transpose2d", vec![1, 12, 12]));
}

/// `SoftmaxCrossEntropyLoss` of scores `[n, axes..]`.
fn loss(axes: &[i64], attributes: &[Attribute]) -> Model {
    let nodes = vec![
        node("Relu", &["x"], "scores"),
        with(node("SoftmaxCrossEntropyLoss", &["scores", "labels"], "y"), attributes.to_vec()),
    ];
    let mut model = on_image(axes, nodes, vec![]);
    let sizes: Vec<Option<i64>> =
        std::iter::once(None).chain(axes[1..].iter().copied().map(Some)).collect();
    model.graph.as_mut().unwrap().input.push(value("labels", data_type::INT64, &sizes));
    model
}

#[test]
fn classes_of_the_files_own_loss_are_axis_1_and_all_of_them_count() {
    let targets = |axes: &[i64], attributes: &[Attribute]| {
        let imported = import(&loss(axes, attributes)).unwrap();
        match imported.unsupported.first() {
            Some(unsupported) => Err(unsupported.op.clone()),
            None => Ok(imported.graph.nodes().iter().any(|node| {
                matches!(node.op, Op::Target { classes: 5 } | Op::Targets { classes: 5, .. })
            })),
        }
    };
    let ignore = |class| vec![number("ignore_index", class)];
    for axes in [&[5][..], &[5, 2, 3]] {
        assert_eq!(targets(axes, &[]), Ok(true), "{axes:?}");
        assert_eq!(targets(axes, &ignore(-100)), Ok(true), "{axes:?}");
        assert!(targets(axes, &ignore(2)).is_err(), "{axes:?}");
    }
    // As a sample they would be positions of so many classes.
    assert!(targets(&[5, 3], &[]).is_err());
}

#[test]
fn scores_without_classes_are_no_panic() {
    let nodes = vec![
        with(node("ReduceMean", &["x"], "s"), vec![ints("axes", &[1]), number("keepdims", 0)]),
        node("SoftmaxCrossEntropyLoss", &["s", "labels"], "y"),
    ];
    let mut model = model(nodes, vec![]);
    let labels = value("labels", data_type::INT64, &[None]);
    model.graph.as_mut().unwrap().input.push(labels);
    let told = import(&model).map(|imported| imported.unsupported);
    assert!(told.is_err() || !told.unwrap().is_empty());
}
