//! Dropout, clipping, deferred batch normalisation and learning-rate schedules train the same,
//! to the last bit, whatever the split, the schedule and the transport.

mod common;

use common::{few_samples, losses, mpirun_in, result, runner_in, scratch, write};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::{Conv, Graph, GraphBuilder, Op};
use pipewright_core::partition;
use pipewright_core::plan::{
    BatchNorm, Decay, Draft, Model, Plan, Precision, RateSchedule, Training,
};
use pipewright_core::schedule::ScheduleKind;
use serde_json::Value;
use std::path::Path;

const STEPS: u64 = 6;

/// Convolutions with batch normalisation and dropout, and a loss with label smoothing.
fn network(dropout: f32) -> Graph {
    let mut g = GraphBuilder::new("features");
    g.layer("input");
    let mut x = g.input(vec![2, 8, 8]);
    let mut skip = None;
    for block in 0..4 {
        let name = format!("block{block}");
        g.layer(&name);
        let shape = Conv { kernel: 3, stride: 1, padding: 1, bias: false };
        x = g.conv(&format!("{name}.conv"), x, 6, shape);
        let norm = Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 };
        x = g.add(format!("{name}.bn"), norm, &[x]);
        x = g.relu(&format!("{name}.relu"), x);
        x = g.add(format!("{name}.drop"), Op::Dropout { probability: dropout }, &[x]);
        // One value with readers in several stages: its gradient is a sum of what they send.
        let shared = *skip.get_or_insert(x);
        x = g.add(format!("{name}.add"), Op::Add, &[x, shared]);
    }
    g.layer("head");
    let x = g.add("pool", Op::GlobalAvgPool, &[x]);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("fc", x, 10);
    let target = g.add("target", Op::Target { classes: 10 }, &[]);
    g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.1 }, &[x, target]);
    g.finish().expect("a network")
}

/// What is trained.
#[derive(Clone, Copy)]
struct Case {
    optimizer: &'static str,
    training: Training,
    dropout: f32,
}

impl Case {
    fn plan(&self, stages: u32, schedule: ScheduleKind, micro_batches: u32) -> Plan {
        let model = Model::Graph(network(self.dropout));
        let cuts = partition::uniform(&model.graph().expect("a graph"), stages).expect("cuts");
        let mut draft = Draft::new(model, Cluster::preset("laptop").expect("a preset"), cuts);
        draft.data = few_samples();
        draft.schedule = schedule;
        (draft.mini_batch, draft.micro_batches, draft.steps) = (16, micro_batches, STEPS);
        draft.optimizer = self.optimizer.parse().expect("an optimizer");
        draft.training = self.training;
        draft.plan().expect("a plan").0
    }

    /// Losses of all steps, and the loss of the test samples, which shows running statistics.
    fn run(&self, dir: &Path, plan: &Plan, mpi: bool) -> Option<(Vec<String>, Value)> {
        let file = write(dir, "plan.json", plan.to_json());
        let args = [file, "--out", "out", "--overwrite"];
        match mpi {
            true => mpirun_in(dir, plan.ranks(), &args)?.done(),
            false => runner_in(dir, &args).done(),
        };
        let out = dir.join("out");
        Some((losses(&out), result(&out)["test_loss"].clone()))
    }

    /// Every split trains what one stage trains; returns what that is.
    fn check(&self, name: &str, micro_batches: u32) -> (Vec<String>, Value) {
        let dir = scratch(name);
        let alone = self.plan(1, ScheduleKind::GPipe, micro_batches);
        let expected = self.run(&dir, &alone, false).expect("threads");
        assert!(expected.1.is_number(), "a test loss");
        let splits = [
            (2, ScheduleKind::OneFOneB),
            (4, ScheduleKind::GPipe),
            (4, ScheduleKind::OneFOneB),
            (4, ScheduleKind::ZbH1),
        ];
        for (stages, schedule) in splits {
            let plan = self.plan(stages, schedule, micro_batches);
            let found = self.run(&dir, &plan, false).expect("threads");
            assert_eq!(found, expected, "{name}: {stages} stages, {schedule}, threads");
        }
        let plan = self.plan(2, ScheduleKind::OneFOneB, micro_batches);
        if let Some(found) = self.run(&dir, &plan, true) {
            assert_eq!(found, expected, "{name}: 2 stages, mpirun");
        }
        std::fs::remove_dir_all(dir).ok();
        expected
    }
}

const PLAIN: Training = Training {
    rate: RateSchedule { decay: Decay::Constant, warmup: 0, base_batch: None },
    clip_norm: None,
    batch_norm: BatchNorm::PerMicroBatch,
    precision: Precision::F32,
};

#[test]
fn everything_at_once() {
    let training = Training {
        rate: RateSchedule { decay: Decay::Cosine { floor: 0.0 }, warmup: 2, base_batch: Some(8) },
        clip_norm: Some(0.5),
        batch_norm: BatchNorm::Deferred,
        ..PLAIN
    };
    let case = Case { optimizer: "adamw:weight_decay=0.1", training, dropout: 0.3 };
    let mut all = vec![];
    for micro_batches in [1, 4] {
        all.push(case.check("features-all", micro_batches));
    }
    // Each part does something: without it other losses come out.
    let without = [
        ("dropout", Case { dropout: 0.0, ..case }),
        ("the schedule", Case { training: Training { rate: PLAIN.rate, ..training }, ..case }),
        ("clipping", Case { training: Training { clip_norm: None, ..training }, ..case }),
        ("AdamW", Case { optimizer: "adam:weight_decay=0.1", ..case }),
    ];
    let dir = scratch("features-without");
    for (what, other) in without {
        let plan = other.plan(1, ScheduleKind::GPipe, 4);
        let (losses, _) = other.run(&dir, &plan, false).expect("threads");
        assert_ne!(losses, all[1].0, "{what} changes nothing");
    }
    std::fs::remove_dir_all(dir).ok();
}

