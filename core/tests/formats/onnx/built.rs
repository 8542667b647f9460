//! Small files made here: each feature of the format, and each way to be wrong.

use super::proto::{
    Attribute, Dimension, Entry, Function, Graph, Model, Node, OperatorSet, Shape, Tensor,
    TensorType, Type, ValueInfo, data_type,
};
use pipewright_core::graph::{Function as Activation, Op};
use pipewright_core::ids::ParamId;
use pipewright_core::onnx::{Imported, Loss, OnnxError, Options, Place, Source, read_with};
use prost::Message;
use std::io;

pub(super) fn value(name: &str, elem_type: i32, dims: &[Option<i64>]) -> ValueInfo {
    let dimension = |dim: &Option<i64>| match dim {
        Some(n) => Dimension { dim_value: Some(*n), dim_param: None },
        None => Dimension { dim_value: None, dim_param: Some("n".into()) },
    };
    let shape = Some(Shape { dim: dims.iter().map(dimension).collect() });
    let tensor_type = Some(TensorType { elem_type, shape });
    ValueInfo { name: name.into(), r#type: Some(Type { tensor_type }) }
}

pub(super) fn node(op: &str, inputs: &[&str], output: &str) -> Node {
    Node {
        op_type: op.into(),
        name: format!("/net/{output}/{op}"),
        input: inputs.iter().map(|i| (*i).to_string()).collect(),
        output: vec![output.into()],
        ..Node::default()
    }
}

pub(super) fn with(mut node: Node, attributes: Vec<Attribute>) -> Node {
    node.attribute = attributes;
    node
}

pub(super) fn ints(name: &str, ints: &[i64]) -> Attribute {
    Attribute { name: name.into(), ints: ints.to_vec(), ..Attribute::default() }
}

pub(super) fn floats(name: &str, dims: &[i64], values: &[f32]) -> Tensor {
    let (dims, float_data) = (dims.to_vec(), values.to_vec());
    Tensor { name: name.into(), dims, data_type: data_type::FLOAT, float_data, ..Tensor::default() }
}

/// `x [n, 4] -> y`.
pub(super) fn model(nodes: Vec<Node>, initializer: Vec<Tensor>) -> Model {
    let graph = Graph {
        node: nodes,
        name: "net".into(),
        initializer,
        input: vec![value("x", data_type::FLOAT, &[None, Some(4)])],
        output: vec![value("y", data_type::FLOAT, &[])],
        value_info: vec![],
        metadata_props: vec![],
    };
    let opset_import = vec![OperatorSet { domain: String::new(), version: 17 }];
    Model { graph: Some(graph), opset_import, ..Model::default() }
}

pub(super) fn import(model: &Model) -> Result<Imported, OnnxError> {
    read_with(
        model.encode_to_vec(),
        &Options { loss: Loss::MeanSquaredError, ..Options::default() },
        &|_| None,
    )
}

fn ops(imported: &Imported) -> Vec<&'static str> {
    imported.graph.nodes().iter().map(|n| n.op.name()).collect()
}

pub(super) const EIGHT: [f32; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];

pub(super) fn linear() -> Model {
    let nodes = vec![node("MatMul", &["x", "fc.w"], "h"), node("Add", &["fc.b", "h"], "y")];
    model(nodes, vec![floats("fc.w", &[4, 2], &EIGHT), floats("fc.b", &[2], &[0.5, -0.5])])
}

#[test]
fn a_product_and_a_sum_are_a_linear_layer_with_the_weight_turned() {
    let imported = import(&linear()).unwrap();
    assert_eq!(ops(&imported), ["input", "linear", "target_values", "mean_squared_error"]);
    let none = |_: &Place| -> Result<Vec<u8>, io::Error> { panic!("nothing is elsewhere") };
    let weight = imported.tensor(ParamId(0), none).unwrap().unwrap();
    assert_eq!(weight, [1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0]);
    let names: Vec<&str> = imported.graph.params().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["fc.w", "fc.b"]);
}

#[test]
fn weights_elsewhere_are_read_from_where_the_file_says() {
    let mut model = linear();
    let weight = &mut model.graph.as_mut().unwrap().initializer[0];
    weight.float_data.clear();
    weight.data_location = 1;
    let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
    weight.external_data =
        vec![entry("location", "w.bin"), entry("offset", "16"), entry("length", "32")];
    let imported = import(&model).unwrap();
    assert_eq!(imported.external_files(), ["w.bin"]);
    let bytes: Vec<u8> = EIGHT.iter().flat_map(|x| x.to_le_bytes()).collect();
    let read = |place: &Place| {
        assert_eq!((place.file.as_str(), place.offset, place.length), ("w.bin", 16, 32));
        Ok::<_, io::Error>(bytes.clone())
    };
    let values = imported.tensor(ParamId(0), read).unwrap().unwrap();
    assert_eq!(values[..3], [1.0, 3.0, 5.0]);
    let gone = |_: &Place| Err::<Vec<u8>, _>(io::Error::other("gone"));
    let error = imported.tensor(ParamId(0), gone).unwrap_err().to_string();
    assert_eq!(error, "weights of `fc.w` are in `w.bin`, 32 bytes from byte 16: gone");
    for location in ["../w.bin", "/w.bin", ""] {
        let mut model = model.clone();
        model.graph.as_mut().unwrap().initializer[0].external_data[0].value = location.into();
        let error = import(&model).unwrap_err().to_string();
        assert!(error.contains("leaves the model's folder"), "{location}: {error}");
    }
}

