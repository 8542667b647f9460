//! `runner eval` and `runner predict`: trained weights at work, under any division.

use crate::common::{Ended, draft_of, few_samples, mpirun_in, result, runner_in, scratch, write};
use pipewright_core::graph::{GraphBuilder, Op};
use pipewright_core::plan::Plan;
use pipewright_runner::tensor_file::TensorFile;
use safetensors::tensor::{Dtype, TensorView, serialize};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/onnx").join(name)
}

/// Tensor `y` of a file.
fn outputs(path: &Path) -> (Vec<u64>, Vec<f32>) {
    let file = TensorFile::open(path).unwrap();
    let shape = file.shape("y").unwrap();
    let mut values = vec![0.0; shape.iter().product::<u64>() as usize];
    file.read("y", &mut values).unwrap();
    (shape, values)
}

/// The fixtures' safetensors hold an input and what PyTorch computed from it in evaluation mode. The
/// plans are to train classifiers; of the U-Net, whose loss reads pixels, the image comes back.
#[test]
fn outputs_of_onnx_networks_are_pytorch_s() {
    let dir = scratch("predict-onnx");
    for name in
        ["unet", "gqa", "vit", "batch_norm", "hf_llama", "hf_clip", "tied_training", "external"]
    {
        let model = fixture(&format!("{name}.onnx")).display().to_string();
        let data = fixture(&format!("{name}.safetensors"));
        let of = |stages: &str| {
            let division = ["--stages", stages, "--replicas", "1", "--schedule", "gpipe"];
            let sizes = ["--mini-batch", "2", "--micro-batches", "2", "-o", "plan.json"];
            runner_in(&dir, &[&["plan", "--model", &model][..], &division, &sizes].concat()).done();
            let data = format!("safetensors:{}", data.display());
            runner_in(&dir, &["predict", "plan.json", "--data", &data, "-o", "y.safetensors"])
                .done();
            outputs(&dir.join("y.safetensors"))
        };
        let (shape, ours) = of("2");
        let (expected_shape, expected) = outputs(&data);
        assert_eq!(shape, expected_shape, "{name}");
        let difference = ours.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-5, "{name}: {difference}");
        assert_eq!(of("1").1, ours, "{name}");
    }
}

/// A plan and a run of it with a checkpoint, in `dir`.
fn trained(dir: &Path, model: &str, more: &[&str]) {
    let args = ["plan", "--model", model, "--steps", "6", "--mini-batch", "16", "-o", "plan.json"];
    runner_in(dir, &[&args[..], more].concat()).done();
    let mut plan =
        Plan::from_json(&std::fs::read_to_string(dir.join("plan.json")).unwrap()).unwrap();
    if plan.data.drawn().is_some() {
        plan.data = few_samples();
        write(dir, "plan.json", plan.to_json());
    }
    runner_in(dir, &["plan.json", "--out", "run", "--save-every", "0"]).done();
}

fn digits() -> String {
    crate::common::digits().to_string()
}

#[test]
fn an_evaluation_is_that_of_the_run() {
    let dir = scratch("eval");
    let two = ["--stages", "2", "--replicas", "1", "--schedule", "1f1b", "--micro-batches", "4"];
    trained(&dir, "digits-cnn", &[&two[..], &["--data", &digits()]].concat());
    let read =
        |ended: Ended| -> serde_json::Value { serde_json::from_str(&ended.done().stdout).unwrap() };
    let eval = |more: &[&str]| {
        let args = ["eval", "plan.json", "--weights", "run", "--json"];
        read(runner_in(&dir, &[&args[..], more].concat()))
    };
    let found = eval(&[]);
    let run = result(&dir.join("run"));
    assert_eq!((&found["loss"], &found["accuracy"]), (&run["test_loss"], &run["test_accuracy"]));
    assert_eq!((&found["split"], &found["samples"]), (&"test".into(), &360.into()));
    assert_eq!(eval(&["--split", "train"])["samples"], 1437);
    // A mini-batch and a bit.
    let some = eval(&["--samples", "18", "--threads", "3"]);
    assert_eq!((&some["samples"], &some["predictions"]), (&18.into(), &18.into()));
    if let Some(ended) =
        mpirun_in(&dir, 2, &["eval", "plan.json", "--weights", "run/checkpoints/step-6", "--json"])
    {
        assert_eq!(read(ended), found);
    }
    let text = runner_in(&dir, &["eval", "plan.json", "--weights", "run"]).done().stdout.clone();
    assert!(text.starts_with("360 test samples: loss "), "{text}");
    runner_in(&dir, &["eval", "plan.json"]).refused(2, "the plan names no weights");
    let alone = ["eval", "plan.json", "--weights", "run", "--split", "test", "--data", "npy:x.npy"];
    runner_in(&dir, &alone).refused(2, "x.npy");
}

