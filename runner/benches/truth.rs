//! Predicted beside measured: what a user gets who profiles, plans and runs.
//!
//! For each network `mpirun -n 2 runner profile`, then a plan per schedule from the cluster file,
//! then several runs of it; and device `model` with 16 ranks, whose costs are given and whose link
//! is the measured one. Predictions are made before the runs. Of several runs the median counts.
//! Then the same of jobs that have lost a rank and go on re-routed.
//!
//! `cargo bench -p pipewright-runner --bench truth`, with words to choose cases: `-- gpt model`, `-- groups`, `-- slow`, `-- lost`,
//! `-- computed`, `-- automatic`. `BENCH_PREFIX="chrt --rr 10"` puts a command in front of every program: on a machine that
//! others use, ranks with a real-time priority measure the runner and not the others. Linux still
//! takes such ranks off their core for 50 ms of each second: steps are short, so that most have
//! none of that.

use pipewright_core::elastic::{Place, Rerouted};
use pipewright_core::plan::Plan;
use pipewright_core::predict::predict;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RUNNER: &str = env!("CARGO_BIN_EXE_runner");
/// Runs of a plan.
const RUNS: usize = 5;
const SECONDS_MAX: &str = "300";

/// A network on two ranks of a thread each: name, and what `runner plan` is told.
const NETWORKS: [(&str, &str); 4] = [
    ("fc32:1024", "--model fc32:1024 --mini-batch 128 --micro-batches 8 --learning-rate 1e-4"),
    ("vgg16:32", "--model vgg16:32 --mini-batch 16 --micro-batches 4 --learning-rate 1e-4"),
    ("resnet18:32", "--model resnet18:32 --mini-batch 32 --micro-batches 4 --learning-rate 1e-4"),
    (
        "gpt-6",
        "--model transformer:layers=6,hidden=256,heads=4,sequence=128,vocabulary=1024 \
         --mini-batch 8 --micro-batches 4 --learning-rate 1e-4",
    ),
];

/// Device `model`: schedule, stages.
const MODELLED: [(&str, &str); 4] =
    [("gpipe", "16"), ("1f1b", "16"), ("zb-h1", "16"), ("interleaved:2", "32")];

/// 16 ranks: tensor groups of 4, on two stages of two replicas.
const GROUPED: &str = "--model transformer:layers=8,hidden=512,heads=8,sequence=128,vocabulary=2048 --split uniform \
                       --mini-batch 32 --micro-batches 8 --stages 2 --replicas 2 --tensor 4";

/// 16 ranks: expert groups of 4 replicas, on two stages of eight replicas.
const EXPERTS: &str = "--model transformer:layers=8,hidden=512,heads=8,sequence=128,vocabulary=2048,experts=8 \
                       --split uniform --mini-batch 64 --micro-batches 8 --stages 2 --replicas 8 --expert-parallel 4";

/// Orders made for stages that are uneven: networks and their stages, on modelled devices.
const AUTOMATIC: [(&str, &str); 4] = [
    ("vgg16:32, 4", "--model vgg16:32 --mini-batch 64 --micro-batches 8 --stages 4"),
    ("vgg16:32, 8", "--model vgg16:32 --mini-batch 128 --micro-batches 16 --stages 8"),
    ("resnet50:32, 4", "--model resnet50:32 --mini-batch 64 --micro-batches 8 --stages 4"),
    ("resnet50:32, 8", "--model resnet50:32 --mini-batch 64 --micro-batches 8 --stages 8"),
];

/// Stages, replicas and the rank that is lost.
const LOST: [(&str, &str, u32); 5] =
    [("2", "2", 0), ("2", "2", 3), ("4", "2", 5), ("4", "4", 2), ("4", "4", 13)];

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|word| name.contains(word));
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("truth");
    std::fs::create_dir_all(&dir).expect("the target folder is ours");
    println!("{:30} {:>11} {:>11} {:>8}  bubble", "", "predicted", "measured", "error");
    for (name, model) in NETWORKS.iter().filter(|(name, _)| wanted(name)) {
        let model: Vec<&str> = model.split_whitespace().chain(["--stages", "2"]).collect();
        plan(&dir, &model, "laptop", "gpipe");
        mpi(&dir, 2, &["profile", "plan.json", "-o", "cluster.json", "--repeats", "15"]);
        for schedule in ["gpipe", "1f1b", "zb-h1"] {
            let plan = plan(&dir, &model, "cluster.json", schedule);
            let run = ["plan.json", "--threads", "1"];
            compare(&dir, &format!("{name} {schedule}"), &plan, 2, &run, true);
        }
    }
    if wanted("model") {
        modelled(&dir);
    }
    if wanted("groups") {
        grouped(&dir, 1e11, 10);
    }
    if wanted("slow groups") {
        grouped(&dir, 1e11 / 16.0, 2);
    }
    if wanted("automatic") {
        automatic(&dir);
    }
    if wanted("lost") {
        lost(&dir);
    }
    if wanted("lost computed") {
        lost_computed(&dir);
    }
}

