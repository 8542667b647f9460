//! The exact partitioners beside the time of their peers on the same inputs.
//! `cargo bench -p pipewright-core --bench partition`.

#[path = "../tests/planner/partition/profiles.rs"]
mod profiles;

use pipewright_core::cost::Workload;
use pipewright_core::partition::{
    Hybrid, Level, Pipeline, Placement, Worker, exact, hybrid, replicated,
};
use pipewright_core::units::Bytes;
use profiles::profile;
use std::time::Instant;

/// Best of several: the placement and milliseconds.
fn best(mut solve: impl FnMut() -> Placement) -> (Placement, f64) {
    let mut fastest = f64::INFINITY;
    let mut placement = Placement::default();
    for _ in 0..5 {
        let start = Instant::now();
        placement = solve();
        fastest = fastest.min(start.elapsed().as_secs_f64() * 1e3);
    }
    (placement, fastest)
}

fn row(name: &str, theirs: Option<f64>, solve: impl FnMut() -> Placement) {
    let (placement, ms) = best(solve);
    let states = placement.statistics.states;
    let peer = theirs.map_or("-".into(), |s| format!("{s:.2} s"));
    let ratio = theirs.map_or("-".into(), |s| format!("{:.0}", s * 1e3 / ms));
    println!(
        "{name:38} {states:>7} {ms:>10.3} ms {peer:>9} {ratio:>7}   {:.4} ms",
        placement.bottleneck.secs() * 1e3
    );
}

fn pipedream() {
    let straight = [
        ("alexnet", 0.38),
        ("vgg16", 0.34),
        ("resnet18", 0.41),
        ("squeezenet1_0", 0.67),
        ("resnet50", 0.92),
        ("gnmt", 1.15),
        ("densenet121", 4.64),
    ];
    let replicas = [0.40, 0.41, 0.69, 1.09, 4.05, 1.65, 19.03];
    for ((name, seconds), with) in straight.into_iter().zip(replicas) {
        let work = profile(&format!("pipedream/{name}.graph.txt"));
        row(&format!("{name}, 8 stages"), Some(seconds), || {
            exact(&work, &Pipeline::of(8)).expect("fits")
        });
        let level = Level { machines: 8, bytes_per_sec: 1e9 };
        row(&format!("{name}, 8 machines, replicas"), Some(with), || {
            replicated(&work, &[level]).expect("fits")
        });
    }
    let work = profile("pipedream/vgg16.graph.txt");
    let levels =
        [Level { machines: 4, bytes_per_sec: 1e10 }, Level { machines: 4, bytes_per_sec: 1.25e9 }];
    row("vgg16, 4 x 4 machines, replicas", Some(1.18), || {
        replicated(&work, &levels).expect("fits")
    });
}

fn dnn_partitioning() {
    let inputs = [
        ("LayerGraphs-bert24_training", Some(0.06)),
        ("LayerGraphs-gnmt_inference", Some(53.1)),
        ("LayerGraphs-resnet50_training", Some(0.4)),
        ("OperatorGraphs-bert_l-3_inference", Some(1.6)),
        ("OperatorGraphs-bert_l-3_training", None),
        ("OperatorGraphs-resnet50_inference", Some(0.6)),
    ];
    for (name, seconds) in inputs {
        let work = profile(&format!("dnn-partitioning/{name}.json"));
        let device = Worker { memory: work.memory, ..Worker::default() };
        let mut workers = vec![device; work.devices.unwrap_or(1) as usize];
        workers.push(Worker { host: true, ..Worker::default() });
        let line = Pipeline {
            workers,
            any_order: true,
            link: work.link,
            gradients: false,
            ..Pipeline::of(0)
        };
        row(name, seconds, || exact(&work, &line).expect("fits"));
    }
}

fn piper() {
    let work = profile("piper/bert32a100.json");
    let inputs = [
        (8, 8, 1920, 0.05),
        (8, 32, 512, 0.08),
        (8, 64, 1920, 0.24),
        (2, 64, 1920, 0.19),
        (80, 64, 1920, 0.33),
        (8, 512, 1920, 3.64),
    ];
    for (gib, devices, micro_batches, seconds) in inputs {
        let bytes_per_sec = 25.0 * (1u64 << 30) as f64;
        let on = Hybrid { devices, memory: Bytes(gib << 30), micro_batches, bytes_per_sec };
        row(&format!("BERT-32, {devices} x {gib} GiB"), Some(seconds), || {
            hybrid(&work, &on).expect("fits")
        });
    }
}

/// GNMT's graph several times over, one after the other.
fn repeated(work: &Workload, times: u32) -> Workload {
    let mut all = work.clone();
    let last = work.items.len() as u32 - 1;
    for turn in 1..times {
        let by = turn * (last + 1);
        all.items.extend(work.items.iter().cloned());
        let mut edges = work.edges.clone();
        edges.iter_mut().for_each(|edge| (edge.from, edge.to) = (edge.from + by, edge.to + by));
        // Whatever reads nothing reads the end of the graph before.
        for item in (0..=last).filter(|item| work.edges.iter().all(|edge| edge.to != *item)) {
            let bytes = work.items[last as usize].output;
            let edge = pipewright_core::cost::Edge { to: item + by, from: by - 1, bytes };
            edges.push(edge);
        }
        all.edges.extend(edges);
    }
    all.edges.sort_unstable();
    all
}

fn main() {
    println!(
        "{:38} {:>7} {:>13} {:>9} {:>7}   bottleneck",
        "input", "states", "ours", "peer", "ratio"
    );
    pipedream();
    dnn_partitioning();
    piper();
    let work = profile("pipedream/gnmt.graph.txt");
    let large = repeated(&work, 3);
    row("gnmt three times, 16 stages", None, || exact(&large, &Pipeline::of(16)).expect("fits"));
    let level = Level { machines: 16, bytes_per_sec: 1e9 };
    row("gnmt three times, 16 machines", Some(20.0), || {
        replicated(&large, &[level]).expect("fits")
    });
}