/// A prediction for the samples of a file.
fn predict<'a>(plan: &'a str, file: &'a str) -> [&'a str; 8] {
    let data = "safetensors:x.safetensors";
    ["predict", plan, "-o", file, "--weights", "run", "--data", data]
}

/// Replicas, both ways of a bidirectional schedule and processes say the same as one rank; labels are
/// not needed.
#[test]
fn outputs_are_the_same_under_every_division() {
    let dir = scratch("predict-division");
    let one = ["--ranks", "1", "--schedule", "gpipe", "--micro-batches", "4", "--data", &digits()];
    trained(&dir, "digits-cnn", &one);
    let images: Vec<u8> = (0..21 * 64u32).map(|i| (i * 7 % 17 * 15) as u8).collect();
    let x = TensorView::new(Dtype::U8, vec![21, 8, 8], &images).unwrap();
    std::fs::write(dir.join("x.safetensors"), serialize([("x", x)], None).unwrap()).unwrap();
    runner_in(&dir, &predict("plan.json", "one.safetensors")).done();
    let (shape, expected) = outputs(&dir.join("one.safetensors"));
    assert_eq!(shape, [21, 10]);
    // Micro-batches of four samples each: how many there are changes the last bits.
    let divisions = [
        ["--stages", "2", "--replicas", "2", "--micro-batches", "2", "--schedule", "1f1b"],
        ["--stages", "2", "--replicas", "1", "--micro-batches", "4", "--schedule", "dualpipe"],
    ];
    for (number, division) in divisions.iter().enumerate() {
        let plan = format!("plan-{number}.json");
        let more = ["plan", "--model", "digits-cnn", "--mini-batch", "16", "-o", &plan];
        let more = [&more[..], division].concat();
        runner_in(&dir, &more).done();
        runner_in(&dir, &predict(&plan, "other.safetensors")).done();
        assert_eq!(outputs(&dir.join("other.safetensors")), (shape.clone(), expected.clone()));
        let ranks = 4 - 2 * number as u32;
        if let Some(ended) = mpirun_in(&dir, ranks, &predict(&plan, "mpi.npy")) {
            ended.done();
            let bytes = std::fs::read(dir.join("mpi.npy")).unwrap();
            let values = &bytes[bytes.len() - 4 * expected.len()..];
            assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(values), expected);
        }
    }
    runner_in(&dir, &["predict", "plan.json", "--weights", "run"]).refused(2, "--output");
    runner_in(&dir, &predict("plan.json", "y.csv")).refused(2, ".npy or .safetensors");
    std::fs::write(dir.join("file"), "").unwrap();
    runner_in(&dir, &predict("plan.json", "file/y.npy")).refused(2, "file is a file, not a folder");
}

