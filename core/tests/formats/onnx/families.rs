//! The families of networks that people bring: nothing is left over, nothing is lost.
//!
//! Parameters are PyTorch's own count where the exporter changes nothing. Where batch norms were
//! folded into convolutions, or constants put in the place of weights, they are the elements of the
//! file's initialisers that are weights, counted with the `onnx` package.

use super::{count, fixture, import};
use pipewright_core::onnx::{Imported, Loss};
use std::path::{Path, PathBuf};

/// File, parameters, attentions, shape of the logits.
type Row = (&'static str, u64, usize, &'static [u64]);

const FIXTURES: [Row; 36] = [
    ("batch_norm", 837, 0, &[5]),
    ("batch_norm-dynamo", 837, 0, &[5]),
    ("convnext", 5_106, 0, &[10]),
    ("convnext-dynamo", 5_106, 0, &[10]),
    ("densenet", 15_402, 0, &[10]),
    ("densenet-dynamo", 15_402, 0, &[10]),
    ("efficientnet", 11_410, 0, &[10]),
    ("efficientnet-dynamo", 11_410, 0, &[10]),
    ("efficientnet_v2", 2_980, 0, &[10]),
    ("efficientnet_v2-dynamo", 2_980, 0, &[10]),
    ("googlenet", 5_602_874, 0, &[10]),
    ("googlenet-dynamo", 5_602_874, 0, &[10]),
    ("gpt", 20_224, 2, &[16, 40]),
    ("gpt-dynamo", 20_224, 2, &[16, 40]),
    ("gqa", 9_552, 2, &[16, 24]),
    ("gqa-dynamo", 10_128, 2, &[16, 24]),
    ("hf_bert", 20_130, 2, &[2]),
    ("hf_bert-dynamo", 20_578, 2, &[2]),
    ("hf_clip", 3_280, 1, &[8]),
    ("hf_clip-dynamo", 3_280, 1, &[8]),
    ("hf_gpt2", 28_544, 2, &[16, 40]),
    ("hf_gpt2-dynamo", 28_544, 2, &[16, 40]),
    ("hf_llama", 3_632, 1, &[16, 40]),
    ("hf_llama-dynamo", 3_632, 1, &[16, 40]),
    ("mobilenet_v2", 27_314, 0, &[10]),
    ("mobilenet_v2-dynamo", 27_314, 0, &[10]),
    ("mobilenet_v3", 5_394, 0, &[10]),
    ("mobilenet_v3-dynamo", 5_394, 0, &[10]),
    ("resnet", 8_306_058, 0, &[10]),
    ("resnet-dynamo", 8_306_058, 0, &[10]),
    ("unet", 2_043, 0, &[3, 16, 16]),
    ("unet-dynamo", 2_043, 0, &[3, 16, 16]),
    ("vgg", 2_090, 0, &[10]),
    ("vgg-dynamo", 2_090, 0, &[10]),
    ("vit", 5_610, 1, &[10]),
    ("vit-dynamo", 5_610, 1, &[10]),
];

fn check(path: &Path, row: &Row) -> Imported {
    let (name, parameters, attentions, logits) = row;
    let loss = if logits.len() == 3 { Loss::MeanSquaredError } else { Loss::CrossEntropy };
    let imported = import(path, loss);
    assert_eq!(imported.unsupported, [], "{name}");
    let graph = &imported.graph;
    assert_eq!(graph.trainable_elements(), *parameters, "{name}");
    assert_eq!(
        count(&imported, "scaled_dot_product") + count(&imported, "attention"),
        *attentions,
        "{name}"
    );
    let loss = graph.node(graph.loss().expect("a loss"));
    assert_eq!(graph.node(loss.inputs[0]).output.shape, *logits, "{name}");
    assert_eq!(imported.weights.len(), graph.params().len());
    let read =
        |id: &pipewright_core::ids::NodeId| graph.nodes().iter().any(|n| n.inputs.contains(id));
    for id in (0..graph.nodes().len() as u32 - 1).map(pipewright_core::ids::NodeId) {
        assert!(read(&id), "{name}: nobody reads `{}`", graph.node(id).name);
    }
    imported
}

