//! `runner tune` beside a sweep that measures everything.
//!
//! For each network on two ranks that are threads of one process: the plan that is given (GPipe, as many layers
//! in each stage, four micro-batches), the one that `runner plan` finds from a profile, the one that `runner
//! tune` comes to, and the fastest of a sweep over schedules, micro-batches, cuts and replicas, each of which
//! is run. In the end these four, and the sweep's next ones, are measured in turns, so that what else the
//! machine does meets all of them alike; medians count.
//!
//! `cargo bench -p pipewright-runner --bench tune`, with words to choose networks: `-- digits gpt`.

use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Precision;
use pipewright_core::partition::{balanced, uniform};
use pipewright_core::plan::{Data, DataParallel, Draft, Model, Optimizer, Plan};
use pipewright_core::schedule::{ScheduleKind, Updates};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const RUNNER: &str = env!("CARGO_BIN_EXE_runner");
const SECONDS_MAX: &str = "600";

/// Rounds in which the last plans are measured in turns.
const ROUNDS: usize = 5;
/// Plans of the sweep that are measured again.
const NEXT: usize = 4;
/// Cuts in two that are swept, those that divide most evenly.
const CUTS: usize = 3;
const MICRO_BATCHES: [u32; 5] = [1, 2, 4, 8, 16];

struct Network {
    name: &'static str,
    preset: &'static str,
    mini_batch: u64,
    /// Of a run of the sweep.
    steps: &'static str,
}

const NETWORKS: [Network; 4] = [
    Network { name: "digits-cnn", preset: "digits-cnn", mini_batch: 64, steps: "60" },
    Network { name: "vgg16:32", preset: "vgg16:32", mini_batch: 16, steps: "12" },
    Network { name: "resnet18:32", preset: "resnet18:32", mini_batch: 32, steps: "12" },
    Network {
        name: "gpt",
        preset: "transformer:layers=4,hidden=128,heads=4,sequence=64,vocabulary=512",
        mini_batch: 16,
        steps: "20",
    },
];

/// A plan with what is said of it, and the steps that were measured of it in turns.
struct Entry {
    name: String,
    plan: Plan,
    steps: Vec<f64>,
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|word| name.contains(word));
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tune");
    std::fs::create_dir_all(&dir).expect("the target folder is ours");
    for network in NETWORKS.iter().filter(|network| wanted(network.name)) {
        compare(&dir, network);
    }
}

fn compare(dir: &Path, network: &Network) {
    let Network { name, preset, mini_batch, steps } = network;
    let model = Model::Preset(preset.parse().expect("a preset"));
    let cuts = uniform(&model.graph().expect("a preset"), 2).expect("more layers than two");
    let given = draft(&model, *mini_batch, cuts);
    let given = Draft { schedule: ScheduleKind::GPipe, micro_batches: 4, ..given };
    let given = given.plan().expect("two stages").0;
    let mut entries = vec![entry("given", given.clone())];
    write(dir, "plan.json", &given);
    let begin = Instant::now();
    let ended = execute(dir, &["tune", "plan.json", "-o", "tuned.json", "--json"]);
    let (tuned_s, ended): (f64, Value) =
        (begin.elapsed().as_secs_f64(), serde_json::from_str(&ended).expect("one object"));
    entries.push(entry("tuned", read(dir, "tuned.json")));
    execute(dir, &["profile", "plan.json", "-o", "here.json"]);
    let mini_batch_text = mini_batch.to_string();
    let plan = ["plan", "--model", preset, "--ranks", "2", "--mini-batch", &mini_batch_text];
    let end = ["--learning-rate", "1e-4", "--cluster", "here.json", "-o", "planned.json", "-q"];
    execute(dir, &[&plan[..], &end].concat());
    entries.push(entry("profiled, planned", read(dir, "planned.json")));
    let begin = Instant::now();
    let mut swept: Vec<(f64, Plan)> = sweep(&model, *mini_batch)
        .into_iter()
        .filter_map(|plan| Some((measure(dir, &plan, steps)?, plan)))
        .collect();
    let swept_s = begin.elapsed().as_secs_f64();
    swept.sort_by(|a, b| a.0.total_cmp(&b.0));
    let runs = swept.len();
    for (at, (_, plan)) in swept.into_iter().take(NEXT).enumerate() {
        entries.push(entry(&format!("sweep, {}", at + 1), plan));
    }
    for _ in 0..ROUNDS {
        for entry in &mut entries {
            entry.steps.extend(measure(dir, &entry.plan, steps));
        }
    }
    println!(
        "\n{name}: tune measured {} plans in {} runs and {tuned_s:.0} s, the sweep {runs} in {swept_s:.0} s",
        ended["plans"],
        ended["runs"].as_array().map_or(0, Vec::len)
    );
    report(entries);
}

