//! Data sets in whole runs: what they hold decides what is trained, not how it came in.

use crate::common::{RUNNER, digits, losses, result, runner_in, scratch, small_plan, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Data, Draft, Plan};
use pipewright_core::predict::{evaluation, predict};
use pipewright_runner::data::open;
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::local::local;
use safetensors::tensor::{Dtype, TensorView, serialize};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn digits_dir() -> PathBuf {
    let Data::Idx { dir } = digits() else { unreachable!("digits are IDX files") };
    dir.into()
}

/// The pixels and labels of one half of the digits.
fn half(name: &str) -> (Vec<u8>, Vec<u8>) {
    let read =
        |file: String, header: usize| fs::read(digits_dir().join(file)).unwrap().split_off(header);
    let images = read(format!("{name}-images-idx3-ubyte"), 16);
    (images, read(format!("{name}-labels-idx1-ubyte"), 8))
}

/// Trains on `data`; the losses and the test's result.
fn run(dir: &Path, name: &str, data: Data) -> (Vec<String>, serde_json::Value) {
    let plan = Plan { data, ..small_plan() };
    let plan = write(dir, "plan.json", plan.to_json()).to_owned();
    runner_in(dir, &[&plan, "--out", name]).done();
    let out = dir.join(name);
    let result = result(&out);
    assert!(result["test_accuracy"].is_number(), "{result}");
    (losses(&out), result["test_loss"].clone())
}

/// A NumPy array of bytes.
fn npy(shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{header:<117}\n").bytes());
    file.extend(bytes);
    file
}

#[test]
fn the_same_samples_train_the_same_network_from_any_file() {
    let dir = scratch("any-file");
    let ((x, y), (x_test, y_test)) = (half("train"), half("t10k"));
    let expected = run(&dir, "idx", digits());

    fs::create_dir(dir.join("arrays")).unwrap();
    for (name, shape, bytes) in [
        ("x", "(1437, 8, 8)", &x),
        ("y", "(1437,)", &y),
        ("x_test", "(360, 1, 8, 8)", &x_test),
        ("y_test", "(360, 1)", &y_test),
    ] {
        fs::write(dir.join(format!("arrays/{name}.npy")), npy(shape, bytes)).unwrap();
    }
    // Halves of another shape are none, even where the model would take both.
    let refused = Plan { data: Data::Npy { dir: "arrays".into() }, ..small_plan() };
    let plan = write(&dir, "refused.json", refused.to_json());
    runner_in(&dir, &[plan]).refused(2, "x_test.npy holds samples of shape [1, 8, 8]");
    fs::write(dir.join("arrays/x_test.npy"), npy("(360, 8, 8)", &x_test)).unwrap();
    assert_eq!(run(&dir, "npy", Data::Npy { dir: "arrays".into() }), expected);

    let floats = |bytes: &[u8]| -> Vec<u8> {
        bytes.iter().flat_map(|b| (f32::from(*b) / 255.0).to_le_bytes()).collect()
    };
    let long = |bytes: &[u8]| -> Vec<u8> {
        bytes.iter().flat_map(|b| i64::from(*b).to_le_bytes()).collect()
    };
    let (x, y, x_test, y_test) = (floats(&x), long(&y), floats(&x_test), long(&y_test));
    let tensors = [
        ("x", TensorView::new(Dtype::F32, vec![1437, 1, 8, 8], &x).unwrap()),
        ("y", TensorView::new(Dtype::I64, vec![1437], &y).unwrap()),
        ("x_test", TensorView::new(Dtype::F32, vec![360, 1, 8, 8], &x_test).unwrap()),
        ("y_test", TensorView::new(Dtype::I64, vec![360], &y_test).unwrap()),
    ];
    fs::write(dir.join("d.safetensors"), serialize(tensors, None).unwrap()).unwrap();
    let file = Data::Safetensors { file: "d.safetensors".into() };
    assert_eq!(run(&dir, "safetensors", file), expected);
}

#[test]
fn images_in_folders_train() {
    let dir = scratch("folders");
    let (x, y) = half("train");
    for (index, (pixels, label)) in x.chunks(64).zip(&y).take(200).enumerate() {
        let folder = dir.join(format!("images/{label}"));
        fs::create_dir_all(&folder).unwrap();
        let image = image::GrayImage::from_raw(8, 8, pixels.to_vec()).unwrap();
        image.save(folder.join(format!("{index:03}.png"))).unwrap();
    }
    let (losses, _) = run(&dir, "out", Data::Images { dir: "images".into() });
    assert_eq!(losses.len(), 5);
    let broken = fs::read_dir(dir.join("images/3")).unwrap().next().unwrap().unwrap().path();
    fs::write(&broken, b"\x89PNG\r\n\x1a\n and no more").unwrap();
    let plan = Plan { data: Data::Images { dir: "images".into() }, steps: 50, ..small_plan() };
    let plan = write(&dir, "plan.json", plan.to_json());
    let name = broken.file_name().unwrap().to_str().unwrap();
    runner_in(&dir, &[plan]).refused(1, &format!("{name}: cannot be decoded: "));
}

