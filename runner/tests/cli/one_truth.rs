//! Figures of a search, of the plan that it writes, and of the simulator: they are the same ones.

use crate::common::{runner_in, scratch};
use pipewright_core::units::Bytes;
use std::path::Path;

const CLUSTERS: [&str; 6] = ["laptop", "dgx-a100", "reedbush-l", "8x-l4", "dgx-1-p100", "hgx-b200"];

/// Of each kind of network some.
const PRESETS: [&str; 9] = [
    "mlp4",
    "digits-cnn",
    "fc32:256",
    "vgg16:32",
    "resnet18:32",
    "unet:4,32",
    "amoebanet-d:6,64",
    "bert-base",
    "transformer:layers=4,hidden=128,heads=4,sequence=64,vocabulary=500,tied",
];

/// The others, which take a search of seconds: `PIPEWRIGHT_ALL_PRESETS=1` has all of them on all clusters.
const LARGE: [&str; 16] = [
    "vgg16",
    "alexnet",
    "caffenet",
    "caffenet-mini",
    "googlenet",
    "googlenet-mini",
    "resnet50",
    "resnet152",
    "bert-large",
    "gpt2",
    "gpt2-medium",
    "gpt2-xl",
    "llama-7b",
    "llama-13b",
    "llama-70b",
    "gpt3-175b",
];

/// What is asked for besides the model and the machine.
const ASKED: [&[&str]; 4] = [
    &[],
    &["--ranks", "4"],
    &["--stages", "2", "--micro-batches", "4"],
    &["--schedule", "1f1b", "--stages", "2", "--micro-batches", "2", "--replicas", "2"],
];

/// What stands before a word in a line, and behind another one.
fn between<'a>(line: &'a str, before: &str, behind: &str) -> &'a str {
    let rest = line.split_once(before).unwrap_or_else(|| panic!("{before:?} in {line:?}")).1;
    rest.split_once(behind).unwrap_or_else(|| panic!("{behind:?} in {line:?}")).0
}

/// The time that a text begins with.
fn seconds(text: &str) -> f64 {
    let mut words = text.split_whitespace();
    let number: f64 = words.next().unwrap().parse().unwrap();
    let unit = words.next().unwrap();
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    number * units.iter().find(|(name, _)| *name == unit).unwrap().1
}

/// The last digit of the time that a text begins with, in seconds.
fn resolution(text: &str) -> f64 {
    let number = text.split_whitespace().next().unwrap();
    let decimals = number.split_once('.').map_or(0, |(_, behind)| behind.len());
    let unit = text.trim_start().strip_prefix(number).unwrap();
    seconds(&format!("1 {unit}")) * 0.1_f64.powi(decimals as i32)
}

/// Compares what a plan's making prints with what the simulator says of the file; whether there is a plan.
fn same(dir: &Path, model: &str, cluster: &str, asked: &[&str]) -> bool {
    let args =
        ["plan", "--model", model, "--cluster", cluster, "--budget", "300", "-o", "plan.json"];
    let made = runner_in(dir, &[&args[..], asked].concat());
    let what = format!("{model} on {cluster}, {asked:?}:\n{}", made.stderr);
    if made.code != Some(0) {
        assert!(matches!(made.code, Some(2 | 4)) && made.stderr.contains("error: "), "{what}");
        return false;
    }
    let lines: Vec<&str> = made.stderr.lines().collect();
    let written = lines.iter().find(|line| line.contains("per step, bubble")).expect(&what);
    let step = between(written, "predicted ", " per step");
    let bubble = between(written, "bubble ", " %");
    let simulated = runner_in(dir, &["simulate", "plan.json"]).done().stdout.clone();
    let first = simulated.lines().next().unwrap();
    assert!(first.ends_with(&format!(": step time {step}, bubble {bubble} %")), "{first}: {what}");
    let json = runner_in(dir, &["simulate", "plan.json", "--json"]).done().stdout.clone();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let arena = json["arena"].as_array().unwrap().iter().filter_map(|bytes| bytes.as_u64()).max();
    // A search prints its table, best plan first.
    if let Some(head) = lines.iter().position(|line| line.contains("bubble  plan (best")) {
        let best = lines[head + 1].strip_prefix("  1 ").expect(&what);
        // A column has one unit, in which its best may have other digits: equal as far as both are written.
        let (found, written) = (seconds(best), seconds(step));
        let off = (found - written).abs();
        assert!(
            off <= 0.51 * resolution(best).max(resolution(step)),
            "{best:?} has not {step}: {what}"
        );
        let memory = Bytes(arena.unwrap()).to_string();
        let rest = best[12..].trim_start().strip_prefix(&memory);
        let rest = rest.unwrap_or_else(|| panic!("{best:?} has not {memory}: {what}"));
        assert_eq!(between(rest, "B ", " %").trim(), bubble, "{what}");
    }
    true
}

#[test]
fn what_is_printed_is_what_is_written() {
    let dir = scratch("one-truth");
    let all = std::env::var_os("PIPEWRIGHT_ALL_PRESETS").is_some();
    let mut plans = 0;
    if all {
        for model in PRESETS.iter().chain(&LARGE) {
            for cluster in CLUSTERS {
                plans += ASKED.iter().filter(|asked| same(&dir, model, cluster, asked)).count();
            }
        }
        println!("{plans} plans, figures as simulated");
    }
    for (at, model) in PRESETS.iter().enumerate() {
        for (more, asked) in ASKED.iter().enumerate() {
            plans += usize::from(same(&dir, model, CLUSTERS[(at + more) % 6], asked));
        }
    }
    assert!(plans > 20, "{plans} plans");
}

#[test]
fn gpt2_on_32_devices_is_no_slower_than_plain_data_parallelism() {
    let dir = scratch("one-truth-gpt2");
    let args = ["plan", "--model", "gpt2", "--cluster", "dgx-a100", "--budget", "2000", "-o"];
    let step = |asked: &[&str]| {
        runner_in(&dir, &[&args[..], &["plan.json"], asked].concat()).done();
        let json = runner_in(&dir, &["simulate", "plan.json", "--json"]).done().stdout.clone();
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["step_ns"].as_u64().unwrap()
    };
    let plain = ["--stages", "1", "--replicas", "32", "--micro-batches", "1", "--schedule", "1f1b"];
    let (found, plain) = (step(&[]), step(&plain));
    assert!(found <= plain, "{found} ns found, {plain} ns by data parallelism");
}
