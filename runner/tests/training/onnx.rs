//! ONNX files from the command line: planned like presets, trained from the weights that they bring.

#[path = "../../../core/src/onnx/proto.rs"]
#[expect(dead_code, reason = "no file of a test has all types of values")]
mod proto;

use crate::common::{losses, runner_in, scratch};
use pipewright_core::plan::Plan;
use prost::Message;
use proto::{
    Dimension, Graph, Model, Node, OperatorSet, Shape, Tensor, TensorType, Type, ValueInfo,
};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/onnx").join(name)
}

/// `runner plan` with a fixture and more arguments; the plan is `plan.json`.
fn plan_in(dir: &Path, model: &Path, more: &[&str]) -> crate::common::Ended {
    let model = model.to_string_lossy().into_owned();
    let args = ["plan", "--model", &model, "--schedule", "gpipe", "--micro-batches", "2"];
    let mini_batch = if more.contains(&"--mini-batch") { &[][..] } else { &["--mini-batch", "2"] };
    runner_in(dir, &[&args[..], mini_batch, &["-o", "plan.json"], more].concat())
}

/// The fixtures' safetensors hold an input and what PyTorch computed from it. With that as the
/// target, the mean squared error of the first step is what the two differ by.
#[test]
fn forward_passes_from_the_file_s_weights_are_pytorch_s() {
    for name in
        ["unet", "gqa", "vit", "batch_norm", "hf_llama", "hf_clip", "tied_training", "external"]
    {
        let dir = scratch(&format!("onnx-{name}"));
        let samples = fixture(&format!("{name}.safetensors"));
        let data = format!("safetensors:{}", samples.display());
        let model = fixture(&format!("{name}.onnx"));
        for stages in ["1", "2"] {
            let more = ["--loss", "mse", "--stages", stages, "--steps", "1", "--data", &data];
            plan_in(&dir, &model, &more).done();
            let out = format!("run-{stages}");
            runner_in(&dir, &["plan.json", "--out", &out]).done();
            let loss: f64 = losses(&dir.join(&out))[0].parse().unwrap();
            assert!(loss < 1e-11, "{name} on {stages} stages: {loss}");
        }
        assert_eq!(losses(&dir.join("run-1")), losses(&dir.join("run-2")), "{name}");
    }
}

#[test]
fn without_the_weights_a_network_is_planned_and_a_run_names_the_file() {
    let dir = scratch("onnx-absent");
    std::fs::copy(fixture("vgg.onnx"), dir.join("vgg.onnx")).unwrap();
    plan_in(&dir, Path::new("vgg.onnx"), &["--stages", "2"]).done();
    let plan = Plan::from_json(&std::fs::read_to_string(dir.join("plan.json")).unwrap()).unwrap();
    assert_eq!(plan.weights.as_deref(), Some("vgg.onnx"));
    assert_eq!(plan.model.graph().unwrap().trainable_elements(), 2_090);
    runner_in(&dir, &["plan.json"]).refused(2, "are in weights.bin, which is not there");
    std::fs::write(dir.join("weights.bin"), [0; 100]).unwrap();
    let short = runner_in(&dir, &["plan.json"]);
    assert_ne!(short.code, Some(0));
    assert!(short.stderr.contains("the file has 100 bytes"), "{short:#?}");
}

/// The newer exporter puts weights, and larger files put everything, into a file beside. Sizes are
/// in it as well, so without it the network is not known, and the plan says so.
#[test]
fn everything_beside_the_file_is_read_or_missed_by_name() {
    let dir = scratch("onnx-beside");
    let more = ["--loss", "cross-entropy", "--stages", "2"];
    let planned = plan_in(&dir, &fixture("external.onnx"), &more);
    planned.done();
    assert!(!planned.stderr.contains("warning"), "{planned:#?}");
    let plan = Plan::from_json(&std::fs::read_to_string(dir.join("plan.json")).unwrap()).unwrap();
    let graph = plan.model.graph().unwrap();
    // The exporter wrote the table twice, the second time turned.
    let tied = graph.nodes().iter().filter(|node| node.op.name() == "tied_linear").count();
    assert_eq!(tied, 1);
    std::fs::copy(fixture("external.onnx"), dir.join("external.onnx")).unwrap();
    let planned = plan_in(&dir, Path::new("external.onnx"), &more);
    planned.done();
    assert!(planned.stderr.contains("are in `external.onnx.data`, which cannot be read"));
    runner_in(&dir, &["plan.json"]).refused(4, "no kernel for opaque");
}