/// Constants that lie elsewhere decide what the network is: they are asked for; weights are not.
#[test]
fn constants_elsewhere_are_asked_for() {
    let mut model = linear();
    let graph = model.graph.as_mut().unwrap();
    let y = graph.node.last().unwrap().output[0].clone();
    graph.node.push(node("Reshape", &[&y, "sizes"], "z"));
    graph.output[0].name = "z".into();
    let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
    graph.initializer.push(Tensor {
        name: "sizes".into(),
        dims: vec![3],
        data_type: 7,
        data_location: 1,
        external_data: vec![entry("location", "c.bin"), entry("offset", "8")],
        ..Tensor::default()
    });
    let bytes = model.encode_to_vec();
    let place = Place { file: "c.bin".into(), offset: 8, length: 24 };
    let beside = |asked: &Place| {
        assert_eq!(*asked, place);
        Some([0i64, 1, -1].iter().flat_map(|n| n.to_le_bytes()).collect())
    };
    let options = Options { loss: Loss::MeanSquaredError, ..Options::default() };
    let imported = read_with(bytes.clone(), &options, &beside).unwrap();
    assert!(imported.unsupported.is_empty() && imported.warnings.is_empty(), "{imported:?}");
    let without = read_with(bytes, &options, &|_| None).unwrap();
    assert_eq!(
        without.warnings[0],
        "1 constants, such as `sizes`, are in `c.bin`, which cannot be read here; what needs them is \
         opaque"
    );
    assert_eq!(without.unsupported[0].op, "Reshape");
}

/// A fuzzer's find: operations are looked into that have no inputs, whatever their names.
#[test]
fn operations_without_inputs_are_no_panic() {
    let ops = [
        "Softmax",
        "Transpose",
        "Reshape",
        "Clip",
        "HardSigmoid",
        "ReduceMean",
        "Where",
        "Pad",
        "Gather",
        "Linear",
        "Rope",
        "SwiGlu",
        "Attention",
        "ScaledDotProduct",
        "RMSNormalization",
        "LayerNormalization",
        "GroupNormalization",
        "Conv",
        "Gemm",
        "Split",
        "Cast",
        "Dropout",
    ];
    for op in ops {
        for inputs in [&[][..], &["x"]] {
            for reader in ["MatMul", "Mul", "Conv", "Reshape", "Transpose", "Linear", "Add"] {
                let mut model = linear();
                let graph = model.graph.as_mut().unwrap();
                let y = graph.output[0].name.clone();
                graph.node.push(node(op, inputs, "odd"));
                graph.node.push(node(reader, &["odd", &y], "z"));
                graph.output[0].name = "z".into();
                // Refused or opaque: both are answers.
                if let Ok(imported) = import(&model) {
                    assert_eq!(imported.weights.len(), imported.graph.params().len());
                }
            }
        }
    }
}

#[test]
fn functions_are_inlined_with_their_attributes() {
    let leak = |name: &str| Attribute {
        name: "alpha".into(),
        ref_attr_name: name.into(),
        ..Attribute::default()
    };
    let body =
        vec![with(node("LeakyRelu", &["a"], "b"), vec![leak("slope")]), node("Tanh", &["b"], "c")];
    let function = Function {
        name: "Twice".into(),
        domain: "mine".into(),
        input: vec!["a".into()],
        output: vec!["c".into()],
        node: body,
        ..Function::default()
    };
    let slope = Attribute { name: "slope".into(), f: 0.01, ..Attribute::default() };
    let mut call = with(node("Twice", &["x"], "y"), vec![slope]);
    call.domain = "mine".into();
    let mut model = model(vec![call], vec![]);
    model.functions = vec![function];
    let imported = import(&model).unwrap();
    let functions: Vec<&Op> = imported.graph.nodes()[1..3].iter().map(|n| &n.op).collect();
    let expected =
        [Activation::LeakyRelu, Activation::Tanh].map(|function| Op::Activation { function });
    assert_eq!(functions, [&expected[0], &expected[1]]);
    model.functions[0].node[1] = Node { domain: "mine".into(), ..node("Twice", &["b"], "c") };
    assert_eq!(import(&model).unwrap_err(), OnnxError::Recursion { function: "Twice".into() });
}

