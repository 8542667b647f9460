//! Time of the processor until advice at 64 lanes says its first word:
//! `cargo bench -p pipewright-core --bench advice`.

use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Precision;
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition::balanced;
use pipewright_core::plan::{Draft, Model, Plan};
use pipewright_core::predict::Advisor;
use pipewright_core::schedule::ScheduleKind;

const LANES: u32 = 64;

/// Looks at each plan; the least time counts, since other work takes caches away.
const ROUNDS: usize = 5;

/// 64 layers at least, so that each lane has one.
const NETWORKS: [&str; 3] = [
    "gpt3-175b",
    "llama-70b",
    "transformer:layers=64,hidden=1024,heads=16,sequence=1024,vocabulary=50257",
];

const MICRO_BATCHES: [u32; 3] = [8, 64, 512];

/// Milliseconds that this thread has had of a processor.
fn clock() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let first = text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    first.expect("nanoseconds on a processor") / 1e6
}

fn plan(preset: Preset, schedule: ScheduleKind, micro_batches: u32) -> Plan {
    let graph = preset.graph().expect("a preset");
    let mut cluster = Cluster::preset("dgx-a100").expect("a preset");
    cluster.nodes = LANES / cluster.devices_per_node;
    let costs = Costs::new(&graph, &cluster, 1, Precision::Bf16);
    let stages = schedule.placement().stages(LANES);
    let cuts = balanced(&graph, &costs, stages).expect("more layers than lanes");
    let mut draft = Draft::new(Model::Preset(preset), cluster, cuts);
    (draft.schedule, draft.micro_batches, draft.mini_batch) = (schedule, micro_batches, 512);
    draft.training.precision = Precision::Bf16;
    draft.plan().expect("sizes that fit together").0
}

/// Milliseconds until there is a first piece of advice, plans that were priced for it, and whether there is one.
fn first(plan: &Plan) -> (f64, u32, bool) {
    let begin = clock();
    let mut advisor = Advisor::new(plan).expect("a plan that was predicted");
    while advisor.advice().is_empty() && advisor.advance() {}
    (clock() - begin, advisor.tried(), !advisor.advice().is_empty())
}

fn main() {
    println!(
        "| network, schedule | micro-batches | plan alone ms | first advice ms | after plans |"
    );
    println!("|---|---|---|---|---|");
    for name in NETWORKS {
        let preset: Preset = name.parse().expect("a preset");
        for schedule in [ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
            for micro_batches in MICRO_BATCHES {
                let plan = plan(preset, schedule, micro_batches);
                let alone = |_| {
                    let begin = clock();
                    std::hint::black_box(Advisor::new(&plan)).expect("a plan that was predicted");
                    clock() - begin
                };
                let alone = (0..ROUNDS).map(alone).fold(f64::INFINITY, f64::min);
                let firsts: Vec<_> = (0..ROUNDS).map(|_| first(&plan)).collect();
                let least = firsts.iter().map(|(ms, ..)| *ms).fold(f64::INFINITY, f64::min);
                let (_, tried, found) = firsts[0];
                let after = if found { tried.to_string() } else { format!("none of {tried}") };
                println!(
                    "| {name}, {schedule} | {micro_batches} | {alone:.1} | {least:.1} | {after} |"
                );
            }
        }
    }
}