#[test]
fn both_exporters_of_every_family() {
    for row in &FIXTURES {
        check(&fixture(&format!("{}.onnx", row.0)), row);
    }
}

#[test]
fn both_exporters_give_the_same_network() {
    for (name, parameters, ..) in &FIXTURES {
        let Some(first) = name.strip_suffix("-dynamo") else { continue };
        let other = FIXTURES.iter().find(|row| row.0 == first).expect("its pair");
        // Constants in the place of looked-up rows are all that may differ.
        if *parameters == other.1 {
            let ops = |file: &str| {
                let imported = import(&fixture(&format!("{file}.onnx")), Loss::MeanSquaredError);
                // Attention in one operation or with its heads taken apart.
                let whole = |op: &'static str| match op {
                    "scaled_dot_product" => "attention",
                    other => other,
                };
                let mut ops: Vec<&str> =
                    imported.graph.nodes().iter().map(|n| whole(n.op.name())).collect();
                ops.retain(|op| {
                    !matches!(*op, "reshape" | "flatten" | "permute" | "slice" | "affine")
                });
                ops.sort_unstable();
                ops
            };
            assert_eq!(ops(name), ops(first), "{name}");
        }
    }
}

/// Full-size networks, kept beside the repository.
fn full_size(file: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(file);
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
    }
    path.exists().then_some(path)
}

#[test]
fn full_size_networks() {
    let rows: [Row; 8] = [
        ("alexnet", 61_100_840, 0, &[1000]),
        ("bert_base", 108_891_648, 12, &[128, 768]),
        ("googlenet", 6_617_624, 0, &[1000]),
        ("gpt2_plain", 162_447_360, 12, &[256, 50_257]),
        ("mobilenet_v2", 3_487_816, 0, &[1000]),
        ("resnet18-dynamo", 11_679_912, 0, &[1000]),
        ("resnet50", 25_530_472, 0, &[1000]),
        ("vgg16", 138_357_544, 0, &[1000]),
    ];
    for row in &rows {
        let Some(path) = full_size(&format!("onnx/{}.onnx", row.0)) else { continue };
        let imported = check(&path, row);
        let layers = imported.graph.layers().len();
        assert!((8..=64).contains(&layers), "{}: {layers} layers", row.0);
        assert_eq!(imported.external_files(), ["weights.bin"], "{}", row.0);
    }
}

#[test]
fn networks_of_the_reference_runs_keep_pytorch_s_names() {
    let rows: [Row; 7] = [
        ("minicaffe", 8_650, 0, &[10]),
        ("minigoogle", 1_866, 0, &[10]),
        ("minigpt", 42_848, 3, &[24, 61]),
        ("miniresnet", 2_962, 0, &[10]),
        ("miniunet", 16_665, 0, &[3, 16, 16]),
        ("minivgg", 12_850, 0, &[10]),
        ("mlp4", 113_098, 0, &[10]),
    ];
    for row in &rows {
        let Some(path) = full_size(&format!("golden/train/{}/model.onnx", row.0)) else { continue };
        let imported = check(&path, row);
        let trained = std::fs::read(path.with_file_name("final.safetensors")).unwrap();
        let header = u64::from_le_bytes(trained[..8].try_into().unwrap()) as usize;
        let json: serde_json::Value = serde_json::from_slice(&trained[8..8 + header]).unwrap();
        for param in imported.graph.params() {
            let shape: Vec<u64> = serde_json::from_value(json[&param.name]["shape"].clone())
                .unwrap_or_else(|_| panic!("{}: no tensor `{}`", row.0, param.name));
            assert_eq!(param.shape, shape, "{}: {}", row.0, param.name);
        }
    }
}
