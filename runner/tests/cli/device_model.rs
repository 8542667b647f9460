//! Device `model`: real messages, modelled time, nothing trained.

use crate::common::{Ended, draft, few_samples, mpirun_in, result, runner_in, scratch, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Data, DataParallel, Plan};
use pipewright_core::schedule::{ActionKind, ScheduleKind};
use pipewright_core::timeline::{Trace, Wait, What, Work, chrome};
use std::path::Path;

fn plan(schedule: ScheduleKind, stages: u32, replicas: u32) -> Plan {
    let mut draft = draft(Preset::Fc32 { width: 64 }, stages);
    (draft.schedule, draft.mini_batch, draft.micro_batches) = (schedule, 64, 4);
    draft.data_parallel = DataParallel { replicas, ..DataParallel::default() };
    // A device so slow that modelled times stand out from what the messages take.
    draft.cluster.device.flops_per_sec = 1e9;
    (draft.cluster.devices_per_node, draft.cluster.ranks_per_node) = (64, 64);
    draft.steps = 4;
    draft.plan().unwrap().0
}

fn trace(out: &Path) -> Trace {
    chrome::read(&std::fs::read_to_string(out.join("trace.json")).unwrap()).unwrap()
}

/// What ran: by lane, every action in order.
fn order(trace: &Trace) -> Vec<Vec<Work>> {
    let timeline = &trace.steps[0].timeline;
    timeline.lanes.iter().map(|lane| lane.spans.iter().map(|s| s.work).collect()).collect()
}

fn check(ended: &Ended, out: &Path, plan: &Plan) {
    ended.done();
    assert!(ended.stdout.contains("nothing was trained"), "{ended:#?}");
    let result = result(out);
    assert!(result["loss"].is_null() && result["test_loss"].is_null(), "{result:#}");
    let predicted = result["predicted_step_ns"].as_u64().unwrap();
    // A step is never shorter than its critical path, whatever else this machine does.
    assert!(result["step_ns"].as_u64().unwrap() as f64 >= 0.98 * predicted as f64, "{result:#}");
    let trace = trace(out);
    for step in &trace.steps {
        let timeline = &step.timeline;
        assert_eq!(timeline.lanes.len(), plan.ranks() as usize);
        for message in &timeline.messages {
            assert!(message.sent <= message.received && message.bytes.0 > 0, "{message:?}");
        }
        let lanes = timeline.lanes.iter();
        assert!(lanes.clone().all(|l| l.spans.windows(2).all(|s| s[0].end <= s[1].start)));
        let waits = lanes.flat_map(|lane| &lane.asides);
        assert!(waits.clone().any(|aside| aside.what == What::Wait(Wait::Message)));
        assert!(waits.clone().all(|aside| aside.start <= aside.end));
        assert!(waits.clone().all(|aside| aside.what != What::Input), "nothing is loaded");
    }
}

#[test]
fn every_schedule_runs_as_planned_on_threads_and_processes() {
    let dir = scratch("device-model");
    for (schedule, stages) in [
        (ScheduleKind::GPipe, 4),
        (ScheduleKind::OneFOneB, 4),
        (ScheduleKind::ZbH1, 4),
        (ScheduleKind::Interleaved { chunks: 2 }, 4),
    ] {
        let plan = plan(schedule, stages, 1);
        write(&dir, "plan.json", plan.to_json());
        let args = ["plan.json", "--device", "model", "--overwrite", "--out"];
        let ended = runner_in(&dir, &[&args[..], &["threads"]].concat());
        check(&ended, &dir.join("threads"), &plan);
        let simulated = runner_in(&dir, &["simulate", "plan.json", "-o", "simulated.json"]);
        simulated.done();
        let text = std::fs::read_to_string(dir.join("simulated.json")).unwrap();
        let simulated = chrome::read(&text).unwrap();
        assert_eq!(order(&trace(&dir.join("threads"))), order(&simulated), "{schedule}");
        if let Some(ended) = mpirun_in(&dir, plan.ranks(), &[&args[..], &["mpi"]].concat()) {
            check(&ended, &dir.join("mpi"), &plan);
        }
    }
}

