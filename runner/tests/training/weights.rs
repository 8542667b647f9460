//! Initial weights: from the files that the PyTorch ecosystem has, and refused with names and shapes
//! where they do not fit. The files are written by the safetensors crate itself.

use crate::common::{digits, draft, losses, mpirun_in, result, runner_in, scratch, write};
use half::{bf16, f16};
use pipewright_core::graph::presets::Preset;
use pipewright_runner::checkpoint::Manifest;
use pipewright_runner::tensor_file::TensorFile;
use pipewright_runner::weights::{check, open_tensors};
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::path::Path;

/// Tensors by name: how they are stored, their shape and bytes.
type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// digits-cnn with weights of our own, coarse enough for every precision.
fn coarse(dtype: Dtype) -> Tensors {
    let graph = Preset::DigitsCnn.graph().unwrap();
    let tensor = |param: &pipewright_core::graph::Param| {
        let value = |i: u64| ((i * 37 + param.elements()) % 17) as f32 / 64.0 - 0.125;
        let values = (0..param.elements()).map(value);
        let bytes: Vec<u8> = match dtype {
            Dtype::F16 => values.flat_map(|v| f16::from_f32(v).to_le_bytes()).collect(),
            Dtype::BF16 => values.flat_map(|v| bf16::from_f32(v).to_le_bytes()).collect(),
            Dtype::F64 => values.flat_map(|v| f64::from(v).to_le_bytes()).collect(),
            _ => values.flat_map(f32::to_le_bytes).collect(),
        };
        let shape = param.shape.iter().map(|&length| length as usize).collect();
        (param.name.clone(), (dtype, shape, bytes))
    };
    graph.params().iter().map(tensor).collect()
}

