//! torchgpipe's speed benchmarks of U-Net (5, 64) and ResNet-101 on Tesla P40, throughput relative
//! to one device without pipelining. Nothing is fitted: the device's published peaks, layers split
//! by time, batch sizes and chunks of the benchmark, recomputation of all micro-batches but the
//! last. `cargo test -p pipewright-core --test planner torchgpipe -- --nocapture` prints the table
//! of docs/prediction.md.

use pipewright_core::cost::{Cluster, Costs, Device, Link, Workload};
use pipewright_core::graph::Precision;
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition::split;
use pipewright_core::predict::search::Chain;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::simulate::{Footprint, Sends, StageCost, estimate};
use pipewright_core::units::{Bytes, Nanos};

/// A row of the benchmark: devices, batch, chunks, measured speed-up.
type Row = (u32, u64, u32, f64);

const UNET: [Row; 5] = [
    (0, 40, 1, 1.0),
    (1, 80, 2, 0.858),
    (2, 512, 32, 1.246),
    (4, 512, 16, 2.352),
    (8, 640, 40, 3.105),
];
const RESNET: [Row; 5] = [
    (0, 118, 1, 1.0),
    (1, 220, 2, 0.853),
    (2, 25_000, 1667, 1.414),
    (4, 5632, 256, 2.774),
    (8, 5400, 150, 4.294),
];

/// Published peaks; convolutions reach about 60 % of them.
fn p40() -> Cluster {
    let mut cluster = Cluster::preset("dgx-a100").unwrap();
    cluster.device = Device {
        name: "Tesla P40".into(),
        flops_per_sec: 11.76e12,
        efficiency: 0.6,
        memory_bytes_per_sec: 346e9,
        memory: Bytes(24 << 30),
        overhead_ns: Nanos(10_000),
        ..cluster.device
    };
    cluster
}

/// Samples a second; 0 devices: without pipelining or recomputation.
fn throughput(preset: Preset, (devices, batch, chunks, _): Row) -> f64 {
    let (graph, cluster) = (preset.graph().unwrap(), p40());
    let samples = batch / u64::from(chunks);
    let work = Workload::of(&graph, &Costs::new(&graph, &cluster, samples, Precision::F32));
    let blocks: Vec<u32> = graph.layers().iter().map(|l| l.first_node.0).collect();
    let chain = Chain::new(&work, &blocks, 1).unwrap();
    let stages = devices.max(1);
    let mut bounds = vec![0];
    bounds.extend(split(&chain.times(), stages as usize).iter().map(|start| *start as u32));
    bounds.push(chain.len() as u32);
    let again = if devices == 0 { 0 } else { u64::from(chunks) - 1 };
    let cost = |range: &[u32]| {
        let sums = chain.range(range[0], range[1]);
        // Spread over all micro-batches: the last one does not compute again.
        let recomputed = Nanos(sums.forward.0 * again / u64::from(chunks));
        StageCost {
            forward: sums.forward,
            backward_input: sums.backward_input + recomputed,
            backward_weight: sums.backward_weight,
            update: Nanos::ZERO,
        }
    };
    let costs: Vec<StageCost> = bounds.windows(2).map(cost).collect();
    let schedule = ScheduleKind::GPipe.generate(stages, chunks).unwrap();
    // PCI Express 3.0.
    let link = Link { latency_ns: Nanos(20_000), bytes_per_sec: 12e9 };
    let hop = |hop: pipewright_core::simulate::Hop| {
        link.time(chain.input(bounds[hop.boundary.index() + 1]))
    };
    let footprints = vec![Footprint::default(); costs.len()];
    let found = estimate(&schedule, &costs, &footprints, Sends::Free, hop).unwrap();
    (samples * u64::from(chunks)) as f64 / found.makespan.secs()
}

fn compare(name: &str, preset: Preset, rows: [Row; 5]) {
    println!("| {name} | devices | measured | predicted | error |");
    println!("|---|---|---|---|---|");
    let alone = throughput(preset, rows[0]);
    let predicted = rows.map(|row| throughput(preset, row) / alone);
    for ((devices, _, chunks, measured), predicted) in rows.into_iter().zip(predicted).skip(1) {
        let error = 100.0 * (predicted / measured - 1.0);
        println!(
            "| {chunks} chunks | {devices} | {measured:.2} | {predicted:.2} | {error:+.1} % |"
        );
    }
    let [baseline, one, two, four, eight] = predicted;
    assert!(one < baseline && baseline < two && two < four && four < eight, "{predicted:?}");
    // What recomputation alone costs: half of the micro-batches compute forward again.
    assert!((one / rows[1].3 - 1.0).abs() < 0.05, "{one}");
}

#[test]
fn unet() {
    compare("U-Net (5, 64)", "unet:5,64".parse().unwrap(), UNET);
}

#[test]
fn resnet_101() {
    compare("ResNet-101", "resnet101".parse().unwrap(), RESNET);
}
