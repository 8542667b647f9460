//! Published answers, ours beside theirs. Equal or better everywhere.

use crate::profiles::{operators, pipedream};
use pipewright_core::partition::{Footprint, Pipeline, Worker, exact};

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
        let Some(work) = pipedream(name) else { continue };
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
        let Some(work) = operators(name) else { continue };
        let device = Worker { memory: work.memory, ..Worker::default() };
        let mut workers = vec![device; work.devices.unwrap() as usize];
        workers.push(Worker { host: true, ..Worker::default() });
        let line = Pipeline {
            workers,
            any_order: true,
            link: work.link.clone(),
            gradients: false,
            footprint: Footprint { parameter_copies: 1, micro_batches: 1 },
            limit: 100_000,
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
