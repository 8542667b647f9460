//! Devices of a machine, and the messages where it has no GPU.

use crate::common::{mpirun_in, runner_in, scratch, small_plan, tensor_groups, write};
use pipewright_core::units::Bytes;
use pipewright_runner::device::cuda::{Driver, Engine, gpus};
use serde_json::Value;

#[test]
fn devices_are_listed() {
    let dir = scratch("devices");
    let listed = runner_in(&dir, &["devices"]);
    listed.done();
    for word in ["cpu", "cuda", "driver", "NVRTC", "cuBLASLt", "cuDNN", "NCCL"] {
        assert!(listed.stdout.contains(word), "no {word} in {}", listed.stdout);
    }
    let json = runner_in(&dir, &["devices", "--json"]);
    json.done();
    let found: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(found["cpu"]["cores"].as_u64().unwrap() > 0);
    let gpus = found["gpus"].as_array().unwrap();
    assert_eq!(gpus.is_empty(), found["no_gpu"].is_string(), "a reason where there is none");
    assert_eq!(found["libraries"].as_array().unwrap().len(), 5);
}

#[test]
fn without_a_gpu_a_sentence_and_code_4() {
    if gpus().is_ok() {
        return pipewright::tools::refused("this machine has a GPU");
    }
    let dir = scratch("no-gpu");
    let plan = write(&dir, "plan.json", small_plan().to_json());
    runner_in(&dir, &[plan, "--device", "cuda"]).refused(4, "--device cuda: the driver");
    let divided = tensor_groups::all(1).remove(0).1;
    let divided = tensor_groups::divided(&divided, 2, true).plan().unwrap().0;
    let divided = write(&dir, "divided.json", divided.to_json());
    runner_in(&dir, &[divided, "--device", "cuda"]).refused(4, "--device cuda: the driver");
    runner_in(&dir, &["profile", plan, "--device", "cuda"]).refused(4, "--device cuda: the driver");
    runner_in(&dir, &["bench", "codecs", "--device", "cuda"]).refused(4, "--device cuda");
    runner_in(&dir, &["profile", plan, "--device", "model"]).refused(2, "nothing to measure");
    let ranks = small_plan().ranks();
    if let Some(ended) = mpirun_in(&dir, ranks, &[plan, "--device", "cuda"]) {
        ended.refused(4, "--device cuda: the driver");
    }
}

/// On a machine with a GPU: memory that is not there is said to be missing, with all numbers.
#[test]
fn more_memory_than_there_is_on_a_gpu() {
    let Ok(gpus) = gpus() else { return pipewright::tools::refused("this machine has no GPU") };
    let driver = Driver::open(&gpus[0]).unwrap();
    let error = Engine::new(driver, Bytes(1 << 60), "stage 0").err().unwrap().to_string();
    for word in ["cuda:0", "of memory left", "stage 0"] {
        assert!(error.contains(word), "{error}");
    }
}