#[test]
fn shuffling_can_be_turned_off() {
    let dir = scratch("shuffle");
    let args = ["plan", "--model", "digits-cnn", "--stages", "1", "--schedule", "gpipe"];
    let plan = |more: &[&str]| {
        let args = [&args[..], &["--micro-batches", "2"], more].concat();
        let text = runner_in(&dir, &args).done().stdout.clone();
        (Plan::from_json(&text).unwrap(), text)
    };
    let (shuffled, text) = plan(&[]);
    assert!(shuffled.shuffle && !text.contains("shuffle"), "{text}");
    let (plain, text) = plan(&["--no-shuffle"]);
    assert!(!plain.shuffle && text.contains("\"shuffle\": false"), "{text}");
    assert_eq!(Plan::from_json(&plain.to_json()).unwrap(), plain);
    let losses = |plan: &Plan, name: &str| {
        let plan = Plan { data: digits(), steps: 3, ..plan.clone() };
        write(&dir, "plan.json", plan.to_json());
        runner_in(&dir, &["plan.json", "--out", name]).done();
        losses(&dir.join(name))
    };
    assert_ne!(losses(&shuffled, "shuffled"), losses(&plain, "plain"));
}

#[test]
fn reading_ahead_changes_nothing() {
    let draft = Draft { data: digits(), ..crate::common::draft(Preset::DigitsCnn, 1) };
    let plan = draft.plan().unwrap().0;
    let prediction = predict(&plan).unwrap();
    let tests = evaluation(&plan, plan.cluster.device.halves()).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let program = &prediction.programs[0];
    let counts = |ahead: bool| {
        let transport = local(1, program.handles as usize).remove(0);
        let mut rank = Rank::new((&plan, &prediction.graph, program), &data, transport, 1);
        rank.set_read_ahead(ahead);
        let mut all = vec![];
        // The evaluations come between the steps, and step 4 is done twice.
        for step in [0, 1, 2, 3, 4, 4, 5] {
            let counts = rank.step(step).unwrap();
            all.push((counts.loss.to_bits(), counts.correct));
            if step == 2 || step == 4 {
                for round in 0..data.test.len().div_ceil(plan.mini_batch) {
                    let counts = rank.evaluate(&tests[0], round).unwrap();
                    all.push((counts.loss.to_bits(), counts.correct));
                }
            }
        }
        all
    };
    let ahead = counts(true);
    assert_eq!(ahead.len(), 7 + 3 * 12);
    assert_eq!(ahead, counts(false));
}

#[test]
fn a_file_cut_short_while_training() {
    let dir = scratch("cut-short");
    fs::create_dir(dir.join("digits")).unwrap();
    for entry in fs::read_dir(digits_dir()).unwrap() {
        let path = entry.unwrap().path();
        // Not `copy`: that would also copy what keeps everybody from writing to the file.
        fs::write(dir.join("digits").join(path.file_name().unwrap()), fs::read(&path).unwrap())
            .unwrap();
    }
    let data = Data::Idx { dir: "digits".into() };
    let plan = Plan { data, steps: 1_000_000, ..small_plan() };
    let plan = write(&dir, "plan.json", plan.to_json());
    let mut child = Command::new("timeout")
        .args([&crate::common::SECONDS_MAX.to_string(), RUNNER, plan, "--out", "out"])
        .current_dir(&dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|line| line.starts_with("step 1/")), "no progress");
    let images = dir.join("digits/train-images-idx3-ubyte");
    fs::OpenOptions::new().write(true).open(images).unwrap().set_len(5000).unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest:#?}");
    let errors: Vec<&String> = rest.iter().filter(|line| line.starts_with("error: ")).collect();
    let [error] = errors[..] else { panic!("one error is wanted: {rest:#?}") };
    let words = "had 91984 bytes when training began and has 5000 now; restore the file";
    assert!(error.starts_with("error: [rank 0] step ") && error.contains(words), "{error}");
    assert_eq!(result(&dir.join("out"))["status"], "failed");
}