/// Prints the entries, the fastest in turns first.
fn report(mut entries: Vec<Entry>) {
    for entry in &mut entries {
        entry.steps.sort_by(f64::total_cmp);
    }
    let median = |entry: &Entry| entry.steps.get(entry.steps.len() / 2).copied();
    entries.sort_by(|a, b| median(a).partial_cmp(&median(b)).expect("no NaN"));
    for entry in &entries {
        let plan = &entry.plan;
        let Some(step) = median(entry) else { continue };
        println!(
            "{:18} {step:8.2} ms ({:.2} to {:.2})  {} lanes x {} replicas, {} micro-batches, {}, cuts {:?}",
            entry.name,
            entry.steps[0],
            entry.steps[entry.steps.len() - 1],
            plan.lanes(),
            plan.data_parallel.replicas,
            plan.micro_batches,
            plan.schedule.name,
            plan.cuts
        );
    }
}

fn entry(name: &str, plan: Plan) -> Entry {
    Entry { name: name.into(), plan, steps: vec![] }
}

fn draft(model: &Model, mini_batch: u64, cuts: Vec<u32>) -> Draft {
    let cluster = Cluster::preset("laptop").expect("a preset");
    let mut draft = Draft::new(model.clone(), cluster, cuts);
    draft.mini_batch = mini_batch;
    draft.data = Data::Synthetic { train: 4 * mini_batch, test: 1 };
    let learning_rate = 1e-4;
    draft.optimizer =
        Optimizer::Sgd { learning_rate, momentum: 0.9, weight_decay: 0.0, nesterov: false };
    draft
}

/// Every synchronous schedule of two lanes by name, with two stages cut in the most even ways and with four
/// cut evenly; and two replicas of the whole.
fn sweep(model: &Model, mini_batch: u64) -> Vec<Plan> {
    let graph = model.graph().expect("a preset");
    let cluster = Cluster::preset("laptop").expect("a preset");
    let costs = Costs::new(&graph, &cluster, (mini_batch / 4).max(1), Precision::F32);
    let four = balanced(&graph, &costs, 4).ok();
    let mut plans = vec![];
    for micro_batches in
        MICRO_BATCHES.into_iter().filter(|m| mini_batch.is_multiple_of(u64::from(*m)))
    {
        for schedule in ScheduleKind::ALL {
            if schedule.updates() != Updates::Synchronous || schedule == ScheduleKind::Naive {
                continue;
            }
            let mut cuts = vec![];
            if schedule.lanes(2) == Ok(2) {
                cuts.extend(even(&graph, &costs));
            } else if schedule.lanes(4) == Ok(2) {
                cuts.extend(four.clone());
            }
            for cuts in cuts {
                let draft = draft(model, mini_batch, cuts);
                let made = Draft { schedule, micro_batches, ..draft }.plan();
                plans.extend(made.ok().map(|(plan, _)| plan));
            }
        }
        let whole = draft(model, mini_batch, vec![]);
        let data_parallel = DataParallel { replicas: 2, ..DataParallel::default() };
        let made = Draft { micro_batches, data_parallel, ..whole }.plan();
        plans.extend(made.ok().map(|(plan, _)| plan));
    }
    plans
}

/// Cuts in two between layers, the most even ones.
fn even(graph: &pipewright_core::graph::Graph, costs: &Costs) -> Vec<Vec<u32>> {
    let time = |nodes: std::ops::Range<usize>| -> f64 {
        let of = |node: &pipewright_core::cost::NodeCost| {
            (node.forward + node.input_gradient + node.weight_gradient).secs()
        };
        costs.nodes[nodes].iter().map(of).sum()
    };
    let all = costs.nodes.len();
    let borders = graph.layers().iter().map(|layer| layer.first_node.0).filter(|node| *node > 0);
    let longer = |cut: &u32| time(0..*cut as usize).max(time(*cut as usize..all));
    let mut borders: Vec<u32> = borders.collect();
    borders.sort_by(|a, b| longer(a).total_cmp(&longer(b)));
    borders.into_iter().take(CUTS).map(|cut| vec![cut]).collect()
}

/// The median step of a run in milliseconds; none where it fails.
fn measure(dir: &Path, plan: &Plan, steps: &str) -> Option<f64> {
    write(dir, "tried.json", plan);
    let output = command(dir, &["tried.json", "--steps", steps, "--no-eval", "--json"]).output();
    let output = output.expect("`timeout` belongs to coreutils");
    let record: Value = serde_json::from_slice(&output.stdout).ok()?;
    record["step_ns"].as_f64().map(|step| step / 1e6)
}

fn write(dir: &Path, name: &str, plan: &Plan) {
    std::fs::write(dir.join(name), plan.to_json()).expect("the target folder is ours");
}

fn read(dir: &Path, name: &str) -> Plan {
    let text = std::fs::read_to_string(dir.join(name)).expect("the runner wrote it");
    Plan::from_json(&text).expect("a plan")
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", SECONDS_MAX, RUNNER]).args(args);
    command.current_dir(dir).stdin(Stdio::null());
    command
}

fn execute(dir: &Path, args: &[&str]) -> String {
    let output = command(dir, args).output().expect("`timeout` belongs to coreutils");
    assert!(output.status.success(), "{args:?}: {output:#?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
