//! Inputs that are not what they seem: each is refused, or taken with a word that says so.
//!
//! Rows of the trial of the command line that went wrong and have no place in another file here: numbers
//! without measure are in `bounds`, full disks in `outputs`, other people's folders in `locks`.

mod onnx_files;

use crate::common::{Ended, digits, runner_in, scratch, small_plan, write};
use onnx_files::{external, initialised, nodes, unary};
use pipewright_core::plan::{Data, Plan};
use std::path::Path;

/// A model's file, what else the command line says, and what is said of it.
struct Row {
    file: &'static str,
    more: &'static [&'static str],
    says: &'static str,
}

const fn row(file: &'static str, more: &'static [&'static str], says: &'static str) -> Row {
    Row { file, more, says }
}

const REFUSED: [Row; 12] = [
    row(
        "lies.onnx",
        &[],
        "initialiser `w` has 256 bytes for 17179869184 elements: the file is damaged",
    ),
    row("short.onnx", &[], "initialiser `w` has 100 bytes for 64 elements: the file is damaged"),
    row("negative.onnx", &[], "initialiser `w` has sizes [-8, 8]"),
    row("passwd.onnx", &[], "`../../../../etc/passwd`, which leaves the model's folder"),
    row(
        "long.onnx",
        &[],
        "initialiser `w` has 4611686018427387904 bytes in `w.bin` for 64 elements",
    ),
    row("in/link.onnx", &[], "weights are in `w.bin`, a link that leaves the model's folder"),
    row(
        "good.onnx",
        &["--size", "foo=5"],
        "no open size of the inputs is called `foo`; none is open",
    ),
    row("good.onnx", &["--size", "N=5"], "no open size of the inputs is called `N`"),
    row(
        "good.onnx",
        &["--momentum", "2"],
        "optimizer.momentum is 2, must be at least 0 and below 1",
    ),
    row("own.onnx", &[], "51 operations without a price (50 Relu, 1 Own; the first is `a.Own`)"),
    row("half.txt", &[], "half.txt: line "),
    row("text.safetensors", &[], "text.safetensors: weights without their network; export"),
];

/// Every file that a row names.
fn files(dir: &Path) {
    let good = [0x3f; 256];
    write(dir, "good.onnx", initialised(&[8, 8], &good));
    write(dir, "lies.onnx", initialised(&[1 << 17, 1 << 17], &good));
    write(dir, "short.onnx", initialised(&[8, 8], &good[..100]));
    write(dir, "negative.onnx", initialised(&[-8, 8], &good));
    write(dir, "passwd.onnx", external("../../../../etc/passwd", None));
    write(dir, "w.bin", good);
    write(dir, "long.onnx", external("w.bin", Some(1 << 62)));
    write(dir, "beside.onnx", external("w.bin", None));
    write(dir, "own.onnx", nodes("Own", "Relu", 50));
    std::fs::create_dir(dir.join("in")).unwrap();
    write(dir, "in/link.onnx", external("w.bin", None));
    std::os::unix::fs::symlink("../w.bin", dir.join("in/w.bin")).unwrap();
    // As caches have it: the model is a link, and its weights lie where it really is.
    std::fs::create_dir(dir.join("cache")).unwrap();
    for name in ["beside.onnx", "w.bin"] {
        std::os::unix::fs::symlink(format!("../{name}"), dir.join("cache").join(name)).unwrap();
    }
    let profile = "../tests/data/profiles/dapple/amoeba-18-pbs-8.txt";
    let whole = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(profile)).unwrap();
    write(dir, "half.txt", &whole[..whole.len() / 2]);
    write(dir, "text.safetensors", "a text");
}

fn plan(dir: &Path, model: &str, more: &[&str]) -> Ended {
    let args = ["plan", "--model", model, "--ranks", "1", "--loss", "mse", "-o", "plan.json"];
    let onnx = if model.ends_with("onnx") { &args[..] } else { &args[..5] };
    runner_in(dir, &[onnx, more].concat())
}

#[test]
fn networks_that_are_damaged_or_lead_elsewhere() {
    let dir = scratch("bad-networks");
    files(&dir);
    for Row { file, more, says } in REFUSED {
        plan(&dir, file, more).refused(2, says);
        assert!(!dir.join("plan.json").exists(), "{file}: nothing is written");
    }
    for model in ["good.onnx", "beside.onnx", "cache/beside.onnx"] {
        plan(&dir, model, &["--steps", "1"]).done();
        runner_in(&dir, &["plan.json", "--no-eval"]).done();
    }
    // A link that appears when the plan is there.
    std::fs::rename(dir.join("w.bin"), dir.join("in/real.bin")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.join("w.bin")).unwrap();
    plan(&dir, "beside.onnx", &[]).refused(2, "a link that leaves the model's folder");
    runner_in(&dir, &["plan.json"]).refused(2, "a link that leaves the model's folder");
}

