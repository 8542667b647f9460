//! Dropout, clipping, deferred batch normalisation and learning-rate schedules train the same,
//! to the last bit, whatever the split, the schedule and the transport.

use crate::common::bits::{Trained, order_of_sums};
use crate::common::{draft_of, result, runner_in, scratch, write};
use pipewright_core::graph::{Conv, Graph, GraphBuilder, Op};
use pipewright_core::plan::{BatchNorm, Decay, Plan, Precision, RateSchedule, Training};
use pipewright_core::schedule::{ScheduleKind, Updates};
use serde_json::Value;
use std::path::Path;

const STEPS: u64 = 6;

/// Deeper pipelines are left out: the network has only twice as many nodes.
const STAGES_MAX: u32 = 16;

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
struct FeatureCase {
    optimizer: &'static str,
    training: Training,
    dropout: f32,
}

impl FeatureCase {
    fn plan(&self, stages: u32, schedule: ScheduleKind, micro_batches: u32) -> Plan {
        let mut draft = draft_of(network(self.dropout), stages);
        draft.schedule = schedule;
        (draft.mini_batch, draft.micro_batches, draft.steps) = (16, micro_batches, STEPS);
        draft.optimizer = self.optimizer.parse().expect("an optimizer");
        draft.training = self.training;
        draft.plan().expect("a plan").0
    }

    /// What is trained, and the loss of the test samples, which shows running statistics.
    fn run(&self, dir: &Path, plan: &Plan) -> (Trained, Value) {
        let trained = Trained::over_threads(dir, plan);
        (trained, result(&dir.join("trained"))["test_loss"].clone())
    }

    /// Every split and every schedule that adds gradients in the order of micro-batches trains what
    /// one stage trains; returns what that is.
    fn check(&self, name: &str, micro_batches: u32) -> (Trained, Value) {
        let dir = scratch(name);
        let expected = self.run(&dir, &self.plan(1, ScheduleKind::GPipe, micro_batches));
        assert!(expected.1.is_number(), "a test loss");
        let forth: Vec<u32> = (0..micro_batches).collect();
        let mut tried = 0;
        for (kind, lanes) in ScheduleKind::ALL.into_iter().flat_map(|kind| [(kind, 2), (kind, 4)]) {
            let stages = kind.placement().stages(lanes);
            let Ok(schedule) = kind.generate(stages, micro_batches) else { continue };
            let in_order = order_of_sums(&schedule).is_some_and(|order| order == forth);
            if kind.updates() != Updates::Synchronous || !in_order || stages > STAGES_MAX {
                continue;
            }
            let plan = self.plan(stages, kind, micro_batches);
            let (found, test_loss) = self.run(&dir, &plan);
            let what = format!("{name}: {kind} on {lanes} lanes");
            found.is(&what, &expected.0);
            assert_eq!(test_loss, expected.1, "{what}");
            if lanes == 2
                && let Some(found) = Trained::over_mpi(&dir, &plan)
            {
                found.is(&format!("{what}, mpirun"), &expected.0);
            }
            tried += 1;
        }
        assert!(tried >= 10, "{tried}");
        std::fs::remove_dir_all(dir).ok();
        expected
    }
}

const PLAIN: Training = Training {
    rate: RateSchedule { decay: Decay::Constant, warmup: 0, base_batch: None },
    clip_norm: None,
    batch_norm: BatchNorm::PerMicroBatch,
    precision: Precision::F32,
    skip_nonfinite: None,
};

#[test]
fn everything_at_once() {
    let training = Training {
        rate: RateSchedule { decay: Decay::Cosine { floor: 0.0 }, warmup: 2, base_batch: Some(8) },
        clip_norm: Some(0.5),
        batch_norm: BatchNorm::Deferred,
        ..PLAIN
    };
    let case = FeatureCase { optimizer: "adamw:weight_decay=0.1", training, dropout: 0.3 };
    let mut all = vec![];
    for micro_batches in [1, 4] {
        all.push(case.check("features-all", micro_batches));
    }
    // Each part does something: without it other losses come out.
    let without = [
        ("dropout", FeatureCase { dropout: 0.0, ..case }),
        (
            "the schedule",
            FeatureCase { training: Training { rate: PLAIN.rate, ..training }, ..case },
        ),
        ("clipping", FeatureCase { training: Training { clip_norm: None, ..training }, ..case }),
        ("AdamW", FeatureCase { optimizer: "adam:weight_decay=0.1", ..case }),
    ];
    let dir = scratch("features-without");
    for (what, other) in without {
        let plan = other.plan(1, ScheduleKind::GPipe, 4);
        let (trained, _) = other.run(&dir, &plan);
        assert_ne!(trained.losses, all[1].0.losses, "{what} changes nothing");
    }
    std::fs::remove_dir_all(dir).ok();
}

/// LARS and Nesterov, and statistics of each micro-batch.
#[test]
fn other_optimizers() {
    for optimizer in ["lars:lr=1", "sgd:lr=0.05,nesterov=true,weight_decay=0.001"] {
        FeatureCase { optimizer, training: PLAIN, dropout: 0.3 }.check("features-optimizers", 4);
    }
}

/// On processors, and in memory, tf32 is f32.
#[test]
fn tf32_is_for_gpus() {
    let dir = scratch("features-tf32");
    let run = |precision: Precision| {
        let training = Training { precision, ..PLAIN };
        let case = FeatureCase { optimizer: "sgd:lr=0.05", training, dropout: 0.3 };
        let plan = case.plan(2, ScheduleKind::GPipe, 4);
        let arena = pipewright_core::predict::predict(&plan).unwrap().programs[0].arena;
        (case.run(&dir, &plan).0.losses, arena)
    };
    assert_eq!(run(Precision::Tf32), run(Precision::F32));
    std::fs::remove_dir_all(dir).ok();
}

/// Half the bytes for what micro-batches keep and send, the same arena as planned, and nearly the
/// same losses.
#[test]
fn bf16_trains_the_same_under_every_split() {
    trains_in_half(Precision::Bf16, "bf16", 0.01);
}

#[test]
fn f16_trains_the_same_under_every_split() {
    trains_in_half(Precision::F16, "f16", 0.01);
}

fn trains_in_half(precision: Precision, name: &str, near: f64) {
    let training = Training { precision, ..PLAIN };
    let case = FeatureCase { optimizer: "sgd:lr=0.05", training, dropout: 0.3 };
    let (rounded, _) = case.check(&format!("features-{name}"), 4);
    let single = FeatureCase { training: PLAIN, ..case };
    let dir = scratch(&format!("features-{name}-f32"));
    let plan = |case: &FeatureCase| case.plan(4, ScheduleKind::GPipe, 4);
    let (exact, _) = single.run(&dir, &plan(&single));
    assert_ne!(rounded.losses, exact.losses);
    rounded.is_near(name, &exact, near);
    let stash = |case: &FeatureCase| {
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
        let case = FeatureCase {
            optimizer: "sgd:lr=0",
            training: Training { batch_norm, ..PLAIN },
            dropout: 0.0,
        };
        let plan = case.plan(1, ScheduleKind::GPipe, micro_batches);
        case.run(&dir, &plan).1.as_f64().expect("a number")
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
    let case = FeatureCase { optimizer: "sgd:lr=0.1", training, dropout: 0.0 };
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