/// LARS and Nesterov, and statistics of each micro-batch.
#[test]
fn other_optimizers() {
    for optimizer in ["lars:lr=1", "sgd:lr=0.05,nesterov=true,weight_decay=0.001"] {
        Case { optimizer, training: PLAIN, dropout: 0.3 }.check("features-optimizers", 4);
    }
}

/// Half the bytes for what micro-batches keep and send, the same arena as planned, and nearly the
/// same losses.
#[test]
fn bf16_trains_the_same_under_every_split() {
    let training = Training { precision: Precision::Bf16, ..PLAIN };
    let case = Case { optimizer: "sgd:lr=0.05", training, dropout: 0.3 };
    let (rounded, _) = case.check("features-bf16", 4);
    let single = Case { training: PLAIN, ..case };
    let dir = scratch("features-f32");
    let plan = |case: &Case| case.plan(4, ScheduleKind::GPipe, 4);
    let (exact, _) = single.run(&dir, &plan(&single), false).expect("threads");
    assert_ne!(rounded, exact);
    for (rounded, exact) in rounded.iter().zip(&exact) {
        let (rounded, exact): (f64, f64) =
            (rounded.parse().expect("a loss"), exact.parse().expect("a loss"));
        assert!((rounded / exact - 1.0).abs() < 0.01, "{rounded} instead of {exact}");
    }
    let stash = |case: &Case| {
        let prediction = pipewright_core::predict::predict(&plan(case)).expect("a prediction");
        let stages = prediction.programs.iter().flat_map(|p| &p.stages);
        let sent = prediction.timeline.messages.iter().map(|message| message.bytes.0).sum::<u64>();
        (stages.map(|stage| stage.slots.bytes.0).sum::<u64>() as f64, sent as f64)
    };
    let ((slots, sent), (slots_f32, sent_f32)) = (stash(&case), stash(&single));
    assert!(slots < 0.55 * slots_f32, "{slots} of {slots_f32}");
    assert!(sent < 0.51 * sent_f32, "{sent} of {sent_f32}");
    std::fs::remove_dir_all(dir).ok();
}

/// The mini-batch's statistics are those of training without micro-batches, not to the last bit:
/// weights are the same before the first update, so one step shows it.
#[test]
fn deferred_statistics_hardly_depend_on_the_number_of_micro_batches() {
    let dir = scratch("features-deferred");
    let test_loss = |batch_norm, micro_batches| {
        let case = Case {
            optimizer: "sgd:lr=0",
            training: Training { batch_norm, ..PLAIN },
            dropout: 0.0,
        };
        let plan = case.plan(1, ScheduleKind::GPipe, micro_batches);
        case.run(&dir, &plan, false).expect("threads").1.as_f64().expect("a number")
    };
    let whole = test_loss(BatchNorm::PerMicroBatch, 1);
    assert_eq!(test_loss(BatchNorm::Deferred, 1), whole);
    let (deferred, direct) =
        (test_loss(BatchNorm::Deferred, 4), test_loss(BatchNorm::PerMicroBatch, 4));
    // Only the first normalisation sees equal inputs: what follows was normalised by micro-batches.
    let (near, far) = ((deferred - whole).abs(), (direct - whole).abs());
    assert!(near < far / 4.0, "deferred {deferred}, direct {direct}, whole {whole}");
    std::fs::remove_dir_all(dir).ok();
}

/// Metrics say what was done in each step.
#[test]
fn metrics_tell_rate_norm_and_tests() {
    let dir = scratch("features-metrics");
    let training = Training {
        rate: RateSchedule {
            decay: Decay::Step { every: 2, factor: 0.5 },
            warmup: 2,
            ..PLAIN.rate
        },
        clip_norm: Some(0.01),
        ..PLAIN
    };
    let case = Case { optimizer: "sgd:lr=0.1", training, dropout: 0.0 };
    let plan = case.plan(2, ScheduleKind::OneFOneB, 4);
    let file = write(&dir, "plan.json", plan.to_json());
    runner_in(&dir, &[file, "--out", "out", "--eval-every", "3"]).done();
    let text = std::fs::read_to_string(dir.join("out/rank-001.jsonl")).expect("metrics");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let rates: Vec<f64> =
        lines.iter().map(|l| l["learning_rate"].as_f64().expect("a rate")).collect();
    assert_eq!(rates, [0.05, 0.1, 0.1, 0.1, 0.05, 0.05]);
    for (step, line) in lines.iter().enumerate() {
        assert!(line["gradient_norm"].as_f64().expect("a norm") > 0.01, "{line}");
        assert_eq!(line.get("test_loss").is_some(), step % 3 == 2, "{line}");
        assert_eq!(line.get("test_accuracy").is_some(), step % 3 == 2, "{line}");
    }
    assert_eq!(result(&dir.join("out"))["test_loss"], lines[5]["test_loss"]);
    std::fs::remove_dir_all(dir).ok();
}
