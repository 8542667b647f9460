//! Published answers, ours beside theirs. Equal or better everywhere.

use super::profiles::profile;
use pipewright_core::cost::Workload;
use pipewright_core::partition::{Hybrid, Level, Pipeline, Worker, exact, hybrid, replicated};
use pipewright_core::units::Bytes;

fn pipedream(name: &str) -> Workload {
    profile(&format!("pipedream/{name}.graph.txt"))
}

/// PipeDream without replication, milliseconds a mini-batch, on 2, 4, 8 and 16 machines.
const STRAIGHT: &[(&str, [Option<f64>; 4])] = &[
    ("alexnet", [Some(43.08), Some(28.72), Some(28.72), Some(28.72)]),
    ("vgg16", [Some(370.93), Some(216.45), Some(159.53), Some(159.53)]),
    ("resnet18", [Some(130.20), Some(69.52), Some(35.21), Some(32.33)]),
    ("squeezenet1_0", [Some(144.14), Some(72.95), Some(51.09), Some(51.09)]),
    ("resnet50", [Some(221.93), Some(111.50), Some(56.68), Some(29.64)]),
    ("gnmt", [Some(45.94), Some(25.87), Some(19.03), None]),
    ("densenet121", [Some(163.09), Some(81.98), Some(41.62), None]),
];

#[test]
fn straight_pipelines_equal_pipedream() {
    for (name, theirs) in STRAIGHT {
        let work = pipedream(name);
        for (stages, theirs) in [2, 4, 8, 16].into_iter().zip(theirs) {
            let clock = std::time::Instant::now();
            let ours = exact(&work, &Pipeline::of(stages)).unwrap();
            let ms = ours.bottleneck.secs() * 1e3;
            println!(
                "{name} {stages}: ours {ms:.2}, theirs {theirs:.2?} ms; {} states {} steps {:?}",
                ours.statistics.states,
                ours.statistics.steps,
                clock.elapsed()
            );
            assert_eq!(ours.stages.len(), stages as usize);
            assert!(ms < theirs.unwrap_or(f64::MAX) + 0.00501, "{name} {stages}");
        }
    }
}

/// dnn-partitioning: the optimum of contiguous splits, milliseconds a sample.
const CONTIGUOUS: &[(&str, f64)] = &[
    ("LayerGraphs-bert24_training", 41.746),
    ("LayerGraphs-gnmt_inference", 32.911),
    ("LayerGraphs-resnet50_training", 78.632),
    ("OperatorGraphs-bert_l-3_inference", 27.919),
    ("OperatorGraphs-bert_l-3_training", 65.303),
    ("OperatorGraphs-resnet50_inference", 124.349),
];

#[test]
fn contiguous_splits_equal_dnn_partitioning() {
    for (name, theirs) in CONTIGUOUS {
        let work = profile(&format!("dnn-partitioning/{name}.json"));
        let device = Worker { memory: work.memory, ..Worker::default() };
        let mut workers = vec![device; work.devices.unwrap() as usize];
        workers.push(Worker { host: true, ..Worker::default() });
        let line = Pipeline {
            workers,
            any_order: true,
            link: work.link,
            gradients: false,
            ..Pipeline::of(0)
        };
        let clock = std::time::Instant::now();
        let ours = exact(&work, &line).unwrap();
        let ms = ours.bottleneck.secs() * 1e3;
        println!(
            "{name}: ours {ms:.3}, theirs {theirs:.3} ms; {:?} {:?}",
            ours.statistics,
            clock.elapsed()
        );
        assert!(ms < theirs + 0.0006, "{name}: {ms} {theirs}");
        assert!(ours.statistics.blocks.is_none());
        let slowest = ours.stages.iter().map(|stage| stage.time).max();
        assert_eq!(slowest, Some(ours.bottleneck));
    }
}

/// PipeDream with replication, 1 GB/s, milliseconds a mini-batch on 2, 4 and 8 machines.
const REPLICATED: &[(&str, [Option<f64>; 3])] = &[
    ("alexnet", [Some(66.45), Some(34.22), Some(18.87)]),
    ("vgg16", [Some(411.04), Some(205.52), Some(103.83)]),
    ("resnet18", [Some(176.63), Some(100.00), Some(50.78)]),
    ("squeezenet1_0", [Some(147.68), Some(74.41), Some(37.69)]),
    ("resnet50", [Some(285.06), Some(162.88), Some(92.01)]),
    ("gnmt", [Some(45.94), Some(25.87), Some(19.28)]),
    ("densenet121", [None, Some(89.98), Some(47.12)]),
];

#[test]
fn replicated_stages_equal_pipedream() {
    for (name, theirs) in REPLICATED {
        let work = pipedream(name);
        for (machines, theirs) in [2, 4, 8].into_iter().zip(theirs) {
            let clock = std::time::Instant::now();
            let ours = replicated(&work, &[Level { machines, bytes_per_sec: 1e9 }]).unwrap();
            let ms = ours.bottleneck.secs() * 1e3;
            let replicas: Vec<u32> = ours.stages.iter().map(|stage| stage.replicas).collect();
            println!(
                "{name} {machines}: ours {ms:.2}, theirs {theirs:.2?} ms, replicas {replicas:?} {:?}",
                clock.elapsed()
            );
            assert!(ours.devices() <= machines);
            assert!(ms < theirs.unwrap_or(f64::MAX) + 0.00501, "{name} {machines}");
        }
    }
}

#[test]
fn two_levels_equal_pipedream() {
    let work = pipedream("vgg16");
    let levels =
        [Level { machines: 4, bytes_per_sec: 1e10 }, Level { machines: 4, bytes_per_sec: 1.25e9 }];
    let ours = replicated(&work, &levels).unwrap();
    let ms = ours.bottleneck.secs() * 1e3;
    println!("vgg16 4x4: ours {ms:.2}, theirs 67.13 ms");
    assert!(ms < 67.135);
    assert!(ours.devices() <= 16);
}

/// 25 GiB/s, as in the table.
const BANDWIDTH: f64 = 25.0 * (1 << 30) as f64;

/// Piper, BERT-32: memory in GiB, devices, micro-batches, seconds a sample.
const PIPER: &[(u64, u32, u32, f64)] = &[
    (8, 8, 1920, 0.165856),
    (8, 32, 512, 0.041657),
    (8, 64, 1920, 0.020201),
    (2, 64, 1920, 0.032030),
    (80, 64, 1920, 0.015650),
    (8, 512, 1920, 0.002561),
];

#[test]
fn hybrids_equal_piper() {
    let work = profile("piper/bert32a100.json");
    for (gib, devices, micro_batches, theirs) in PIPER {
        let on = Hybrid {
            devices: *devices,
            memory: Bytes(gib << 30),
            micro_batches: *micro_batches,
            bytes_per_sec: BANDWIDTH,
        };
        let clock = std::time::Instant::now();
        let ours = hybrid(&work, &on).unwrap();
        let seconds = ours.bottleneck.secs();
        println!(
            "{gib} GiB x {devices}: ours {seconds:.6}, theirs {theirs:.6} s; {} devices, {} stages, {:?} {:?}",
            ours.devices(),
            ours.stages.len(),
            ours.statistics,
            clock.elapsed()
        );
        assert!(ours.devices() <= *devices);
        assert!(seconds < theirs + 0.0000006, "{gib} {devices}");
    }
}
