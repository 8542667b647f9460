//! Imported networks compute what PyTorch computed.

use super::{fixture, import, reference};
use pipewright_core::ids::ParamId;
use pipewright_core::onnx::{Imported, Loss, Place};
use std::convert::Infallible;

/// Networks with their weights, one input and its output.
const WITH_WEIGHTS: [&str; 6] = ["unet", "gqa", "vit", "batch_norm", "hf_llama", "hf_clip"];

#[test]
fn outputs_are_those_of_pytorch() {
    for name in WITH_WEIGHTS {
        let imported = import(&fixture(&format!("{name}.onnx")), Loss::MeanSquaredError);
        let file = std::fs::read(fixture(&format!("{name}.safetensors"))).unwrap();
        let (samples, x) = tensor(&file, "x");
        let (_, y) = tensor(&file, "y");
        let weights = parameters(&imported);
        for sample in 0..samples {
            let part = |v: &[f64]| {
                let size = v.len() / samples;
                v[sample * size..(sample + 1) * size].to_vec()
            };
            let found = reference::logits(&imported.graph, &part(&x), &weights);
            let expected = part(&y);
            let most = expected.iter().fold(0.0f64, |most, y| most.max(y.abs()));
            assert_eq!(found.len(), expected.len(), "{name}");
            for (found, expected) in found.iter().zip(&expected) {
                let error = (found - expected).abs() / most;
                assert!(error < 2e-5, "{name}: {found} instead of {expected}");
            }
        }
    }
}

/// All parameters; everything lies in the file.
fn parameters(imported: &Imported) -> Vec<Vec<f64>> {
    let ids = 0..imported.graph.params().len() as u32;
    ids.map(|id| {
        let none = |place: &Place| -> Result<Vec<u8>, Infallible> { panic!("{place:?}") };
        let values = imported.tensor(ParamId(id), none).unwrap().expect("nothing is opaque");
        values.into_iter().map(f64::from).collect()
    })
    .collect()
}

/// First size and values of a tensor of a safetensors file.
fn tensor(file: &[u8], name: &str) -> (usize, Vec<f64>) {
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let json: serde_json::Value = serde_json::from_slice(&file[8..8 + header]).unwrap();
    let number = |of: &serde_json::Value| of.as_u64().unwrap() as usize;
    let entry = &json[name];
    let [start, end] = [0, 1].map(|i| 8 + header + number(&entry["data_offsets"][i]));
    let bytes = &file[start..end];
    let values = match entry["dtype"].as_str().unwrap() {
        "I64" => bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
        _ => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect(),
    };
    (number(&entry["shape"][0]), values)
}