/// What has no price is planned where that is allowed, and each figure says so.
#[test]
fn figures_say_what_they_are_without() {
    let dir = scratch("bad-opaque");
    files(&dir);
    let told = plan(&dir, "own.onnx", &["--allow-opaque"]).done().stderr.clone();
    assert!(told.contains("warning: own.onnx: 51 operations without a price"), "{told}");
    assert!(told.contains(" per step without 51 operations, bubble"), "{told}");
    for (command, words) in [("show", "predicted step "), ("simulate", "step time ")] {
        let said = runner_in(&dir, &[command, "plan.json"]).done().stdout.clone();
        let line = said.lines().find(|line| line.contains(words)).unwrap();
        assert!(line.contains(" without 51 operations, bubble"), "{line}");
    }
    let forms = ["forms", "--model", "own.onnx", "--loss", "mse", "--devices", "2"];
    runner_in(&dir, &forms).refused(2, "51 operations without a price");
    runner_in(&dir, &["plan.json"]).refused(4, "no kernel for opaque");
}

/// One line for each kind of what is not supported.
#[test]
fn warnings_are_grouped() {
    let dir = scratch("bad-grouped");
    write(&dir, "tan.onnx", unary(&["Tan", "Mish", "Tan", "Tan", "Tan", "Tan"]));
    let told = plan(&dir, "tan.onnx", &[]).done().stderr.clone();
    let lines: Vec<&str> = told.lines().take(4).collect();
    assert_eq!(
        lines,
        [
            "warning: tan.onnx: 6 operations are not supported; the network can be planned, not trained:",
            "  5 Tan `n0`, `n2`, `n3` and 2 more: there is no such operation here",
            "  Mish `n1`: there is no such operation here",
            "  --verbose names all of them",
        ]
    );
    let told = plan(&dir, "tan.onnx", &["--verbose"]).done().stderr.clone();
    assert_eq!(told.matches("there is no such operation here").count(), 6, "{told}");
}

/// Arithmetic that no kernel is for still takes its time.
#[test]
fn opaque_operations_cost_their_arithmetic() {
    let dir = scratch("bad-arithmetic");
    let step = |pads: &[i64]| {
        write(&dir, "conv.onnx", onnx_files::convolution(pads));
        let given = ["--schedule", "gpipe", "--stages", "1", "--micro-batches", "1"];
        plan(&dir, "conv.onnx", &given).done();
        let text = std::fs::read_to_string(dir.join("plan.json")).unwrap();
        Plan::from_json(&text).unwrap().prediction.step_ns.0 as f64
    };
    let (known, opaque) = (step(&[1, 1, 1, 1]), step(&[0, 0, 2, 2]));
    assert!((opaque / known - 1.0).abs() < 0.2, "{opaque} beside {known}");
}

/// Data that trains something else than one thinks.
#[test]
fn data_sets_that_are_odd() {
    let dir = scratch("bad-data");
    let record = |label: u8| [&[label][..], &[7; 3072]].concat();
    let records = |label: u8| [record(label), record(1)].concat();
    std::fs::create_dir(dir.join("cifar")).unwrap();
    for batch in 1..=5 {
        write(&dir, &format!("cifar/data_batch_{batch}.bin"), records(batch));
    }
    write(&dir, "cifar/test_batch.bin", records(3));
    // A head of 1,000 classes, on purpose.
    let given = ["--ranks", "1", "--stages", "1", "--schedule", "gpipe", "--micro-batches", "1"];
    let args = ["plan", "--model", "resnet18:32", "--classes", "1000", "--data", "cifar10:cifar"];
    let sizes = ["--mini-batch", "2", "--steps", "1", "-o", "cifar.json"];
    runner_in(&dir, &[&args[..], &given, &sizes].concat()).done();
    let run = |plan: &str| runner_in(&dir, &["run", plan, "--no-eval"]);
    assert!(!run("cifar.json").done().stderr.contains("warning"));
    write(&dir, "cifar/data_batch_2.bin", records(200));
    let says = "cifar/data_batch_2.bin, byte 0: expected a label below 10, the data set's number of classes";
    run("cifar.json").refused(2, says);
    write(&dir, "cifar/data_batch_2.bin", records(2));
    for gone in [5, 4] {
        std::fs::remove_file(dir.join(format!("cifar/data_batch_{gone}.bin"))).unwrap();
        let told = run("cifar.json").done().stderr.clone();
        let says = format!(
            "warning: data cifar10:cifar: {} of CIFAR-10's 5 files of training samples are there; \
             data_batch_{gone}.bin is missing",
            gone - 1
        );
        assert!(told.contains(&says), "{told}");
    }
    std::fs::remove_file(dir.join("cifar/data_batch_2.bin")).unwrap();
    run("cifar.json").refused(2, "data_batch_2.bin: not found; expected the batch before");
}

#[test]
fn fewer_samples_than_a_step_takes() {
    let dir = scratch("bad-few");
    let of = |data: Data| Plan { data, steps: 1, ..small_plan() };
    let few = of(Data::Synthetic { train: 3, test: 1 });
    write(&dir, "few.json", few.to_json());
    let told = runner_in(&dir, &["few.json"]).done().stderr.clone();
    let batch = few.mini_batch;
    let says = format!(
        "warning: data synthetic: 3 samples to train on are fewer than the mini-batch of {batch}"
    );
    assert_eq!(told.matches("fewer than the mini-batch").count(), 1, "{told}");
    assert!(told.contains(&says), "{told}");
    write(&dir, "enough.json", of(digits()).to_json());
    assert!(!runner_in(&dir, &["enough.json"]).done().stderr.contains("fewer than"));
}
