//! Going on from a checkpoint, under the same division and under others.

use crate::common::{Ended, losses, mpirun_in, runner_in, scratch, write};
use crate::run::{STEPS, at, checkpoints, plan_file, tensors};
use pipewright_core::plan::Decay;
use pipewright_core::schedule::ScheduleKind;
use std::path::{Path, PathBuf};

/// An uninterrupted run in `whole`, and one of five steps in `half`.
fn begun(name: &str) -> PathBuf {
    let dir = scratch(name);
    let gpipe = plan_file(&dir, 4, ScheduleKind::GPipe);
    runner_in(&dir, &[&gpipe, "--out", "whole", "--save-every", "3"]).done();
    assert_eq!(checkpoints(&dir.join("whole")), [6, STEPS], "the newest two are kept");
    runner_in(&dir, &[&gpipe, "--out", "half", "--save-every", "0", "--steps", "5"]).done();
    assert_eq!(checkpoints(&dir.join("half")), [5], "saved at the end alone");
    dir
}

/// A copy of the run of five steps, to go on with.
fn copy(dir: &Path, name: &str) -> PathBuf {
    let (from, to) = (dir.join("half"), dir.join(name));
    let status = std::process::Command::new("cp").arg("-r").args([&from, &to]).status();
    assert!(status.unwrap().success());
    to
}

/// The continued run is the uninterrupted one: losses, and every tensor at the end.
#[track_caller]
fn same(dir: &Path, name: &str) {
    let (whole, continued) = (dir.join("whole"), dir.join(name));
    assert_eq!(losses(&continued), losses(&whole), "{name}: metrics go on where they were");
    let (expected, found) = (tensors(&at(&whole, STEPS)), tensors(&at(&continued, STEPS)));
    assert!(expected.keys().any(|name| name.contains('@')), "the optimizer has a state");
    assert!(found == expected, "{name}: the tensors differ");
}

/// Other divisions of the same training.
fn divisions() -> [(u32, ScheduleKind); 4] {
    [
        (4, ScheduleKind::GPipe),
        (4, ScheduleKind::ZbH1),
        (2, ScheduleKind::OneFOneB),
        (1, ScheduleKind::Naive),
    ]
}

#[test]
fn threads_go_on_under_every_division() {
    let dir = begun("resume-threads");
    for (stages, schedule) in divisions() {
        let plan = plan_file(&dir, stages, schedule);
        let name = format!("{stages}-{schedule}");
        copy(&dir, &name);
        runner_in(&dir, &[&plan, "--out", &name, "--save-every", "2", "--resume"]).done();
        assert_eq!(checkpoints(&dir.join(&name)), [6, STEPS]);
        same(&dir, &name);
    }
    // From a checkpoint of another run, by its folder and by the run's.
    let plan = plan_file(&dir, 2, ScheduleKind::OneFOneB);
    for (name, from) in [("by-step", "half/checkpoints/step-5"), ("by-run", "half")] {
        runner_in(&dir, &[&plan, "--out", name, "--save-every", "0", "--resume", from]).done();
        let (whole, found) = (losses(&dir.join("whole")), losses(&dir.join(name)));
        assert_eq!(found, whole[5..], "the metrics of a new folder begin at the checkpoint");
        assert!(tensors(&at(&dir.join(name), STEPS)) == tensors(&at(&dir.join("whole"), STEPS)));
    }
}

#[test]
fn processes_go_on_under_every_division() {
    let dir = begun("resume-mpi");
    for (stages, schedule) in divisions() {
        let plan = plan_file(&dir, stages, schedule);
        let name = format!("{stages}-{schedule}");
        copy(&dir, &name);
        let args = [&plan, "--out", &name, "--save-every", "2", "--resume", "latest"];
        let Some(run) = mpirun_in(&dir, stages, &args) else { return };
        run.done();
        same(&dir, &name);
    }
    // And a checkpoint that processes saved, on threads.
    let plan = plan_file(&dir, 4, ScheduleKind::GPipe);
    let args = [&plan[..], "--out", "mpi", "--save-every", "0", "--steps", "3"];
    mpirun_in(&dir, 4, &args).unwrap().done();
    let plan = plan_file(&dir, 2, ScheduleKind::OneFOneB);
    runner_in(&dir, &[&plan, "--out", "mpi", "--save-every", "0", "--resume"]).done();
    same(&dir, "mpi");
}

