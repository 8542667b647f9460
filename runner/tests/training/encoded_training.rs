//! Training with encoded gradients: what is trained, what checkpoints keep of what codecs lost, and
//! what the choice of the codec leaves behind.

use crate::common::bits::Trained;
use crate::common::{losses, mpirun_in, result, runner_in, scratch, tensors, write};
use pipewright_core::adapt::Round;
use pipewright_core::compress::{Algorithm, CodecKind, Reduction, Rounding, Scale};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Choose, Communication, DataParallel, Optimizer, Plan};
use pipewright_core::predict::predict;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use pipewright_runner::checkpoint::{Identity, Resume, SplitRecord, load};
use pipewright_runner::data::open;
use pipewright_runner::execute::{Rank, residual_param};
use pipewright_runner::transport::local::local;
use std::collections::BTreeMap;
use std::path::Path;

const ONE_BIT: CodecKind =
    CodecKind::OneBit { threshold: pipewright_core::compress::Threshold::Zero };
const FP8: CodecKind =
    CodecKind::Fp8E5m2 { rounding: Rounding::NearestEven, scale: Scale::PowerOfTwo };

/// Digits on `stages` stages of `replicas` replicas, two to a host.
fn plan(stages: u32, replicas: u32, communication: Communication) -> Plan {
    let mut draft = crate::common::draft(Preset::DigitsCnn, stages);
    draft.data = crate::common::digits();
    draft.schedule = ScheduleKind::OneFOneB;
    draft.data_parallel = DataParallel { bucket: Bytes(100 << 10), ..DataParallel::ddp(replicas) };
    (draft.cluster.ranks_per_node, draft.cluster.nodes) = (2, 8);
    draft.optimizer =
        Optimizer::Sgd { learning_rate: 0.02, momentum: 0.9, weight_decay: 0.0, nesterov: false };
    (draft.mini_batch, draft.micro_batches, draft.steps) = (48, 2, 8);
    draft.communication = communication;
    draft.plan().unwrap().0
}

fn by(reduction: Reduction) -> Communication {
    Communication { gradients: reduction, ..Communication::default() }
}

#[test]
fn threads_and_processes_train_the_same_bits() {
    let dir = scratch("encoded");
    let operator = Reduction { algorithm: Algorithm::Operator, ..Reduction::of(FP8) };
    let cases = [
        ("fp8", 1, 4, by(Reduction::of(FP8))),
        ("one-bit", 1, 3, by(Reduction::of(ONE_BIT).with_feedback())),
        ("hybrid", 2, 2, by(Reduction::of(CodecKind::TableMean { bits: 2 }).with_feedback())),
        ("operator", 1, 2, by(operator)),
    ];
    for (name, stages, replicas, communication) in cases {
        let plan = plan(stages, replicas, communication);
        let folder = dir.join(name);
        std::fs::create_dir(&folder).unwrap();
        let threads = Trained::over_threads(&folder, &plan);
        let planned: Vec<u64> = plan.prediction.arena.iter().map(|bytes| bytes.0).collect();
        let planned =
            planned.iter().flat_map(|bytes| std::iter::repeat_n(*bytes, replicas as usize));
        let arenas = result(&folder.join("trained"))["arena"].clone();
        let arenas: Vec<u64> = serde_json::from_value(arenas).unwrap();
        assert_eq!(arenas, planned.collect::<Vec<_>>(), "{name}: memory is planned");
        let plain =
            Trained::over_threads(&folder, &self::plan(stages, replicas, by(Reduction::default())));
        assert!(threads.losses != plain.losses, "{name} changes something");
        let Some(processes) = Trained::over_mpi(&folder, &plan) else { return };
        assert_eq!(processes.losses, threads.losses, "{name}");
        assert!(processes.tensors == threads.tensors, "{name}: tensors differ");
    }
}

