//! Values between stages in fewer bytes: what training loses by it, and what the metrics say.

use crate::common::{losses, mpirun_in, runner_in, scratch, tensors, write};
use pipewright_core::compress::{CodecKind, Reduction, Scale};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Edges, Instruction, Optimizer, Plan, PlanError, Precision};
use pipewright_core::predict::PredictError;
use pipewright_core::schedule::ScheduleKind;
use std::path::Path;

const BLOCKS: CodecKind = CodecKind::Fp8E4m3 { scale: Scale::Block(128) };

/// Four stages on two nodes: every other edge lies between nodes.
fn base(schedule: ScheduleKind) -> Draft {
    let mut draft = crate::common::draft(Preset::DigitsCnn, 4);
    draft.data = crate::common::digits();
    draft.schedule = schedule;
    draft.cluster.ranks_per_node = 2;
    draft.cluster.nodes = 2;
    draft.optimizer =
        Optimizer::Sgd { learning_rate: 0.05, momentum: 0.9, weight_decay: 0.0, nesterov: false };
    (draft.mini_batch, draft.micro_batches, draft.steps) = (64, 4, 40);
    draft
}

fn plan(schedule: ScheduleKind, within: CodecKind, across: CodecKind) -> Plan {
    let mut draft = base(schedule);
    draft.communication.edges = Edges { within, across };
    draft.plan().unwrap().0
}

/// Last loss, and the largest edge error of the steps.
fn train(dir: &Path, name: &str, plan: &Plan) -> (f64, Option<f64>) {
    let file = format!("{name}.json");
    write(dir, &file, plan.to_json());
    runner_in(dir, &[&file, "--out", name]).done();
    let text = std::fs::read_to_string(dir.join(name).join("rank-000.jsonl")).unwrap();
    let record = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let errors = text.lines().filter_map(|line| record(line)["edge_error"].as_f64());
    let losses = losses(&dir.join(name));
    (losses.last().unwrap().parse().unwrap(), errors.reduce(f64::max))
}

/// Bytes of all messages of a step.
fn message_bytes(plan: &Plan) -> u64 {
    let programs = pipewright_core::predict::predict(plan).unwrap().programs;
    let sent = programs.iter().flat_map(|program| &program.train).filter_map(|i| match i {
        Instruction::Send { region, .. } => Some(region.bytes.0),
        _ => None,
    });
    sent.sum()
}

#[test]
fn fewer_bytes_lose_little_and_the_metrics_say_how_much() {
    let dir = scratch("edge-codecs");
    let fp32 = CodecKind::Fp32;
    let whole = plan(ScheduleKind::OneFOneB, fp32, fp32);
    let (loss, error) = train(&dir, "fp32", &whole);
    assert_eq!(error, None, "nothing is encoded");
    for (name, codec, most, bytes) in
        [("bf16", CodecKind::Bf16, 0.004, 0.5), ("fp8", BLOCKS, 0.04, 0.27)]
    {
        let plan = plan(ScheduleKind::OneFOneB, codec, codec);
        let (found, error) = train(&dir, name, &plan);
        let error = error.expect("every step of a plan that encodes has one");
        assert!(error > 0.0 && error < most, "{name}: lost {error}");
        assert!(found < loss + 0.05, "{name}: loss {found}, in single precision {loss}");
        let (sent, all) = (message_bytes(&plan) as f64, message_bytes(&whole) as f64);
        assert!(sent <= bytes * all, "{name}: {sent} of {all} bytes");
    }
}

#[test]
fn edges_of_a_level_alone_are_encoded() {
    let fp32 = CodecKind::Fp32;
    let all = message_bytes(&plan(ScheduleKind::GPipe, fp32, fp32));
    let across = message_bytes(&plan(ScheduleKind::GPipe, fp32, CodecKind::Bf16));
    let within = message_bytes(&plan(ScheduleKind::GPipe, CodecKind::Bf16, fp32));
    assert!(across < all && within < all);
    assert_eq!((all - across) + (all - within), all / 2, "each edge is of one level");
}

#[test]
fn threads_and_processes_send_the_same_bits() {
    let dir = scratch("edge-codecs-mpi");
    for (name, schedule) in [("1f1b", ScheduleKind::OneFOneB), ("zb-h1", ScheduleKind::ZbH1)] {
        let mut plan = plan(schedule, CodecKind::Bf16, BLOCKS);
        plan.steps = 6;
        let file = format!("{name}.json");
        write(&dir, &file, plan.to_json());
        let threads = format!("{name}-threads");
        runner_in(&dir, &[&file, "--out", &threads, "--save-every", "6"]).done();
        let Some(ended) = mpirun_in(&dir, 4, &[&file, "--out", name, "--save-every", "6"]) else {
            return;
        };
        ended.done();
        assert_eq!(losses(&dir.join(name)), losses(&dir.join(&threads)));
        let saved = |out: &str| tensors(&dir.join(out).join("checkpoints/step-6"));
        assert_eq!(saved(name), saved(&threads));
    }
}

#[test]
fn what_cannot_travel_is_refused() {
    let refused = |change: &dyn Fn(&mut Draft)| {
        let mut draft = base(ScheduleKind::GPipe);
        change(&mut draft);
        match draft.plan() {
            Err(PredictError::Plan(error @ PlanError::Value { .. })) => error.to_string(),
            other => panic!("{:?}", other.map(|(plan, _)| plan.communication)),
        }
    };
    let message = refused(&|draft| {
        draft.communication.edges.within = CodecKind::TopK { one_in: 10, momentum: None };
    });
    assert!(message.starts_with("communication.edges.within is top-k:10"), "{message}");
    let message = refused(&|draft| {
        draft.communication.edges.across = CodecKind::Bf16;
        draft.training.precision = Precision::Bf16;
    });
    assert!(message.contains("which already travel in half the bytes"), "{message}");
    let mut draft = base(ScheduleKind::GPipe);
    draft.communication.gradients = Reduction::of(CodecKind::Fp32).with_feedback();
    let message = draft.plan().unwrap_err().to_string();
    assert!(message.contains("leave out feedback"), "{message}");
}
