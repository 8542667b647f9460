//! The check of a machine with a GPU, `scripts/gpu/check.py`, on one without: its sections from the first to
//! the last, with small networks and a stand-in for PyTorch; and how it ends where something is missing.

use crate::common::scratch;
use pipewright::tools;
use pipewright_runner::device::cuda::gpus;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Python, or nothing, which is said.
fn python() -> Option<PathBuf> {
    let found = tools::find("PYTHON", &["python3"]);
    if found.is_none() {
        tools::skip("python3");
    }
    found
}

/// A folder with what is in the archive: the program, this test and their data.
fn unpacked(dir: &Path) -> PathBuf {
    let folder = dir.join("gpu-check");
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    std::fs::create_dir_all(folder.join("target/check/deps")).unwrap();
    let own = std::env::current_exe().unwrap();
    symlink(own, folder.join("target/check/deps/test-cuda")).unwrap();
    symlink(env!("CARGO_BIN_EXE_runner"), folder.join("bin/runner")).unwrap();
    symlink(tools::root().join("runner"), folder.join("runner")).unwrap();
    folder
}

/// A program in the place of PyTorch's side.
fn stand_in(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("step.py");
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs the check; what it says, and its lines.
fn check(python: &Path, dir: &Path, arguments: &[&str]) -> (Output, Vec<Value>) {
    let output = Command::new(python)
        .arg(tools::root().join("scripts/gpu/check.py"))
        .arg("--archive")
        .arg(unpacked(dir))
        .arg("--out")
        .arg(dir.join("out"))
        .args(arguments)
        .output()
        .unwrap();
    let lines = std::fs::read_to_string(dir.join("out/results.jsonl")).unwrap_or_default();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output, lines)
}

/// How sections ended, by name.
fn sections(lines: &[Value]) -> Vec<(&str, &str)> {
    let ends = lines.iter().filter(|line| line["section"] == "section");
    ends.map(|line| (line["name"].as_str().unwrap(), line["status"].as_str().unwrap())).collect()
}

#[test]
fn every_section_dry() {
    let Some(python) = python() else { return };
    let dir = scratch("gpu-check");
    let step = stand_in(&dir, "print('{\"median\": 2.5, \"torch\": \"none\"}')");
    let all = "probe,tests,layers,ours,ops,eager,sanitize,kill,memory,compiled,chains,graphs,codecs,overlap,shared";
    let step = step.to_str().unwrap();
    let (output, lines) = check(&python, &dir, &["--device", "cpu", "--step", step, "--only", all]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let ends = sections(&lines);
    assert_eq!(ends.len(), all.split(',').count());
    assert!(ends.iter().all(|(_, status)| *status == "done"), "{ends:?}");
    let of =
        |section: &str| lines.iter().filter(|line| line["section"] == section).collect::<Vec<_>>();
    // Without a GPU nothing passes: every test says that it was skipped.
    let tests = of("tests");
    assert!(tests.len() >= 9 && tests.iter().all(|test| test["status"] == "skipped"), "{tests:#?}");
    for run in of("ours") {
        let [step, input] = ["step_ms", "input_ms"].map(|key| run[key].as_f64().unwrap());
        assert!(step > 0.0 && input >= 0.0 && step >= input, "{run}");
    }
    assert_eq!(of("ours").len(), 3);
    let kill = of("kill")[0];
    assert!(kill["status"] == "passed" && kill["reached"].as_u64() > kill["killed_at"].as_u64());
    assert!(of("ops").len() > 5 && of("predicted").len() == 1 && of("codecs").len() == 1);
    assert!(of("eager").iter().all(|row| row["median"] == 2.5));
    assert!(said.contains("eager/ours"), "{said}");
    assert!(dir.join("out/logs.tar.gz").exists() && dir.join("out/table.txt").exists());
    std::fs::remove_dir_all(dir).ok();
}

/// A machine whose GPU is not seen is no success, and no section runs in vain.
#[test]
fn without_a_gpu_it_fails() {
    let Some(python) = python() else { return };
    if gpus().is_ok() {
        return tools::refused("this machine has a GPU");
    }
    let dir = scratch("gpu-check-none");
    let (output, lines) = check(&python, &dir, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(sections(&lines), [("probe", "failed")]);
    let why = lines.iter().find_map(|line| line["why"].as_str()).unwrap();
    assert!(why.contains("driver"), "{why}");
    std::fs::remove_dir_all(dir).ok();
}

/// A section that never ends is ended with all that it started, and the next one has its turn; one for which
/// no time is left is named.
#[test]
fn sections_have_limits() {
    let Some(python) = python() else { return };
    let dir = scratch("gpu-check-limits");
    // Nobody ever writes to this pipe.
    let waits = "import os\nopen('PID', 'w').write(str(os.getpid()))\nos.read(os.pipe()[0], 1)";
    let step = stand_in(&dir, &waits.replace("PID", dir.join("pid").to_str().unwrap()));
    let (step, limits) = (step.to_str().unwrap(), ["--limit", "3", "--budget", "50"]);
    let only = ["--device", "cpu", "--only", "eager,memory,compiled", "--step", step];
    let (output, lines) = check(&python, &dir, &[&only[..], &limits].concat());
    assert_eq!(output.status.code(), Some(0), "nothing that it ended judges correctness");
    let expected = [("eager", "out of time"), ("memory", "done"), ("compiled", "left out")];
    assert_eq!(sections(&lines), expected);
    // Where the machine was too slow to start it, there is nothing to be ended.
    if let Ok(pid) = std::fs::read_to_string(dir.join("pid")) {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_gone = state.is_empty() || state.contains(") Z ");
        assert!(is_gone, "process {pid} of a section that was ended goes on: {state}");
    }
    let (output, _) = check_again(&python, &dir, &["--only", "eagr"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no section is called eagr; there are probe, tests, "), "{said}");
    std::fs::remove_dir_all(dir).ok();
}

/// The same in a folder that is there.
fn check_again(python: &Path, dir: &Path, arguments: &[&str]) -> (Output, Vec<Value>) {
    std::fs::remove_dir_all(dir.join("gpu-check")).unwrap();
    check(python, dir, arguments)
}