#[test]
fn replicas_sum_their_gradients_beside_the_backward_passes() {
    let dir = scratch("device-model-replicas");
    let plan = plan(ScheduleKind::OneFOneB, 2, 2);
    write(&dir, "plan.json", plan.to_json());
    runner_in(&dir, &["plan.json", "--device", "model", "--out", "run"]).done();
    let trace = trace(&dir.join("run"));
    for lane in trace.steps.iter().flat_map(|step| &step.timeline.lanes) {
        let sums = lane.asides.iter().filter(|a| matches!(a.what, What::AllReduce(_)));
        let sums: Vec<_> = sums.collect();
        assert_eq!(sums.len(), 1, "one stage a lane");
        let backward = |work: Work| matches!(work, Work::Run(a) if a.kind == ActionKind::Backward);
        let last = lane.spans.iter().rfind(|span| backward(span.work)).unwrap();
        assert!(last.start <= sums[0].start && sums[0].start <= last.end, "{sums:?} {last:?}");
        let update = lane.spans.last().unwrap();
        assert!(matches!(update.work, Work::Optimizer(_)) && sums[0].end <= update.start);
    }
}

/// On threads and processes.
fn runs_as_simulated(dir: &Path, plan: &Plan) {
    write(dir, "plan.json", plan.to_json());
    let args = ["plan.json", "--device", "model", "--out"];
    let ended = runner_in(dir, &[&args[..], &["threads"]].concat());
    check(&ended, &dir.join("threads"), plan);
    if let Some(ended) = mpirun_in(dir, plan.ranks(), &[&args[..], &["mpi"]].concat()) {
        check(&ended, &dir.join("mpi"), plan);
    }
}

/// Two stages, two replicas, groups of two: partial sums are summed within passes.
#[test]
fn tensor_groups_take_what_is_simulated() {
    let dir = scratch("device-model-tensor");
    let llama = "transformer:layers=4,hidden=64,heads=4,sequence=32,vocabulary=50,gated";
    let mut draft = draft(llama.parse().unwrap(), 2);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (32, 4, 3);
    (draft.tensor, draft.data_parallel) = (2, DataParallel::ddp(2));
    draft.cluster.device.flops_per_sec = 1e9;
    (draft.cluster.devices_per_node, draft.cluster.ranks_per_node) = (64, 64);
    runs_as_simulated(&dir, &draft.plan().unwrap().0);
}

/// Two stages, two replicas that divide experts: rows are exchanged within passes.
#[test]
fn expert_groups_take_what_is_simulated() {
    let dir = scratch("device-model-experts");
    let mixture =
        "transformer:layers=4,hidden=64,heads=4,sequence=32,vocabulary=50,gated,experts=4";
    let mut draft = draft(mixture.parse().unwrap(), 2);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (32, 4, 3);
    draft.data_parallel = DataParallel::ddp(2).with_experts(2);
    draft.cluster.device.flops_per_sec = 1e9;
    (draft.cluster.devices_per_node, draft.cluster.ranks_per_node) = (64, 64);
    runs_as_simulated(&dir, &draft.plan().unwrap().0);
}

/// Replicas that divide updates gather the parameters behind them; those that divide gradients sum those of each
/// micro-batch.
#[test]
fn divided_updates_take_what_is_simulated() {
    (1..=2).for_each(divided_take_what_is_simulated);
}

fn divided_take_what_is_simulated(zero: u8) {
    let dir = scratch(&format!("device-model-zero-{zero}"));
    let mut plan = plan(ScheduleKind::Interleaved { chunks: 2 }, 4, 2);
    plan.data_parallel.zero = zero;
    let plan = plan.draft().plan().unwrap().0;
    write(&dir, "plan.json", plan.to_json());
    let args = ["plan.json", "--device", "model", "--out"];
    let ended = runner_in(&dir, &[&args[..], &["threads"]].concat());
    check(&ended, &dir.join("threads"), &plan);
    if let Some(ended) = mpirun_in(&dir, plan.ranks(), &[&args[..], &["mpi"]].concat()) {
        check(&ended, &dir.join("mpi"), &plan);
    }
}

#[test]
fn networks_without_kernels_and_data_that_is_elsewhere_are_no_obstacle() {
    let dir = scratch("device-model-sizing");
    let mut plan = plan(ScheduleKind::GPipe, 2, 1);
    plan.data = Data::Idx { dir: "not/here".into() };
    write(&dir, "plan.json", plan.to_json());
    runner_in(&dir, &["plan.json", "--device", "model"]).done();
    plan.data = few_samples();
    write(&dir, "plan.json", plan.to_json());
    for flag in [["--save-every", "1"], ["--eval-every", "2"], ["--weights", "w.safetensors"]] {
        let args = [&["plan.json", "--device", "model", "--out", "run"][..], &flag[..]].concat();
        runner_in(&dir, &args).refused(2, "nothing is trained there");
    }
}
