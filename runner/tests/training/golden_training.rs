//! Training runs of PyTorch (tests/data/golden/train), done again: ONNX file in, the same losses
//! out, on one stage and on pipelines of two and four lanes with every schedule, as threads and, on two
//! lanes, as processes, and on two replicas of a pipeline. That processes have the bits of threads on four
//! lanes as well is shown by `every_schedule.rs`.

use crate::common::golden::{Golden, is_key_bias};
use crate::common::{Ended, losses, mpirun_in, runner_in, scratch, write};
use pipewright_core::plan::Plan;
use pipewright_core::schedule::{ScheduleKind, Updates};
use safetensors::SafeTensors;
use std::path::Path;

/// Compares a run with what PyTorch got in double precision, at every step.
fn compare(golden: &Golden, what: &str, out: &Path, m: u32) {
    let found: Vec<f64> = losses(out).iter().map(|loss| loss.parse().unwrap()).collect();
    let expected = &golden.expected.runs[&m].loss_f64;
    assert_eq!(found.len(), expected.len(), "{what}");
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found / expected - 1.0).abs();
        assert!(off < 1e-4, "{what}, step {step}: {found} instead of {expected}");
    }
}

/// A run that ended well, compared.
fn check(golden: &Golden, what: &str, ended: &Ended, out: &Path, m: u32) {
    assert_eq!(ended.code, Some(0), "{what}, {}: {}", out.display(), ended.stderr);
    compare(golden, &format!("{what}, {}", out.display()), out, m);
}

/// Runs a plan as threads.
fn threads(golden: &Golden, dir: &Path, what: &str, plan: &Plan, m: u32) {
    write(dir, "plan.json", plan.to_json());
    let ended = runner_in(dir, &["plan.json", "--out", "threads", "--overwrite"]);
    check(golden, what, &ended, &dir.join("threads"), m);
}

/// Runs a plan as threads and as processes.
fn both(golden: &Golden, dir: &Path, what: &str, plan: &Plan, m: u32) {
    threads(golden, dir, what, plan, m);
    let args = ["plan.json", "--out", "mpirun", "--overwrite"];
    if let Some(ended) = mpirun_in(dir, plan.ranks(), &args) {
        check(golden, what, &ended, &dir.join("mpirun"), m);
    }
}

/// How far a weight may be off, as a share of the tensor's largest. The README beside the files
/// says 0.001; two tensors cannot be that close to PyTorch's single-precision run:
/// - minigpt's key biases cancel in the softmax: their gradient is zero but for rounding, which Adam
///   makes a step of;
/// - miniresnet's run left PyTorch's own double-precision run at step 16, by 0.00009 in the loss
///   (ours stays within 0.0000001 of it), and its running statistics have seen a pass more, that of
///   the export.
fn tolerance(network: &str, tensor: &str, index: usize, len: usize) -> f32 {
    match network {
        "minigpt" if is_key_bias(tensor, index, len) => 0.01,
        "miniresnet" => 0.06,
        _ => 0.001,
    }
}

/// The weights after the last step of one stage, by PyTorch's names.
fn compare_weights(golden: &Golden, dir: &Path) {
    let plan = golden.plan(ScheduleKind::GPipe, 1, 1, 1);
    write(dir, "one.json", plan.to_json());
    runner_in(dir, &["one.json", "--out", "one", "--save-every", "0"]).done();
    compare(golden, "one stage, m = 1", &dir.join("one"), 1);
    runner_in(dir, &["export", "--weights", "one", "weights.safetensors"]).done();
    let read = |path: &Path| std::fs::read(path).unwrap();
    let (ours, theirs) =
        (read(&dir.join("weights.safetensors")), read(&golden.folder.join("final.safetensors")));
    let ours = SafeTensors::deserialize(&ours).unwrap();
    let mut compared = 0;
    for (name, theirs) in SafeTensors::deserialize(&theirs).unwrap().tensors() {
        if name.ends_with("num_batches_tracked") {
            continue;
        }
        let ours = ours.tensor(&name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(ours.shape(), theirs.shape(), "{name}");
        let floats = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        let (ours, theirs) = (floats(ours.data()), floats(theirs.data()));
        let theirs_len = theirs.len();
        let most = theirs.iter().fold(0.0f32, |most, w| most.max(w.abs()));
        for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let most = most * tolerance(&golden.name, &name, index, theirs_len);
            assert!((ours - theirs).abs() <= most, "{name}: {ours} instead of {theirs}");
        }
        compared += 1;
    }
    assert!(compared > 0);
}

fn done_again(name: &str) {
    let golden = Golden::open(name);
    let dir = scratch(&format!("golden-{name}"));
    compare_weights(&golden, &dir);
    both(&golden, &dir, "one stage", &golden.plan(ScheduleKind::GPipe, 1, 4, 1), 4);
    let mut tried = 0;
    for lanes in [2, 4] {
        for kind in ScheduleKind::ALL {
            let stages = kind.placement().stages(lanes);
            let fits = stages < golden.graph.nodes().len() as u32;
            if kind.updates() != Updates::Synchronous || !fits || kind.generate(stages, 4).is_err()
            {
                continue;
            }
            let plan = golden.plan(kind, stages, 4, 1);
            let run = if lanes == 2 { both } else { threads };
            run(&golden, &dir, &format!("{kind} on {lanes} lanes"), &plan, 4);
            tried += 1;
        }
    }
    assert!(tried >= 20, "{tried}");
    for kind in [ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
        both(&golden, &dir, &format!("{kind}, 2 x 2"), &golden.plan(kind, 2, 2, 2), 4);
    }
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn mlp4() {
    done_again("mlp4");
}

#[test]
fn minivgg() {
    done_again("minivgg");
}

#[test]
fn minicaffe() {
    done_again("minicaffe");
}

#[test]
fn minigoogle() {
    done_again("minigoogle");
}

#[test]
fn miniresnet() {
    done_again("miniresnet");
}

#[test]
fn miniunet() {
    done_again("miniunet");
}

#[test]
fn minigpt() {
    done_again("minigpt");
}