#[test]
fn sums_inside_of_a_host_travel_whole() {
    let dir = scratch("encoded-hosts");
    // All ranks of the test are on one host: nothing is encoded.
    let hierarchical = Communication { hierarchical: true, ..by(Reduction::of(ONE_BIT)) };
    let run = |name: &str, communication| {
        write(&dir, "plan.json", plan(1, 2, communication).to_json());
        runner_in(&dir, &["plan.json", "--out", name]).done();
        losses(&dir.join(name))
    };
    assert_eq!(run("one-host", hierarchical), run("plain", Communication::default()));
}

#[test]
fn what_was_lost_survives_a_restart() {
    let dir = scratch("encoded-restart");
    let plan = plan(1, 3, by(Reduction::of(ONE_BIT).with_feedback()));
    write(&dir, "plan.json", plan.to_json());
    let run = |out: &str, more: &[&str]| {
        let args = [&["plan.json", "--out", out, "--save-every", "0"][..], more].concat();
        runner_in(&dir, &args).done();
        dir.join(out)
    };
    let whole = run("whole", &[]);
    run("cut", &["--steps", "4"]);
    let cut = run("cut", &["--resume"]);
    assert_eq!(losses(&cut), losses(&whole));
    let [expected, found] = [whole, cut].map(|out| tensors(&out.join("checkpoints/step-8")));
    let carried = expected.keys().filter(|name| residual_param(name).is_some()).count();
    assert!(carried >= 3 * 10, "{carried} tensors of what three ranks lost");
    assert!(found == expected);
}

/// What all ranks together owe each parameter after loading the checkpoint of `folder`.
fn owed(plan: &Plan, folder: &Path) -> BTreeMap<String, Vec<f64>> {
    let prediction = predict(plan).unwrap();
    let sample = prediction.graph.sample().unwrap();
    let data = open(&plan.data, &sample, plan.seed).unwrap();
    let resume = Resume::find(folder.to_str().unwrap(), None).unwrap();
    let identity = Identity::new(plan, &prediction.graph, data.train.len());
    let split = SplitRecord::new(plan);
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let (handles, context) = (64, (&prediction, &data, &resume, &identity, &split));
    std::thread::scope(|scope| {
        let ranks = local(plan.ranks(), handles).into_iter().map(|transport| {
            scope.spawn(move || {
                let (prediction, data, resume, identity, split) = context;
                let parts = (plan, &prediction.graph, &prediction.programs[0]);
                let mut rank = Rank::new(parts, data, transport, 1);
                rank.connect(&prediction.groups).unwrap();
                load(&mut rank, resume, (identity, split)).unwrap().unwrap().unwrap();
                let gradients = rank.next_gradients();
                let carried = rank.carried().into_iter().map(|t| (t.param, t.values));
                carried.chain(gradients).collect::<Vec<_>>()
            })
        });
        for rank in ranks.collect::<Vec<_>>() {
            for (param, values) in rank.join().unwrap() {
                let sum = all.entry(param).or_insert_with(|| vec![0.0; values.len()]);
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value));
            }
        }
    });
    all
}

#[test]
fn another_number_of_replicas_owes_as_much() {
    let dir = scratch("encoded-replicas");
    let feedback = Reduction::of(ONE_BIT).with_feedback();
    let four = plan(1, 4, by(feedback));
    write(&dir, "plan.json", four.to_json());
    runner_in(&dir, &["plan.json", "--out", "four", "--save-every", "0"]).done();
    let folder = dir.join("four/checkpoints/step-8");
    let expected = owed(&four, &folder);
    let size = |tensor: &Vec<f64>| tensor.iter().map(|v| v * v).sum::<f64>().sqrt();
    assert!(expected.values().map(size).sum::<f64>() > 0.01, "something was lost");
    for (replicas, reduction) in
        [(2, feedback), (8, feedback), (1, feedback), (2, Reduction::default())]
    {
        let other = plan(1, replicas, by(reduction));
        let found = owed(&other, &folder);
        for (param, expected) in &expected {
            let found = &found[param];
            let largest = expected.iter().fold(0.0f64, |most, v| most.max(v.abs()));
            for (found, expected) in found.iter().zip(expected) {
                let off = (found - expected).abs();
                assert!(
                    off <= 1e-6 * largest.max(1e-3),
                    "{replicas}: {param}: {found}, {expected}"
                );
            }
        }
    }
}