/// 16 ranks that spend the time of a device of 80 GFLOP/s each.
fn modelled(dir: &Path) {
    let model = "--model fc32:1024 --split uniform --mini-batch 1024 --micro-batches 16";
    let model = |stages| -> Vec<&str> { model.split(' ').chain(["--stages", stages]).collect() };
    for mpirun in [false, true] {
        plan(dir, &model("16"), "laptop", "gpipe");
        let transport = modelled_cluster(dir, mpirun);
        for (schedule, stages) in MODELLED {
            let plan = plan(dir, &model(stages), "cluster.json", schedule);
            let name = format!("model, 16 {transport} {schedule}");
            compare(dir, &name, &plan, 16, &["plan.json", "--device", "model"], mpirun);
        }
    }
}

/// Tensor groups, stages and replicas together on such devices, with slices of the sequence and without. What 16
/// ranks add up and copy takes the time of this machine's cores: the slower the device, the less that is of a step.
fn grouped(dir: &Path, flops_per_sec: f64, steps: u32) {
    let sliced = format!("{GROUPED} --sequence-parallel");
    let cases = [
        ("4 x 2 x 2", GROUPED),
        ("4 x 2 x 2, slices", sliced.as_str()),
        ("2 x 8, experts over 4", EXPERTS),
    ];
    for mpirun in [false, true] {
        plan(dir, &["--model", "fc32:1024", "--stages", "16"], "laptop", "gpipe");
        let transport = modelled_cluster(dir, mpirun);
        let mut cluster = read(&dir.join("cluster.json"));
        cluster["device"]["flops_per_sec"] = json!(flops_per_sec);
        cluster["device"]["memory_bytes_per_sec"] = json!(flops_per_sec / 10.0);
        write(&dir.join("cluster.json"), &cluster);
        for (what, model) in cases {
            let model: Vec<&str> = model.split_whitespace().collect();
            let mut plan = plan(dir, &model, "cluster.json", "1f1b");
            plan["steps"] = json!(steps);
            write(&dir.join("plan.json"), &plan);
            let speed = 0.8 * flops_per_sec / 1e9;
            let name = format!("{speed} GFLOP/s, {transport} {what}");
            compare(dir, &name, &plan, 16, &["plan.json", "--device", "model"], mpirun);
        }
    }
}

/// Orders that the planner makes, beside ZB-H1 with the same cuts, on such devices under mpirun.
fn automatic(dir: &Path) {
    plan(dir, &["--model", "fc32:1024", "--stages", "16"], "laptop", "gpipe");
    modelled_cluster(dir, true);
    for (name, model) in AUTOMATIC {
        let model: Vec<&str> = model.split_whitespace().collect();
        for schedule in ["zb-h1", "automatic"] {
            let plan = plan(dir, &model, "cluster.json", schedule);
            let ranks = plan["schedule"]["lanes"].as_array().expect("lanes").len() as u32;
            let made = plan["schedule"]["name"].as_str().expect("a name");
            let name = format!("{name}, {made}");
            compare(dir, &name, &plan, ranks, &["plan.json", "--device", "model"], true);
        }
    }
}

/// Makes `cluster.json` one of 16 such devices, with links as they are measured between threads or
/// processes; which.
fn modelled_cluster(dir: &Path, mpirun: bool) -> &'static str {
    let profile = ["profile", "plan.json", "-o", "cluster.json", "--repeats", "1"];
    match mpirun {
        true => mpi(dir, 2, &profile),
        false => alone(dir, &profile),
    };
    let mut cluster = read(&dir.join("cluster.json"));
    cluster["device"] = json!({
        "name": "80 GFLOP/s", "flops_per_sec": 1e11, "efficiency": 0.8,
        "memory_bytes_per_sec": 1e10, "memory": 1u64 << 34, "overhead_ns": 2000
    });
    (cluster["devices_per_node"], cluster["ranks_per_node"]) = (json!(16), json!(16));
    cluster.as_object_mut().expect("an object").remove("profile");
    write(&dir.join("cluster.json"), &cluster);
    if mpirun { "mpirun" } else { "threads" }
}

/// Plans that go on without a rank, on the modelled device.
fn lost(dir: &Path) {
    let model = "--model fc32:512 --split uniform --mini-batch 2048";
    let of = |stages: &'static str, replicas: &'static str| -> Vec<&str> {
        let division = ["--stages", stages, "--replicas", replicas, "--micro-batches", "8"];
        model.split(' ').chain(division).collect()
    };
    for mpirun in [false, true] {
        plan(dir, &of("4", "2"), "laptop", "1f1b");
        let transport = modelled_cluster(dir, mpirun);
        for (stages, replicas, rank) in LOST {
            let whole = plan(dir, &of(stages, replicas), "cluster.json", "1f1b");
            let name = format!("model, {transport} {stages} x {replicas}");
            let run = ["plan.json", "--device", "model"];
            compare_lost(dir, &name, (&whole, rank), &run, mpirun);
        }
    }
}

