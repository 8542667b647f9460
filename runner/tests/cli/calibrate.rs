//! `runner calibrate` on traces: a plan with the times of a trace predicts what the trace shows.

use crate::common::{draft, runner_in, scratch, write};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{DataParallel, Draft};
use pipewright_core::schedule::ScheduleKind;

/// A draft on devices of so many operations a second.
fn on(flops_per_sec: f64, schedule: ScheduleKind, replicas: u32) -> Draft {
    let mut draft = draft(Preset::DigitsCnn, 2);
    (draft.schedule, draft.mini_batch, draft.micro_batches) = (schedule, 64, 4);
    draft.data_parallel = DataParallel { replicas, ..DataParallel::default() };
    draft.cluster.device.flops_per_sec = flops_per_sec;
    draft.cluster.device.memory_bytes_per_sec = flops_per_sec / 5.0;
    (draft.cluster.devices_per_node, draft.cluster.ranks_per_node) = (16, 16);
    draft.steps = 6;
    draft
}

#[test]
fn a_calibrated_plan_predicts_the_run_that_it_was_calibrated_to() {
    let dir = scratch("calibrate");
    for schedule in [ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
        for replicas in [1, 2] {
            // The slow machine's own prediction stands for a run on it: no noise.
            let truth = on(2e9, schedule, replicas).plan().unwrap().1.timeline.step;
            write(&dir, "slow.json", on(2e9, schedule, replicas).plan().unwrap().0.to_json());
            runner_in(&dir, &["simulate", "slow.json", "-o", "trace.json"]).done();
            let (fast, before) = on(50e9, schedule, replicas).plan().unwrap();
            write(&dir, "fast.json", fast.to_json());
            let args = ["calibrate", "trace.json", "--plan", "fast.json", "-o", "cluster.json"];
            runner_in(&dir, &args).done();
            let text = std::fs::read_to_string(dir.join("cluster.json")).unwrap();
            let cluster: Cluster = serde_json::from_str(&text).unwrap();
            cluster.check().unwrap();
            let mut draft = on(50e9, schedule, replicas);
            draft.cluster = cluster;
            let after = draft.plan().unwrap().1.timeline.step;
            let error = |step| (step as f64 / truth.0 as f64 - 1.0).abs();
            assert!(error(before.timeline.step.0) > 0.5, "{schedule}: nothing to improve");
            assert!(error(after.0) < 0.02, "{schedule} x {replicas}: {after}, not {truth}");
        }
    }
}

#[test]
fn fresh_traces_are_taken_with_and_without_all_reduce() {
    let dir = scratch("calibrate-fresh");
    for replicas in [1, 2] {
        write(
            &dir,
            "plan.json",
            on(5e9, ScheduleKind::OneFOneB, replicas).plan().unwrap().0.to_json(),
        );
        runner_in(&dir, &["plan.json", "--out", "run", "--overwrite"]).done();
        let args = ["calibrate", "run/trace.json", "--plan", "plan.json", "-o", "cluster.json"];
        let ended = runner_in(&dir, &args);
        ended.done();
        // Two stages with F, B and update, on as many lanes as there are replicas, in the four steps after the warm-up.
        let rows = ended.stdout.lines().filter(|line| line.contains(" ms")).count();
        assert_eq!(rows, 6, "{}", ended.stdout);
        let updates = format!("{}", 4 * replicas);
        let update = ended.stdout.lines().find(|line| line.contains("   U ")).unwrap();
        assert_eq!(update.split_whitespace().nth(2), Some(updates.as_str()), "{update}");
    }
    runner_in(&dir, &["calibrate", "run/trace.json", "--plan", "plan.json"]).refused(2, "output");
}