#[test]
fn the_state_of_adam_and_the_rate_go_on_too() {
    let dir = scratch("resume-adam");
    let file = |stages: u32, schedule| {
        let mut plan = crate::run::plan(stages, schedule);
        plan.optimizer = "adamw:lr=3e-3,weight_decay=0.1".parse().unwrap();
        plan.training.rate.decay = Decay::Cosine { floor: 1e-4 };
        (plan.training.rate.warmup, plan.training.clip_norm) = (2, Some(1.0));
        let name = format!("{stages}.json");
        write(&dir, &name, plan.to_json());
        name
    };
    let (four, two) = (file(4, ScheduleKind::ZbH1), file(2, ScheduleKind::OneFOneB));
    let all = ["--save-every", "5", "--out"];
    runner_in(&dir, &[&[&four[..]][..], &all, &["whole"]].concat()).done();
    let (whole, cut) = (dir.join("whole"), dir.join("cut"));
    assert_eq!(checkpoints(&whole), [5, STEPS]);
    // As if the run had been killed after its checkpoint of step 5.
    std::fs::create_dir_all(cut.join("checkpoints")).unwrap();
    std::fs::rename(at(&whole, 5), at(&cut, 5)).unwrap();
    std::fs::copy(whole.join("rank-000.jsonl"), cut.join("rank-000.jsonl")).unwrap();
    runner_in(&dir, &[&[&two[..], "--resume"][..], &all, &["cut"]].concat()).done();
    let names = tensors(&at(&cut, 5)).into_keys().collect::<Vec<_>>();
    assert!(names.iter().any(|name| name.ends_with("@exp_avg_sq")), "{names:?}");
    same(&dir, "cut");
    // The cosine ends with the run: a run of another length is another training.
    let args = [&two, "--resume", "--out", "cut", "--steps", "20"];
    runner_in(&dir, &args).refused(2, "steps is 8 in the checkpoint, 20 in the plan");
}

#[test]
fn a_run_may_begin_with_resume() {
    let dir = scratch("resume-nothing");
    let plan = plan_file(&dir, 2, ScheduleKind::OneFOneB);
    let again =
        || -> Ended { runner_in(&dir, &[&plan, "--out", "out", "--save-every", "3", "--resume"]) };
    again().done();
    let (first, steps) = (losses(&dir.join("out")), checkpoints(&dir.join("out")));
    assert_eq!((first.len() as u64, &steps[..]), (STEPS, &[6, STEPS][..]));
    // The same command once more has nothing left to train, and changes nothing.
    let before = tensors(&at(&dir.join("out"), STEPS));
    assert!(again().done().stdout.starts_with("done: 8 steps"));
    assert_eq!(losses(&dir.join("out")), first);
    assert!(tensors(&at(&dir.join("out"), STEPS)) == before);
    if let Some(run) = mpirun_in(&dir, 2, &[&plan, "--out", "mpi", "--resume"]) {
        run.done();
        assert_eq!(losses(&dir.join("mpi")), first);
    }
}

#[test]
fn another_branch_leaves_the_first() {
    let dir = scratch("resume-branch");
    let plan = plan_file(&dir, 2, ScheduleKind::OneFOneB);
    let out = dir.join("out");
    runner_in(&dir, &[&plan, "--out", "out", "--save-every", "2", "--keep", "10"]).done();
    assert_eq!(checkpoints(&out), [2, 4, 6, 8]);
    let whole = losses(&out);
    // Back to step 4; later checkpoints are those of a continuation that was left.
    let back = ["--resume", "out/checkpoints/step-4", "--save-every", "0", "--keep", "10"];
    runner_in(&dir, &[&[&plan[..], "--out", "out", "--steps", "5"][..], &back].concat()).done();
    assert_eq!(checkpoints(&out), [2, 4, 5]);
    assert_eq!(losses(&out), whole[..5]);
    // A checkpoint of the same step is replaced.
    runner_in(&dir, &[&[&plan[..], "--out", "out", "--steps", "5"][..], &back].concat()).done();
    assert_eq!(checkpoints(&out), [2, 4, 5]);
}