/// Two networks that are computed, on two stages of two replicas each, of which a rank is lost.
fn lost_computed(dir: &Path) {
    for (name, model) in [NETWORKS[0], NETWORKS[3]] {
        let model = model.split_whitespace().chain(["--stages", "2"]);
        let whole: Vec<&str> = model.clone().chain(["--replicas", "2"]).collect();
        plan(dir, &model.collect::<Vec<_>>(), "laptop", "1f1b");
        mpi(dir, 2, &["profile", "plan.json", "-o", "cluster.json", "--repeats", "15"]);
        for rank in [0, 3] {
            let whole = plan(dir, &whole, "cluster.json", "1f1b");
            let run = ["plan.json", "--threads", "1"];
            compare_lost(dir, &format!("{name} 2 x 2"), (&whole, rank), &run, true);
        }
    }
}

/// The same without `rank`.
fn compare_lost(dir: &Path, name: &str, (whole, rank): (&Value, u32), run: &[&str], mpirun: bool) {
    let whole = Plan::from_json(&whole.to_string()).expect("the runner wrote it");
    let prediction = predict(&whole).expect("it was predicted before");
    let (lane, replica) = whole.mesh().place(rank);
    let found = Rerouted::of(&whole, &prediction, &[Place { lane, replica }]).expect("a peer");
    let plan = serde_json::to_value(&found.plan).expect("plain data");
    write(&dir.join("plan.json"), &plan);
    let name = format!("{name}, lost {rank} (all: {})", found.healthy);
    compare(dir, &name, &plan, found.plan.ranks(), run, mpirun);
}

/// Writes `plan.json` and returns it.
fn plan(dir: &Path, model: &[&str], cluster: &str, schedule: &str) -> Value {
    let mut args = vec!["plan", "--cluster", cluster, "--schedule", schedule, "--steps", "10"];
    if !model.contains(&"--split") {
        args.extend(["--split", "balanced"]);
    }
    args.extend(model);
    args.extend(["-o", "plan.json"]);
    alone(dir, &args);
    read(&dir.join("plan.json"))
}

/// Runs `plan.json` and prints a line.
fn compare(dir: &Path, name: &str, plan: &Value, ranks: u32, run: &[&str], mpirun: bool) {
    let predicted = &plan["prediction"];
    let mut runs: Vec<(f64, f64)> = vec![];
    for _ in 0..RUNS {
        let args = [run, &["--out", "run", "--overwrite", "--json"]].concat();
        match mpirun {
            true => mpi(dir, ranks, &args),
            false => alone(dir, &args),
        };
        let result = read(&dir.join("run/result.json"));
        runs.push((number(&result["step_ns"]) / 1e6, 100.0 * number(&result["bubble"])));
    }
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (measured, bubble) = runs[RUNS / 2];
    let (step, planned) =
        (number(&predicted["step_ns"]) / 1e6, 100.0 * number(&predicted["bubble"]));
    let error = 100.0 * (step / measured - 1.0);
    let points = bubble - planned;
    let (fastest, slowest) = (runs[0].0, runs[RUNS - 1].0);
    println!(
        "{name:30} {step:8.2} ms {measured:8.2} ms {error:+6.1} %  {planned:.1} / {bubble:.1} % \
         ({points:+.1}), runs {fastest:.1} to {slowest:.1} ms"
    );
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("the runner writes numbers there")
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("the runner wrote it");
    serde_json::from_str(&text).expect("the runner writes JSON")
}

fn write(path: &Path, value: &Value) {
    std::fs::write(path, value.to_string()).expect("the target folder is ours");
}

fn alone(dir: &Path, args: &[&str]) {
    execute(dir, Path::new(RUNNER), args);
}

fn mpi(dir: &Path, ranks: u32, args: &[&str]) {
    let ranks = ranks.to_string();
    let all = [&["-n", ranks.as_str(), RUNNER], args].concat();
    let mpirun = pipewright::tools::find("MPIRUN", &["mpirun"]).expect("mpirun is installed");
    execute(dir, &mpirun, &all);
}

fn execute(dir: &Path, program: &Path, args: &[&str]) {
    let prefix = std::env::var("BENCH_PREFIX").unwrap_or_default();
    let mut words = prefix.split_whitespace();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", SECONDS_MAX]).args(words.by_ref()).arg(program).args(args);
    command.envs(pipewright::mpirun::environment()).current_dir(dir).stdin(Stdio::null());
    let output = command.output().expect("`timeout` belongs to coreutils");
    assert!(output.status.success(), "{command:?}: {output:#?}");
}
