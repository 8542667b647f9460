//! Networks and weights of Hugging Face: `config.json` in, logits as transformers has them, weights there and
//! back.

use crate::common::{runner_in, scratch};
use pipewright_core::plan::Plan;
use pipewright_runner::tensor_file::TensorFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const NETWORKS: [&str; 10] =
    ["gpt2", "llama", "mistral", "qwen2", "bert", "qwen3", "llama3", "phi3", "olmo2", "smollm3"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/hf").join(name)
}

fn text(path: PathBuf) -> String {
    path.display().to_string()
}

/// Tensors by name: shape and values.
type Tensors = BTreeMap<String, (Vec<u64>, Vec<f32>)>;

fn tensors(path: &Path) -> Tensors {
    let file = TensorFile::open(path).unwrap();
    let tensor = |name: String| {
        let shape = file.shape(&name).unwrap();
        let mut values = vec![0.0; shape.iter().product::<u64>() as usize];
        file.read(&name, &mut values).unwrap();
        (name, (shape, values))
    };
    // What PyTorch wrote as integers is not read.
    file.names().into_iter().filter(|name| name != "x").map(tensor).collect()
}

/// A plan of `model` on so many stages, whose steps change no weight that is not zero.
fn plan(dir: &Path, model: &str, stages: &str) {
    let args = ["plan", "--model", model, "--stages", stages, "--replicas", "1"];
    let sizes =
        ["--schedule", "gpipe", "--micro-batches", "2", "--mini-batch", "4", "--steps", "1"];
    // Cuts at modules of transformers, not inside of them.
    let split = ["--split", "balanced"];
    let more = ["--optimizer", "sgd:lr=1e-30,momentum=0", "-o", "plan.json"];
    let hf: &[&str] = if model.starts_with("hf:") { &["--size", "sequence=6"] } else { &[] };
    runner_in(dir, &[&args[..], &split, &sizes, &more, hf].concat()).done();
}

/// What `predict` gives for the samples of a network, compared with transformers.
#[track_caller]
fn is_transformers(dir: &Path, name: &str, weights: &str) {
    let data = format!("safetensors:{}", text(fixture(name).join("logits.safetensors")));
    let args = ["predict", "plan.json", "--weights", weights, "--data", &data];
    runner_in(dir, &[&args[..], &["-o", "y.safetensors"]].concat()).done();
    let (ours, theirs) =
        (tensors(&dir.join("y.safetensors")), tensors(&fixture(name).join("logits.safetensors")));
    let ((shape, ours), (expected, theirs)) = (&ours["y"], &theirs["y"]);
    assert_eq!(shape, expected, "{name}");
    let difference = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(difference < 1e-5, "{name}: {difference}");
}

/// A run from a file's weights, exported again, has the file's tensors.
#[track_caller]
fn comes_back(dir: &Path, name: &str, weights: &str) {
    let out = ["--out", "run", "--overwrite", "--save-every", "0", "--no-eval"];
    runner_in(dir, &[&["plan.json", "--weights", weights][..], &out].concat()).done();
    let export = ["export", "--weights", "run", "back.safetensors", "--format", "hf"];
    runner_in(dir, &export).done();
    assert_eq!(tensors(&dir.join("back.safetensors")), tensors(Path::new(weights)), "{name}");
}

#[test]
fn networks_of_config_json_are_those_of_transformers() {
    let dir = scratch("hf");
    for name in NETWORKS {
        let weights = text(fixture(name).join("model.safetensors"));
        for stages in ["1", "3"] {
            plan(&dir, &format!("hf:{}", text(fixture(name))), stages);
            is_transformers(&dir, name, &weights);
        }
        comes_back(&dir, name, &weights);
        is_transformers(&dir, name, "back.safetensors");
        is_transformers(&dir, name, "run");
    }
}

#[test]
fn presets_take_and_give_gpt_2_s_weights() {
    let dir = scratch("hf-preset");
    let name = "gpt2-gelu";
    let weights = text(fixture(name).join("model.safetensors"));
    let sizes = "layers=2,hidden=8,heads=2,sequence=6,vocabulary=12";
    plan(&dir, &format!("transformer:{sizes},tied"), "2");
    is_transformers(&dir, name, &weights);
    comes_back(&dir, name, &weights);
    is_transformers(&dir, name, "back.safetensors");
    // The names of the module that the file is of are known without its own: those of the hub's files.
    let index = dir.join("model.safetensors.index.json");
    let file = "back.safetensors";
    let map: BTreeMap<String, &str> =
        tensors(&dir.join(file)).into_keys().map(|name| (name, file)).collect();
    std::fs::write(&index, serde_json::json!({ "weight_map": map }).to_string()).unwrap();
    is_transformers(&dir, name, "model.safetensors.index.json");
    let refused = |args: &[&str], words: &str| {
        runner_in(&dir, &[&["export", "--weights", "run", "x.safetensors"][..], args].concat())
            .refused(2, words);
    };
    refused(&["--format", "torch"], "PyTorch has no module with the parameters of run");
    refused(&["--format", "modules"], "--weights goes with --format hf, torch or pipewright");
    runner_in(&dir, &["export", "plan.json", "--format", "hf"]).refused(2, "a format of weights");
    // Without the rotary positions that it leaves out the preset is another network.
    plan(&dir, &format!("transformer:{sizes},gated"), "2");
    let llama = text(fixture("llama").join("model.safetensors"));
    runner_in(&dir, &["plan.json", "--weights", &llama]).refused(2, "leave rotary positions out");
    plan(&dir, "digits-cnn", "2");
    runner_in(&dir, &["plan.json", "--weights", &llama])
        .refused(2, "recognised as LLaMA's family; the plan's network is digits-cnn");
    let long = format!("transformer:{},tied", sizes.replace("layers=2", "layers=3"));
    plan(&dir, &long, "2");
    runner_in(&dir, &["plan.json", "--weights", &weights]).refused(
        2,
        "recognised as GPT-2; no values for 12 of the model's parameters: h.2.ln_1.weight",
    );
}

#[test]
fn split_points_are_modules_of_transformers() {
    let dir = scratch("hf-modules");
    plan(&dir, &format!("hf:{}", text(fixture("llama").join("config.json"))), "3");
    let modules =
        runner_in(&dir, &["export", "plan.json", "--format", "modules"]).done().stdout.clone();
    let stages: Vec<Vec<String>> = serde_json::from_str(&modules).unwrap();
    let expected =
        ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "lm_head"];
    assert_eq!(stages.concat(), expected);
    let plan = Plan::from_json(&std::fs::read_to_string(dir.join("plan.json")).unwrap()).unwrap();
    assert_eq!(plan.model.graph().unwrap().name(), "llama");
    let size = ["plan", "--model", "hf:x.json", "--size", "batch=6"];
    runner_in(&dir, &size).refused(2, "--size sequence=NUMBER can be said");
    runner_in(&dir, &["plan", "--model", "hf:x.json"]).refused(2, "x.json: No such file");
    std::fs::write(dir.join("x.json"), "{\"model_type\": \"t5\"").unwrap();
    runner_in(&dir, &["plan", "--model", "hf:x.json"]).refused(2, "x.json: not a config.json");
}