#[test]
fn choices_are_recorded_and_can_be_replayed() {
    let dir = scratch("encoded-choice");
    let candidates = vec![Reduction::default(), Reduction::of(FP8), Reduction::of(ONE_BIT)];
    let choose = Choose { every: 20, trial: 10, candidates };
    let mut plan = plan(1, 2, Communication { choose: Some(choose), ..Communication::default() });
    plan.steps = 50;
    write(&dir, "plan.json", plan.to_json());
    let check = |out: &str| {
        let text = std::fs::read_to_string(dir.join(out).join("choices.jsonl")).unwrap();
        let choices: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let steps: Vec<u64> = choices.iter().map(|c| c["step"].as_u64().unwrap()).collect();
        assert_eq!(steps, [0, 20, 40]);
        for choice in &choices {
            let chosen = &choice["chosen"];
            let round: Round = serde_json::from_value(chosen["round"].clone()).unwrap();
            let trials: Vec<&str> = round.trials.iter().map(|trial| &trial.name[..]).collect();
            assert_eq!(trials, ["fp32", "fp8-e5m2", "one-bit"]);
            let again = serde_json::to_value(round.decide().unwrap()).unwrap();
            assert_eq!(again, *chosen, "a record explains itself");
            assert!(choice["spent_ns"].as_u64().unwrap() > 0);
        }
        let text = std::fs::read_to_string(dir.join(out).join("rank-000.jsonl")).unwrap();
        let record = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let records: Vec<_> = text.lines().map(record).collect();
        for (step, record) in records.iter().enumerate() {
            assert_eq!(record["step"].as_u64(), Some(step as u64), "every step once, in order");
            let chosen = &choices[step / 20]["chosen"];
            let winner = chosen["decision"]["winner"].as_u64().unwrap() as usize;
            assert_eq!(record["way"], chosen["admitted"][winner], "step {step}");
        }
        // A sum of some 60,000 values in one bit and in eight, half of them sent twice.
        let sent = |r: &serde_json::Value| r["encoded_bytes"].as_u64().unwrap_or(0);
        let fp32 = records.iter().filter(|r| r["way"].as_u64() == Some(0));
        assert!(fp32.map(sent).all(|bytes| bytes == 0));
        assert_eq!(losses(&dir.join(out)).len(), 50);
    };
    runner_in(&dir, &["plan.json", "--out", "threads", "--save-every", "25"]).done();
    check("threads");
    // Trials side by side: with more crews than ways, and fewer.
    for crews in ["2", "4"] {
        let args = ["plan.json", "--out", "crews", "--overwrite", "--crews", crews];
        runner_in(&dir, &args).done();
        check("crews");
    }
    // In the middle of a period, and before a round.
    for step in ["30", "40"] {
        let from = ["--steps", step, "--overwrite", "--save-every", "0"];
        runner_in(&dir, &[&["plan.json", "--out", "cut"][..], &from].concat()).done();
        runner_in(&dir, &["plan.json", "--out", "cut", "--resume", "--save-every", "0"]).done();
        check("cut");
    }
    if let Some(ended) = mpirun_in(&dir, 2, &["plan.json", "--out", "mpi"]) {
        ended.done();
        check("mpi");
        mpirun_in(&dir, 4, &["plan.json", "--out", "mpi-crews"]).unwrap().done();
        check("mpi-crews");
        mpirun_in(&dir, 3, &["plan.json"]).unwrap().refused(4, "2 ranks, mpirun gave 3");
    }
}