#[test]
fn a_decoder_goes_on_with_a_text() {
    let dir = scratch("predict-text");
    let model = "transformer:layers=2,hidden=16,heads=2,sequence=8,vocabulary=12";
    let two = ["--stages", "2", "--replicas", "1", "--schedule", "gpipe", "--micro-batches", "2"];
    trained(&dir, model, &two);
    let said = |more: &[&str]| {
        let args = ["predict", "plan.json", "--weights", "run", "--tokens", "9"];
        runner_in(&dir, &[&args[..], more].concat()).done().stdout.trim().to_owned()
    };
    let greedy = said(&["--prompt", "1,2,3"]);
    assert_eq!(greedy.split(',').count(), 9);
    // Each token is the likeliest of what the network gives for the window before it.
    let text: Vec<u32> =
        format!("1,2,3,{greedy}").split(',').map(|token| token.parse().unwrap()).collect();
    let windows: Vec<u8> = (3..12)
        .flat_map(|end| {
            let shown = &text[end.max(8) - 8..end];
            let rest = std::iter::repeat_n(&0, 8 - shown.len());
            shown.iter().chain(rest).flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>()
        })
        .collect();
    write(&dir, "windows.bin", windows);
    let data = ["--data", "tokens32:windows.bin", "-o", "y.safetensors"];
    runner_in(&dir, &[&["predict", "plan.json", "--weights", "run"][..], &data].concat()).done();
    let (shape, logits) = outputs(&dir.join("y.safetensors"));
    assert_eq!(shape, [9, 8, 12]);
    for (at, window) in logits.chunks_exact(8 * 12).enumerate() {
        let row = &window[12 * ((at + 3).min(8) - 1)..][..12];
        let likeliest = (0..12).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        assert_eq!(likeliest as u32, text[at + 3], "token {at}");
    }
    write(&dir, "prompt.bin", [1u16, 2, 3].map(u16::to_le_bytes).concat());
    assert_eq!(said(&["--prompt", "tokens16:prompt.bin"]), greedy);
    let drawn = ["--prompt", "1,2,3", "--temperature", "2", "--top-k", "6"];
    let other = said(&[&drawn[..], &["--seed", "2"]].concat());
    assert_eq!(said(&[&drawn[..], &["--seed", "2"]].concat()), other);
    assert_ne!(other, said(&[&drawn[..], &["--seed", "3"]].concat()));
    let processes =
        ["predict", "plan.json", "--weights", "run", "--tokens", "9", "--prompt", "1,2,3"];
    if let Some(ended) = mpirun_in(&dir, 2, &processes) {
        assert_eq!(ended.done().stdout.trim(), greedy);
    }
    let refused =
        |prompt| runner_in(&dir, &["predict", "plan.json", "--weights", "run", "--prompt", prompt]);
    refused("1,12").refused(2, "token 12 is not below 12, the model's vocabulary");
    refused("a").refused(2, "give token numbers such as 1,2,3");
}

/// A text cannot go on with a network whose positions see those after them, nor with one of images.
#[test]
fn what_is_no_decoder_has_no_text() {
    let dir = scratch("predict-no-text");
    let of = |name: &str| {
        let model = fixture(&format!("{name}.onnx")).display().to_string();
        let args = ["--ranks", "1", "--mini-batch", "2", "--micro-batches", "1", "-o", "plan.json"];
        runner_in(&dir, &[&["plan", "--model", &model][..], &args].concat()).done();
        runner_in(&dir, &["predict", "plan.json", "--prompt", "1,2", "--tokens", "1"])
    };
    of("tied_training").done();
    of("vit").refused(2, "--prompt is for networks that say the next token at each position");
    let mut g = GraphBuilder::new("both-ways");
    g.layer("all");
    let tokens = g.add("tokens", Op::Tokens { length: 4, vocabulary: 5 }, &[]);
    let table = Op::Embedding { entries: 5, features: 6, positions: 4, kinds: 0 };
    let x = g.add("embedding", table, &[tokens]);
    let x = g.linear("qkv", x, 18);
    let x = g.add("attn", Op::Attention { heads: 2, kv_heads: 2, causal: false }, &[x]);
    let x = g.linear("head", x, 5);
    g.losses(x, 4, 5);
    let mut draft = draft_of(g.finish().unwrap(), 1);
    draft.steps = 1;
    write(&dir, "plan.json", draft.plan().unwrap().0.to_json());
    runner_in(&dir, &["plan.json", "--out", "run", "--save-every", "0"]).done();
    let text = |prompt| ["predict", "plan.json", "--weights", "run", "--prompt", prompt];
    runner_in(&dir, &text("1,2")).refused(2, "depends on those after it");
}