/// Exported as the readme says: batch norms, dropout and a tied table train, the same on one stage
/// and on several.
#[test]
fn what_is_exported_for_training_trains() {
    for name in ["drop_training", "tied_training"] {
        let dir = scratch(&format!("onnx-train-{name}"));
        let model = fixture(&format!("{name}.onnx"));
        for stages in ["1", "2", "3"] {
            let more = ["--loss", "cross-entropy", "--stages", stages, "--steps", "5"];
            let optimizer = ["--optimizer", "sgd:lr=0.05"];
            plan_in(&dir, &model, &[&more[..], &optimizer, &["--mini-batch", "8"]].concat()).done();
            runner_in(&dir, &["plan.json", "--out", &format!("run-{stages}")]).done();
        }
        let expected = losses(&dir.join("run-1"));
        assert!(expected[0] != expected[4], "{name}: {expected:?}");
        for stages in ["2", "3"] {
            assert_eq!(losses(&dir.join(format!("run-{stages}"))), expected, "{name}, {stages}");
        }
    }
}

/// `x [n, length, 4] -> op -> y`, with a weight.
fn small(op: &str) -> Vec<u8> {
    let dim = |dim_value, name: Option<&str>| Dimension {
        dim_value,
        dim_param: name.map(str::to_string),
    };
    let dims = vec![dim(None, Some("n")), dim(None, Some("length")), dim(Some(4), None)];
    let tensor_type = Some(TensorType { elem_type: 1, shape: Some(Shape { dim: dims }) });
    let node = |op: &str, input: &[&str], output: &str| Node {
        op_type: op.into(),
        name: format!("/{output}/{op}"),
        input: input.iter().map(|i| (*i).to_string()).collect(),
        output: vec![output.into()],
        ..Node::default()
    };
    let weight = Tensor {
        name: "fc.w".into(),
        dims: vec![4, 4],
        data_type: 1,
        float_data: vec![0.5; 16],
        ..Tensor::default()
    };
    let graph = Graph {
        node: vec![node("MatMul", &["x", "fc.w"], "h"), node(op, &["h"], "y")],
        initializer: vec![weight],
        input: vec![ValueInfo { name: "x".into(), r#type: Some(Type { tensor_type }) }],
        output: vec![ValueInfo { name: "y".into(), r#type: None }],
        ..Graph::default()
    };
    let opset_import = vec![OperatorSet { domain: String::new(), version: 17 }];
    Model { graph: Some(graph), opset_import, ..Model::default() }.encode_to_vec()
}

#[test]
fn open_sizes_are_asked_for_and_remembered() {
    let dir = scratch("onnx-sizes");
    std::fs::write(dir.join("net.onnx"), small("Relu")).unwrap();
    let model = Path::new("net.onnx");
    let mse = ["--loss", "mse", "--stages", "1"];
    plan_in(&dir, model, &mse).refused(2, "axis 1 is open (`length`)");
    plan_in(&dir, model, &[&mse[..], &["--size", "length"]].concat()).refused(2, "NAME=NUMBER");
    plan_in(&dir, model, &[&mse[..], &["--size", "length=3"]].concat()).done();
    let plan = Plan::from_json(&std::fs::read_to_string(dir.join("plan.json")).unwrap()).unwrap();
    assert_eq!(plan.model.graph().unwrap().nodes()[0].output.shape, [3, 4]);
    let not_onnx = ["plan", "--model", "mlp4", "--loss", "mse"];
    runner_in(&dir, &not_onnx).refused(2, "--loss and --size are for ONNX files");
}

#[test]
fn what_is_not_supported_is_listed_planned_and_not_trained() {
    let dir = scratch("onnx-opaque");
    std::fs::write(dir.join("net.onnx"), small("Mish")).unwrap();
    let more = ["--loss", "mse", "--stages", "1", "--size", "length=3"];
    let planned = plan_in(&dir, Path::new("net.onnx"), &more);
    planned.done();
    assert!(planned.stderr.contains("1 operation is not supported"), "{planned:#?}");
    assert!(planned.stderr.contains("  Mish `/y/Mish`: there is no such operation here"));
    runner_in(&dir, &["plan.json"]).refused(4, "no kernel for opaque");
}

#[test]
fn files_that_are_no_networks_are_refused_by_name() {
    let dir = scratch("onnx-broken");
    let whole = small("Relu");
    std::fs::write(dir.join("cut.onnx"), &whole[..whole.len() / 2]).unwrap();
    plan_in(&dir, Path::new("cut.onnx"), &[]).refused(2, "cut.onnx: not an ONNX file, or cut off");
    plan_in(&dir, Path::new("gone.onnx"), &[]).refused(2, "gone.onnx: No such file");
}