#[test]
fn what_is_not_known_is_named_and_opaque() {
    let nodes = vec![
        node("MatMul", &["x", "w"], "h"),
        node("Mish", &["h"], "m"),
        node("Relu", &["m"], "y"),
    ];
    let imported = import(&model(nodes, vec![floats("w", &[4, 2], &EIGHT)])).unwrap();
    assert_eq!(ops(&imported)[1..4], ["linear", "opaque", "relu"]);
    let [one] = &imported.unsupported[..] else { panic!("{:?}", imported.unsupported) };
    assert_eq!((one.op.as_str(), one.node.as_str()), ("Mish", "/net/m/Mish"));
    let nodes = vec![node("Einsum", &["x", "w"], "h"), node("Relu", &["h"], "y")];
    let imported = import(&model(nodes, vec![floats("w", &[4, 2], &EIGHT)])).unwrap();
    assert_eq!(imported.unsupported.len(), 1, "what is behind it is counted, not named");
    assert!(imported.warnings[0].contains("1 operation behind"), "{:?}", imported.warnings);
    assert_eq!(imported.weights[0].source, Source::None);
}

#[test]
fn a_layer_norm_in_parts_is_one() {
    let nodes = vec![
        with(node("ReduceMean", &["x"], "mean"), vec![ints("axes", &[-1])]),
        node("Sub", &["x", "mean"], "d"),
        node("Pow", &["d", "two"], "s"),
        with(node("ReduceMean", &["s"], "var"), vec![ints("axes", &[-1])]),
        node("Add", &["var", "eps"], "v"),
        node("Sqrt", &["v"], "root"),
        node("Div", &["d", "root"], "n"),
        node("Mul", &["n", "ln.weight"], "m"),
        node("Add", &["m", "ln.bias"], "y"),
    ];
    let weights = vec![
        floats("two", &[], &[2.0]),
        floats("eps", &[], &[1e-6]),
        floats("ln.weight", &[4], &[1.0; 4]),
        floats("ln.bias", &[4], &[0.0; 4]),
    ];
    let imported = import(&model(nodes, weights)).unwrap();
    assert_eq!(imported.graph.nodes()[1].op, Op::LayerNorm { eps: 1e-6 });
    assert_eq!(imported.graph.nodes()[1].name, "ln");
}

#[test]
fn padding_before_a_convolution_is_its_own() {
    let pads = Tensor {
        name: "pads".into(),
        dims: vec![8],
        data_type: data_type::INT64,
        int64_data: vec![0, 0, 1, 2, 0, 0, 1, 2],
        ..Tensor::default()
    };
    let nodes = vec![node("Pad", &["x", "pads"], "p"), node("Conv", &["p", "c.weight"], "y")];
    let mut model = model(nodes, vec![pads, floats("c.weight", &[2, 1, 1, 1], &[1.0, 2.0])]);
    let image = [None, Some(1), Some(6), Some(6)];
    model.graph.as_mut().unwrap().input = vec![value("x", data_type::FLOAT, &image)];
    let imported = import(&model).unwrap();
    assert!(matches!(imported.graph.nodes()[1].op, Op::Conv2d { padding: [1, 2], .. }));
    let pads = &mut model.graph.as_mut().unwrap().initializer[0];
    pads.int64_data[6] = 3;
    let why = &import(&model).unwrap().unsupported[0].why;
    assert!(why.contains("both sides must be equal"), "{why}");
}

#[test]
fn files_that_are_no_network_say_why() {
    type Change = fn(&mut Model);
    let cases: [(&str, Change); 9] = [
        ("has no graph with nodes", |m| m.graph = None),
        ("operator set 3 is before 7", |m| m.opset_import[0].version = 3),
        ("`nothing`, which nothing computes", |m| graph(m).node[0].input[0] = "nothing".into()),
        ("is computed twice", |m| graph(m).node[1].output[0] = "h".into()),
        ("waits for its own output", |m| graph(m).node[0].input[0] = "y".into()),
        ("the size of axis 1 is open (`n`)", |m| {
            graph(m).input = vec![value("x", data_type::FLOAT, &[None, None])];
        }),
        ("the file has x, z", |m| {
            graph(m).input.push(value("z", data_type::FLOAT, &[None, Some(2)]));
            graph(m).node[1].input[0] = "z".into();
        }),
        ("has sizes [-4, 2]", |m| graph(m).initializer[0].dims[0] = -4),
        ("has sizes", |m| graph(m).initializer[0].dims = vec![i64::MAX, 8]),
    ];
    for (expected, change) in cases {
        let mut model = linear();
        change(&mut model);
        let error = import(&model).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}, not {expected}");
    }
    // Newer sets than are known are tried, and said.
    let mut model = linear();
    model.opset_import[0].version = 99;
    let imported = import(&model).unwrap();
    assert!(imported.warnings.iter().any(|w| w.starts_with("operator set 99: ")), "{imported:?}");
    assert!(matches!(
        read_with(vec![0x3a, 0xff], &Options::default(), &|_| None),
        Err(OnnxError::Decode(_))
    ));
}

fn graph(model: &mut Model) -> &mut Graph {
    model.graph.as_mut().unwrap()
}
