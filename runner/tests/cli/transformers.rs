//! Networks of transformers as their users export them: planned on four stages, trained beside
//! PyTorch's losses, given back under the names of the state dict.

use crate::common::{runner_in, scratch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/transformers")
}

/// What PyTorch made of a network.
#[derive(serde::Deserialize)]
struct Told {
    loss: String,
    rate: f64,
    batch: u32,
    losses: Vec<f64>,
    state: BTreeMap<String, Vec<u64>>,
}

fn told(name: &str) -> Told {
    let text = std::fs::read_to_string(data().join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Names and shapes of a safetensors file.
fn shapes(file: &Path) -> BTreeMap<String, Vec<u64>> {
    let bytes = std::fs::read(file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    tensors.map(|(name, t)| (name, serde_json::from_value(t["shape"].clone()).unwrap())).collect()
}

/// Trains 8 steps on 4 stages and compares; returns the tensors of the trained network.
fn trained(name: &str, exporter: &str) -> (Told, BTreeMap<String, Vec<u64>>) {
    let (told, dir) = (told(name), scratch(&format!("transformers_{name}_{exporter}")));
    let file = |end: &str| data().join(format!("{name}{end}")).display().to_string();
    let (onnx, samples) = (file(&format!("-{exporter}.onnx")), file(".safetensors"));
    let (batch, rate) = (told.batch.to_string(), told.rate.to_string());
    let steps = told.losses.len().to_string();
    let plan = format!(
        "plan --model {onnx} --loss {} --data safetensors:{samples} --no-shuffle --stages 4 \
         --ranks 4 --mini-batch {batch} --micro-batches 2 --steps {steps} --optimizer adamw \
         --learning-rate {rate} --weight-decay 0 -o plan.json",
        told.loss
    );
    let run = |line: &str| {
        runner_in(&dir, &line.split_whitespace().collect::<Vec<_>>()).done();
    };
    run(&plan);
    run(&format!("run plan.json --threads 4 --out run --save-every {steps}"));
    run("export --weights run weights.safetensors");
    let metrics = std::fs::read_to_string(dir.join("run/rank-003.jsonl")).unwrap();
    let steps = metrics.lines().map(|line| serde_json::from_str(line).unwrap());
    let losses: Vec<f64> = steps.filter_map(|s: serde_json::Value| s["loss"].as_f64()).collect();
    assert_eq!(losses.len(), told.losses.len());
    for (ours, theirs) in losses.iter().zip(&told.losses) {
        assert!((ours - theirs).abs() <= 1e-6 * theirs.abs(), "{name}: {ours}, PyTorch {theirs}");
    }
    (told, shapes(&dir.join("weights.safetensors")))
}

/// The network trains as in PyTorch, and its tensors are those of the state dict.
#[track_caller]
fn same_as_pytorch(name: &str, exporter: &str) {
    let (told, trained) = trained(name, exporter);
    assert_eq!(trained, told.state, "{name}");
}

#[test]
fn decoders_of_the_newer_exporter() {
    same_as_pytorch("llama", "dynamo");
    // Its norms scale by one and the weight, which the exporter adds up.
    same_as_pytorch("gemma", "dynamo");
}

#[test]
fn transposed_weights_have_the_module_s_layout() {
    // GPT-2's Conv1D keeps its weight as [in, out]; ours is [out, in].
    same_as_pytorch("gpt2", "dynamo");
}

#[test]
fn encoders_and_images() {
    same_as_pytorch("vit", "dynamo");
    same_as_pytorch("clip_vision", "dynamo");
    same_as_pytorch("roberta", "torchscript");
}

#[test]
fn a_table_of_which_the_file_has_one_row_is_trained_as_such() {
    let (mut told, trained) = trained("bert", "dynamo");
    let segments = "bert.embeddings.token_type_embeddings.weight";
    assert_eq!(trained[segments], [1, told.state[segments][1]]);
    told.state.insert(segments.into(), trained[segments].clone());
    assert_eq!(trained, told.state);
}

/// Tensors that are looked up with are no parameters of the module: all others are.
#[track_caller]
fn but_for_constants(name: &str, second_names: &[&str]) {
    let (told, trained) = trained(name, "torchscript");
    let mut state = told.state;
    second_names.iter().for_each(|name| drop(state.remove(*name)));
    let constants = trained.keys().filter(|name| name.starts_with('/')).count();
    assert_eq!(trained.len(), state.len() + constants, "{:?}", trained.keys());
    for (name, shape) in &state {
        assert_eq!(trained.get(name), Some(shape), "{name}");
    }
}

#[test]
fn relative_positions_are_learnt() {
    but_for_constants("t5", &["encoder.embed_tokens.weight"]);
}

#[test]
fn shifted_windows() {
    let (told, trained) = trained("swin", "torchscript");
    let there = told.state.iter().filter(|(name, shape)| trained.get(*name) == Some(*shape));
    let tables = told.state.keys().filter(|name| name.ends_with("position_bias_table")).count();
    // The older exporter looks the tables up ahead, with its constant folding.
    assert_eq!(there.count() + tables, told.state.len());
}
