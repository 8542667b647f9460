//! Replicas that divide what the optimizer keeps (ZeRO-1) have the bits of replicas that all keep everything, whatever
//! the optimizer, the schedule and the codec; their checkpoints are those of any division.
//!
//! Over processes MPI chooses the order in which more than two ranks' gradients are added, for whole sums and
//! for parts: there losses are compared within [`TOLERANCE`].

use crate::common::{draft, losses, mpirun_in, result, runner_in, scratch, tensors, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{BatchNorm, DataParallel, Draft, Plan, Precision};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use std::path::Path;

/// Largest relative difference of a loss where sums come in another order.
pub const TOLERANCE: f64 = 1e-5;

pub const STEPS: u64 = 6;

/// GPT-2's blocks with tied embeddings.
pub const GPT: &str = "transformer:layers=4,hidden=64,heads=8,sequence=16,vocabulary=97,tied";

/// Layers whose parameters are no whole number of cache lines.
pub fn base(stages: u32, replicas: u32, schedule: ScheduleKind) -> Draft {
    let mut draft = draft(Preset::Fc32 { width: 33 }, stages);
    (draft.schedule, draft.mini_batch, draft.micro_batches) = (schedule, 32, 4);
    (draft.steps, draft.data_parallel) = (STEPS, DataParallel::ddp(replicas));
    draft
}

/// The same where replicas divide what the optimizer keeps.
fn zero(draft: &Draft) -> Draft {
    let mut draft = draft.clone();
    draft.data_parallel.zero = 1;
    draft
}

pub fn file(dir: &Path, name: &str, draft: Draft) -> (String, Plan) {
    let (plan, file) = (draft.plan().unwrap().0, format!("{name}.json"));
    write(dir, &file, plan.to_json());
    (file, plan)
}

/// Losses of all steps, and every tensor that the last checkpoint has.
pub fn run(dir: &Path, name: &str, draft: Draft) -> (Vec<String>, impl PartialEq + use<>) {
    let (file, plan) = file(dir, name, draft);
    runner_in(dir, &[&file, "--out", name, "--save-every", "100"]).done();
    arenas_are_planned(&dir.join(name), &plan);
    (losses(&dir.join(name)), last(&dir.join(name)))
}

fn last(out: &Path) -> std::collections::BTreeMap<String, Vec<u32>> {
    tensors(&out.join(format!("checkpoints/step-{STEPS}")))
}

fn arenas_are_planned(out: &Path, plan: &Plan) {
    let arenas: Vec<u64> = (0..plan.ranks())
        .map(|rank| plan.prediction.arena[plan.mesh().lane(rank).index()].0)
        .collect();
    assert_eq!(result(out)["arena"], serde_json::json!(arenas));
}

/// Losses and everything that lasts are the same, to the bit; memory is less where something is kept.
fn the_same(dir: &Path, name: &str, draft: &Draft) {
    let (whole, divided) = (draft.clone().plan().unwrap().0, zero(draft).plan().unwrap().0);
    let pairs = whole.prediction.arena.iter().zip(&divided.prediction.arena);
    let keeps = draft.optimizer.state_tensors() > 0;
    assert!(pairs.clone().all(|(whole, divided)| (divided < whole) == keeps), "{name}: {pairs:?}");
    let expected = run(dir, &format!("{name}-whole"), draft.clone());
    let found = run(dir, &format!("{name}-zero"), zero(draft));
    assert_eq!(found.0, expected.0, "{name}: losses");
    assert!(found.1 == expected.1, "{name}: a checkpoint of other bits");
}

#[test]
fn optimizers_and_divisions_have_the_bits_of_whole_replicas() {
    let dir = scratch("zero-optimizers");
    let adamw = "adamw:lr=0.003,weight_decay=0.1";
    for (name, optimizer, replicas, bucket) in [
        ("momentum", "sgd:lr=0.05,weight_decay=0.01", 2, 25 << 20),
        ("nesterov", "sgd:lr=0.05,nesterov=true", 4, 5000),
        ("nothing", "sgd:lr=0.05,momentum=0", 2, 5000),
        ("adam", "adam:lr=0.003,weight_decay=0.1", 4, 1),
        ("adamw", adamw, 2, 9000),
        ("adamw-4", adamw, 4, 25 << 20),
        ("adamw-8", adamw, 8, 1),
    ] {
        let mut draft = base(1, replicas, ScheduleKind::OneFOneB);
        draft.optimizer = optimizer.parse().unwrap();
        draft.data_parallel.bucket = Bytes(bucket);
        draft.training.rate.warmup = 3;
        the_same(&dir, name, &draft);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Split backward passes, several stages a lane, two lanes that hold a stage, updates under way.
#[test]
fn schedules_have_the_bits_of_whole_replicas() {
    let dir = scratch("zero-schedules");
    for (kind, stages, replicas) in [
        (ScheduleKind::OneFOneB, 2, 4),
        (ScheduleKind::ZbH1, 2, 2),
        (ScheduleKind::Interleaved { chunks: 2 }, 4, 2),
        (ScheduleKind::ZbV, 4, 2),
        (ScheduleKind::Chimera, 2, 2),
        (ScheduleKind::Chimera, 4, 1),
        (ScheduleKind::PipeDream, 2, 2),
        (ScheduleKind::PipeDream2Bw, 2, 2),
    ] {
        let mut draft = base(stages, replicas, kind);
        draft.optimizer = "adamw:lr=0.003".parse().unwrap();
        draft.data_parallel.bucket = Bytes(6000);
        the_same(&dir, &format!("{kind}-{stages}").replace(':', "-"), &draft);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Norms of parts are added in another order, in double precision; steps that are skipped change nothing.
#[test]
fn training_features_go_with_divided_updates() {
    let dir = scratch("zero-features");
    let mut draft = base(2, 2, ScheduleKind::OneFOneB);
    draft.optimizer = "adamw:lr=0.003".parse().unwrap();
    draft.training.clip_norm = Some(0.05);
    draft.training.skip_nonfinite = Some(3);
    the_same(&dir, "clipped", &draft);
    let norms = |name: &str| -> Vec<f64> {
        let text = std::fs::read_to_string(dir.join(name).join("rank-000.jsonl")).unwrap();
        let norm = |line: &str| -> f64 {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["gradient_norm"].as_f64().unwrap()
        };
        text.lines().map(norm).collect()
    };
    let norms = [norms("clipped-zero"), norms("clipped-whole")];
    assert!(norms[1].iter().all(|norm| *norm > 0.05), "something is clipped: {norms:?}");
    for (found, expected) in norms[0].iter().zip(&norms[1]) {
        assert!((found / expected - 1.0).abs() < 1e-12, "{norms:?}");
    }
    draft.training.precision = Precision::F16;
    the_same(&dir, "f16", &draft);
    let mut draft = crate::common::draft("resnet18:32".parse().unwrap(), 2);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, 2);
    draft.data_parallel = DataParallel::ddp(2);
    draft.training.batch_norm = BatchNorm::Deferred;
    let texts = |name: &str, draft: Draft| {
        let (file, _) = file(&dir, name, draft);
        runner_in(&dir, &[&file, "--out", name]).done();
        losses(&dir.join(name))
    };
    assert_eq!(texts("norms-zero", zero(&draft)), texts("norms-whole", draft));
    std::fs::remove_dir_all(dir).ok();
}

/// What is encoded is summed whole, and the parameters are gathered as they are.
#[test]
fn encoded_gradients_have_the_bits_of_whole_replicas() {
    let dir = scratch("zero-codecs");
    for (name, reduction, hierarchical) in [("int8", "int8", false), ("bf16", "bf16", true)] {
        let mut draft = base(2, 2, ScheduleKind::OneFOneB);
        draft.optimizer = "adamw:lr=0.003".parse().unwrap();
        draft.communication.gradients = reduction.parse().unwrap();
        draft.communication.hierarchical = hierarchical;
        the_same(&dir, name, &draft);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Each tensor rank divides with its twins; tables that several stages share stay whole.
#[test]
fn tensor_groups_have_the_bits_of_whole_replicas() {
    let dir = scratch("zero-tensor");
    for (name, tensor, stages, replicas) in [("t2p2d2", 2, 2, 2), ("t2d4", 2, 1, 4)] {
        let mut draft = draft(GPT.parse().unwrap(), stages);
        (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 2, STEPS);
        (draft.tensor, draft.data_parallel) = (tensor, DataParallel::ddp(replicas));
        draft.optimizer = "adamw:lr=0.003".parse().unwrap();
        draft.training.clip_norm = Some(1.0);
        the_same(&dir, name, &draft);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Two processes have the bits of threads; more of them those that MPI's order of additions gives.
#[test]
fn processes_train_what_threads_train() {
    let dir = scratch("zero-mpi");
    for (name, stages, replicas, kind) in [
        ("d2", 1, 2, ScheduleKind::OneFOneB),
        ("p2d2", 2, 2, ScheduleKind::ZbH1),
        ("v2d2", 4, 2, ScheduleKind::Interleaved { chunks: 2 }),
        ("d4", 1, 4, ScheduleKind::OneFOneB),
        ("chimera", 2, 2, ScheduleKind::Chimera),
    ] {
        let mut draft = base(stages, replicas, kind);
        draft.optimizer = "adamw:lr=0.003".parse().unwrap();
        draft.data_parallel.bucket = Bytes(6000);
        let (_, plan) = file(&dir, &format!("{name}-whole"), draft.clone());
        file(&dir, &format!("{name}-zero"), zero(&draft));
        let of = |end: &str, threads: bool| -> Option<Vec<String>> {
            let (file, out) = (format!("{name}-{end}.json"), format!("{name}-{end}-{threads}"));
            let args = [file.as_str(), "--out", &out];
            match threads {
                true => runner_in(&dir, &args).done(),
                false => mpirun_in(&dir, plan.ranks(), &args)?.done(),
            };
            Some(losses(&dir.join(out)))
        };
        let threads = of("zero", true).unwrap();
        let (Some(found), Some(whole)) = (of("zero", false), of("whole", false)) else { return };
        if plan.data_parallel.replicas == 2 && kind != ScheduleKind::Chimera {
            assert_eq!(found, threads, "{name}");
            assert_eq!(found, whole, "{name}");
        }
        for (found, expected) in found.iter().zip(threads).chain(found.iter().zip(whole)) {
            let [found, expected] = [found, &expected].map(|text| text.parse::<f64>().unwrap());
            assert!((found / expected - 1.0).abs() < TOLERANCE, "{name}: {found}, {expected}");
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// What one division saves every other one goes on from, as from the checkpoint of whole replicas.
#[test]
fn checkpoints_are_of_whole_parameters_and_moments() {
    let dir = scratch("zero-checkpoints");
    let sized = |stages, replicas| {
        let mut draft = base(stages, replicas, ScheduleKind::OneFOneB);
        draft.optimizer = "adamw:lr=0.003".parse().unwrap();
        draft.data_parallel.bucket = Bytes(6000);
        draft
    };
    let resumed = |from: &Draft, then: Draft| {
        let ((first, _), (second, _)) =
            (file(&dir, "first", from.clone()), file(&dir, "then", then));
        runner_in(
            &dir,
            &[&first, "--steps", "3", "--save-every", "100", "--out", "run", "--overwrite"],
        )
        .done();
        runner_in(&dir, &[&second, "--out", "run", "--resume", "latest", "--save-every", "100"])
            .done();
        (losses(&dir.join("run")), last(&dir.join("run")))
    };
    let from = sized(1, 4);
    for then in [sized(1, 1), sized(2, 2), sized(1, 4), sized(4, 1)] {
        let expected = resumed(&from, then.clone());
        for (from, then) in
            [(zero(&from), then.clone()), (from.clone(), zero(&then)), (zero(&from), zero(&then))]
        {
            let found = resumed(&from, then);
            assert_eq!(found.0, expected.0);
            assert!(found.1 == expected.1, "a checkpoint of other bits");
        }
    }
    // Processes save and go on, and look at each other's parameters.
    let whole = resumed(&from, sized(1, 4));
    let (four, _) = file(&dir, "four", zero(&from));
    let args = ["--save-every", "100", "--check-replicas", "2", "--out", "mpi"];
    let steps = [&[four.as_str(), "--steps", "3"][..], &args].concat();
    if let Some(ended) = mpirun_in(&dir, 4, &steps) {
        ended.done();
        runner_in(&dir, &[&four, "--save-every", "100", "--out", "mpi", "--resume", "latest"])
            .done();
        for (found, expected) in losses(&dir.join("mpi")).iter().zip(whole.0) {
            let [found, expected] = [found, &expected].map(|text| text.parse::<f64>().unwrap());
            assert!((found / expected - 1.0).abs() < TOLERANCE, "{found}, {expected}");
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// A search takes it where nothing else fits, and divides gradients where that is not enough: 34 MB of parameters, and four
/// times as much with all that AdamW keeps.
#[test]
fn a_search_divides_where_nothing_fits_otherwise() {
    let dir = scratch("zero-searched");
    let planned = |memory: &str| {
        let args = ["plan", "--model", "fc32:512", "--cluster", "laptop", "--mini-batch", "64"];
        let more = ["--stages", "1", "--replicas", "4", "--optimizer", "adamw", "--memory", memory];
        let ended = runner_in(&dir, &[&args[..], &more, &["-o", "plan.json"]].concat());
        if ended.code != Some(0) {
            ended.refused(4, "");
            return None;
        }
        let text = std::fs::read_to_string(dir.join("plan.json")).unwrap();
        Some(Plan::from_json(&text).unwrap().data_parallel.zero)
    };
    assert_eq!(planned("200MB"), Some(0));
    assert_eq!(planned("110MB"), Some(1));
    assert_eq!(planned("80MB"), Some(2));
    assert_eq!(planned("60MB"), None);
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn a_plan_that_divides_is_made_by_the_command_line_and_refuses_what_it_cannot_do() {
    let dir = scratch("zero-planned");
    let args = ["plan", "--model", "fc32:32", "--cluster", "laptop", "--mini-batch", "16"];
    let whole = ["--stages", "2", "--schedule", "1f1b", "--micro-batches", "2", "--replicas", "2"];
    let rest = ["--steps", "2", "--optimizer", "adamw", "-o", "plan.json", "--zero", "1"];
    let all = [&args[..], &whole, &rest].concat();
    runner_in(&dir, &all).done();
    let text = std::fs::read_to_string(dir.join("plan.json")).unwrap();
    assert_eq!(Plan::from_json(&text).unwrap().data_parallel.zero, 1);
    let shown = runner_in(&dir, &["show", "plan.json"]);
    assert!(shown.done().stdout.contains("zero 1: a rank keeps "), "{shown:?}");
    runner_in(&dir, &["plan.json", "--out", "run"]).done();
    let refused = |args: &[&str], words: &str| {
        runner_in(&dir, args).refused(2, words);
    };
    let planned = |optimizer: &str, rest: &[&str], words: &str| {
        let more = ["--zero", "1", "--optimizer", optimizer, "-o", "other.json", "--replicas", "2"];
        let shape = ["--stages", "1", "--schedule", "1f1b", "--micro-batches", "2"];
        refused(&[&args[..], &shape, &more, rest].concat(), words);
    };
    planned(
        "lars",
        &[],
        "do not go together with `lars`, whose rates follow from whole parameters",
    );
    planned("sgd", &["--data-parallel", "dp"], "do not go together with data-parallel mode `dp`");
    refused(&[&args[..], &["--zero", "3"]].concat(), "invalid value '3' for '--zero <STAGE>'");
    write(&dir, "three.json", text.replace("\"zero\": 1", "\"zero\": 3"));
    runner_in(&dir, &["check", "three.json"])
        .refused(3, "data_parallel.zero is 3, must be 0, 1 or 2");
    std::fs::remove_dir_all(dir).ok();
}
