//! Budgets in every form, those that cannot be met, interruptions, and that equal inputs give equal
//! results.

use super::{graph, recompute};
use crate::common::{RUNNER, scratch, write};
use pipewright_core::cost::Cluster;
use pipewright_core::units::Bytes;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const SHORT: [&str; 2] = ["--moves", "20000"];

/// The budget and the resulting peak, in bytes.
fn met(dir: &Path, budget: &[&str]) -> (u64, u64) {
    let args = [budget, &SHORT, &["--json"]].concat();
    let ended = recompute(dir, &graph("unet4"), &args);
    let told: Value = serde_json::from_str(&ended.done().stdout).unwrap();
    let bytes = |what: &str| told[what].as_u64().unwrap();
    assert!(bytes("peak_bytes") <= bytes("budget_bytes"));
    (bytes("budget_bytes"), bytes("peak_without_bytes"))
}

#[test]
fn budgets_have_many_forms() {
    let dir = scratch("recompute-budgets");
    let (half, peak) = met(&dir, &["--budget", "0.5"]);
    assert_eq!(half, peak / 2);
    assert_eq!(met(&dir, &["--budget", "50%"]).0, half);
    assert_eq!(met(&dir, &["--budget", "64MiB"]).0, 64 << 20);
    assert_eq!(met(&dir, &["--budget", "50000000"]).0, 50_000_000);
    let (h100, peak) = met(&dir, &["--device", "h100"]);
    assert!(h100 > peak && h100 < 80 << 30, "what is resident is taken off: {h100}");
    let refused = |args: &[&str], words: &str| {
        recompute(&dir, &graph("unet4"), args).refused(2, words);
    };
    refused(&["--budget", "1.5"], "a share is from 0 to 1");
    refused(&["--budget", "lots"], "8GiB");
    refused(&["--device", "cray-1"], "no devices are called that");
    refused(&["--device", "100"], "several devices are called that");
    refused(&[], "--budget");
    refused(&["--budget", "0.5", "--pareto"], "cannot be used with");
    refused(&["--pareto", "--moves", "0"], "--moves");
    refused(&["--pareto", "--seconds", "nan"], "a time from 0");
}

/// A cluster whose device has so much memory, as a file.
fn device(dir: &Path, memory: u64) {
    let mut cluster = Cluster::preset("laptop").unwrap();
    cluster.device.memory = Bytes(memory);
    cluster.device.name = "a small one".into();
    write(dir, "small.json", serde_json::to_string(&cluster).unwrap());
}

#[test]
fn what_cannot_be_met_is_told_and_nothing_is_written() {
    let dir = scratch("recompute-unmet");
    let unmet = |budget: &str| {
        let args = [&["--budget", budget, "-o", "s.json", "--svg", "s.svg"], &SHORT[..]].concat();
        let ended = recompute(&dir, &graph("unet4"), &args);
        assert!(!dir.join("s.json").exists() && !dir.join("s.svg").exists(), "{ended:?}");
        ended
    };
    // Below what a proof says, nothing is searched.
    let ended = unmet("1MiB");
    ended.refused(
        4,
        "the budget of 1.0 MiB (1.3 %) cannot be met: no sequence needs less than 24.0 MiB",
    );
    assert_eq!(ended.stdout, "");
    unmet("0").refused(4, "cannot be met");
    let ended = unmet("24.1MiB");
    ended.refused(4, "the budget of 24.1 MiB (31.1 %) was not met: the least memory found is");
    ended.refused(4, "no sequence needs less than 24.0 MiB (31.0 %). Give more memory");
    device(&dir, 1 << 20);
    let args = ["--device", "small.json"];
    recompute(&dir, &graph("unet4"), &args).refused(4, "a small one has 1.0 MiB");
}

#[test]
fn equal_inputs_give_equal_bytes() {
    let dir = scratch("recompute-equal");
    let run = |out: &str, more: &[&str]| {
        let args = [&["--moves", "300000", "-o", out], more].concat();
        recompute(&dir, &graph("transformer3"), &args).done();
        std::fs::read(dir.join(out)).unwrap()
    };
    for goal in [&["--budget", "0.4"][..], &["--pareto"], &["--budget", "0.3", "--threads", "3"]] {
        assert_eq!(run("a.json", goal), run("b.json", goal), "{goal:?}");
    }
    let threads =
        [&["--pareto"][..], &["--pareto", "--threads", "3"]].map(|args| run("c.json", args));
    assert_ne!(threads[0], threads[1], "more searches find other answers");
}

#[test]
fn an_interruption_keeps_the_best_so_far() {
    let dir = scratch("recompute-signal");
    device(&dir, 60 << 20);
    let mut child = Command::new(RUNNER)
        .args(["recompute", &graph("unet4"), "--device", "small.json", "--seconds", "250"])
        .args(["-o", "s.json"])
        .current_dir(&dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // It listens for signals before it says how much memory there is.
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("leaves"), "{line}");
    let signal = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signal.success());
    let rest: Vec<String> = errors.lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("error: interrupted")), "{rest:?}");
    let file: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("s.json")).unwrap()).unwrap();
    assert!(!file["sequence"].as_array().unwrap().is_empty());
}