fn save(path: &Path, tensors: &Tensors) {
    let views: Vec<_> = tensors
        .iter()
        .map(|(name, (dtype, shape, bytes))| {
            (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        })
        .collect();
    safetensors::serialize_to_file(views, None, path).unwrap();
}

/// Writes a plan of digits-cnn on so many stages.
fn plan(dir: &Path, stages: u32) -> String {
    let mut draft = draft(Preset::DigitsCnn, stages);
    (draft.data, draft.steps) = (digits(), 3);
    let name = format!("plan-{stages}.json");
    write(dir, &name, draft.plan().unwrap().0.to_json());
    name
}

#[test]
fn every_precision_and_every_division() {
    let dir = scratch("weights-kinds");
    save(&dir.join("f32.safetensors"), &coarse(Dtype::F32));
    let two = plan(&dir, 2);
    runner_in(&dir, &[&two, "--out", "drawn"]).done();
    runner_in(&dir, &[&two, "--out", "f32", "--weights", "f32.safetensors"]).done();
    let expected = losses(&dir.join("f32"));
    assert_ne!(losses(&dir.join("drawn")), expected, "the weights make a difference");
    for (name, dtype) in [("f16", Dtype::F16), ("bf16", Dtype::BF16), ("f64", Dtype::F64)] {
        let file = format!("{name}.safetensors");
        save(&dir.join(&file), &coarse(dtype));
        runner_in(&dir, &[&plan(&dir, 4), "--out", name, "--weights", &file]).done();
        assert_eq!(losses(&dir.join(name)), expected, "{name}");
    }
    if let Some(run) = mpirun_in(&dir, 2, &[&two, "--out", "mpi", "--weights", "f32.safetensors"]) {
        run.done();
        assert_eq!(losses(&dir.join("mpi")), expected);
    }
    // Named by the plan itself, and once more in place of what the plan names.
    let args = ["plan", "--model", "digits-cnn", "--stages", "2", "--split", "uniform"];
    let data = digits().to_string();
    let more = ["--steps", "3", "--data", &data, "--weights", "f16.safetensors", "-o", "own.json"];
    runner_in(&dir, &[&args[..], &more].concat()).done();
    runner_in(&dir, &["own.json", "--out", "own"]).done();
    assert_eq!(losses(&dir.join("own")), expected);
    runner_in(&dir, &["own.json", "--out", "cut", "--steps", "2", "--save-every", "0"]).done();
    std::fs::remove_file(dir.join("f16.safetensors")).unwrap();
    // What a run began with is not needed to go on.
    runner_in(&dir, &["own.json", "--out", "cut", "--resume"]).done();
    assert_eq!(losses(&dir.join("cut")), expected);
    runner_in(&dir, &["own.json"]).refused(2, "weights f16.safetensors: No such file");
    runner_in(&dir, &["own.json", "--weights", "bf16.safetensors"]).done();
}

#[test]
fn files_with_an_index() {
    let dir = scratch("weights-index");
    let all = coarse(Dtype::F32);
    save(&dir.join("one.safetensors"), &all);
    let (first, second): (Tensors, Tensors) =
        all.into_iter().partition(|(name, _)| name.contains("conv"));
    let mut map = BTreeMap::new();
    for (file, tensors) in [("a-1.safetensors", &first), ("a-2.safetensors", &second)] {
        save(&dir.join(file), tensors);
        map.extend(tensors.keys().map(|name| (name.clone(), file)));
    }
    let index = "model.safetensors.index.json";
    let text = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    write(&dir, index, text.to_string());
    let plan = plan(&dir, 2);
    runner_in(&dir, &[&plan, "--out", "one", "--weights", "one.safetensors"]).done();
    runner_in(&dir, &[&plan, "--out", "two", "--weights", index]).done();
    assert_eq!(losses(&dir.join("two")), losses(&dir.join("one")));
    map.insert("conv9.weight".into(), "a-1.safetensors");
    write(&dir, index, serde_json::json!({ "weight_map": map }).to_string());
    let run = runner_in(&dir, &[&plan, "--weights", index]);
    run.refused(2, "a-1.safetensors has no tensor `conv9.weight`");
    write(&dir, index, "{}");
    runner_in(&dir, &[&plan, "--weights", index]).refused(2, "not an index of safetensors files");
    std::fs::remove_file(dir.join("a-2.safetensors")).unwrap();
    write(&dir, index, text.to_string());
    runner_in(&dir, &[&plan, "--weights", index]).refused(2, "a-2.safetensors: No such file");
}

#[test]
fn what_does_not_fit() {
    let dir = scratch("weights-misfits");
    let plan = plan(&dir, 2);
    let refused = |tensors: &Tensors, words: &str| {
        save(&dir.join("w.safetensors"), tensors);
        runner_in(&dir, &[&plan, "--weights", "w.safetensors"]).refused(2, words);
        if let Some(run) = mpirun_in(&dir, 2, &[&plan, "--weights", "w.safetensors"]) {
            run.refused(2, words);
        }
    };
    let mut missing = coarse(Dtype::F32);
    let names: Vec<String> = missing.keys().take(2).cloned().collect();
    names.iter().for_each(|name| drop(missing.remove(name)));
    refused(&missing, "no values for 2 of the model's parameters: `conv1.weight` [");
    let mut shape = coarse(Dtype::F32);
    let (_, (_, lengths, _)) = shape.iter_mut().find(|(n, _)| *n == "conv2.weight").unwrap();
    lengths.reverse();
    let reversed =
        format!("tensor `conv2.weight` has the shape {lengths:?}, the model's parameter");
    refused(&shape, &reversed);
    let mut whole = coarse(Dtype::F32);
    let (dtype, _, bytes) = whole.get_mut("conv1.bias").unwrap();
    (*dtype, *bytes) = (Dtype::I32, bytes.clone());
    save(&dir.join("w.safetensors"), &whole);
    let run = runner_in(&dir, &[&plan, "--weights", "w.safetensors"]);
    run.refused(1, "tensor `conv1.bias` is stored as I32; f32, f16, bf16 and f64 can be read");
    // More than the model has is no error, and said once.
    let mut more = coarse(Dtype::F32);
    for name in ["head.weight", "bn.num_batches_tracked"] {
        more.insert(name.into(), (Dtype::F32, vec![1], vec![0; 4]));
    }
    save(&dir.join("w.safetensors"), &more);
    let run = runner_in(&dir, &[&plan, "--weights", "w.safetensors"]);
    let warnings = run.done().stderr.matches("warning: ").count();
    assert_eq!(warnings, 1, "{run:#?}");
    assert!(run.stderr.contains("1 tensor is not of the model, such as `head.weight`"), "{run:#?}");
}

#[test]
fn files_that_are_none() {
    let dir = scratch("weights-hostile");
    let plan = plan(&dir, 1);
    save(&dir.join("good.safetensors"), &coarse(Dtype::F32));
    let good = std::fs::read(dir.join("good.safetensors")).unwrap();
    let mut huge = good.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut longer = good.clone();
    longer.push(0);
    // A tensor that would begin behind the end of the file.
    let header = br#"{"a":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,16]}}"#;
    let mut overflow = (header.len() as u64).to_le_bytes().to_vec();
    overflow.extend(header);
    overflow.extend([0; 16]);
    let cases: [(&[u8], &str); 7] = [
        (b"", "not a safetensors file: it has 0 bytes"),
        (&good[..7], "not a safetensors file: it has 7 bytes"),
        (&good[..100], "damaged: it has 100 bytes, its header says"),
        (&good[..good.len() - 1], "damaged: it has"),
        (&longer, "damaged: it has"),
        (&huge, "its header would have 18446744073709551615 bytes"),
        (&overflow, "not a safetensors file: "),
    ];
    for (bytes, words) in cases {
        write(&dir, "bad.safetensors", bytes);
        runner_in(&dir, &[&plan, "--weights", "bad.safetensors"]).refused(2, words);
    }
    write(&dir, "w.pt", &good);
    runner_in(&dir, &[&plan, "--weights", "w.pt"]).refused(2, "weights are read from .safetensors");
    runner_in(&dir, &[&plan, "--weights", "."]).refused(2, "no checkpoint: it holds neither");
}

#[test]
fn trained_weights_as_one_file() {
    let dir = scratch("weights-export");
    let plan = plan(&dir, 4);
    runner_in(&dir, &[&plan, "--out", "out", "--save-every", "2"]).done();
    let step = "out/checkpoints/step-3";
    for (from, to) in [(step, "a/step.safetensors"), ("out", "run.safetensors")] {
        runner_in(&dir, &["export", "--weights", from, to]).done();
        // Another reader than ours, and every parameter is what the checkpoint has.
        let bytes = std::fs::read(dir.join(to)).unwrap();
        let found = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let graph = Preset::DigitsCnn.graph().unwrap();
        assert_eq!(found.len(), graph.params().len());
        let mut seen = 0;
        for record in Manifest::read(&dir.join(step)).unwrap().files {
            let file = TensorFile::open(&dir.join(step).join(&record.name)).unwrap();
            for name in record.tensors.iter().filter(|name| !name.contains('@')) {
                let mut values =
                    vec![0.0; file.shape(name).unwrap().iter().product::<u64>() as usize];
                file.read(name, &mut values).unwrap();
                assert_eq!(
                    found.tensor(name).unwrap().data(),
                    bytemuck::cast_slice::<f32, u8>(&values)
                );
                seen += 1;
            }
        }
        assert_eq!(seen, graph.params().len());
        assert!(check(open_tensors(&dir.join(to)).unwrap().as_ref(), &graph).unwrap().is_empty());
    }
    // Beginning from the file, from the checkpoint and from the run is beginning alike.
    let mut all = vec![];
    for (name, from) in [("1", "run.safetensors"), ("2", step), ("3", "out")] {
        runner_in(&dir, &[&plan, "--out", name, "--weights", from]).done();
        all.push(losses(&dir.join(name)));
        assert_eq!(result(&dir.join(name))["steps"], 3);
    }
    assert_eq!(all[1], all[0]);
    assert_eq!(all[2], all[0]);
    assert!(all[0][0] != losses(&dir.join("out"))[0], "training began where it had ended");
    runner_in(&dir, &["export", "--weights", "nowhere", "x"]).refused(2, "nowhere");
}
