//! Runs that end by themselves or are asked to: signals, divergence.

use crate::common::{RUNNER, losses, mpirun_in, result, runner_in, scratch, write};
use crate::run::{STEPS, at, checkpoints, plan, plan_file, saved, tensors, until};
use pipewright_core::plan::{Data, Plan};
use pipewright_core::schedule::ScheduleKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts a run of many steps that only saves when it ends.
fn start(dir: &Path, mut program: Command, plan: &str, out: &str) -> Child {
    program.args([plan, "--out", out, "--save-every", "7", "--steps", "1000000"]);
    program.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
    program.stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends a signal to a process that runs.
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// The interrupted run in `out` has saved its last step and goes on as if nothing had been.
fn goes_on(dir: &Path, plan: &str, out: &str) {
    let folder = dir.join(out);
    let record = result(&folder);
    assert_eq!(record["status"], "interrupted", "{record}");
    let step = record["steps"].as_u64().unwrap();
    assert_eq!(checkpoints(&folder).last(), Some(&step), "its last step was saved");
    assert_eq!(losses(&folder).len() as u64, step);
    let steps = (step + 3).to_string();
    let args = ["--save-every", "0", "--steps", &steps];
    runner_in(dir, &[&[plan, "--out", out, "--resume"][..], &args].concat()).done();
    runner_in(dir, &[&[plan, "--out", "whole", "--overwrite"][..], &args].concat()).done();
    assert_eq!(losses(&folder), losses(&dir.join("whole")));
    assert!(tensors(&at(&folder, step + 3)) == tensors(&at(&dir.join("whole"), step + 3)));
}

#[test]
fn a_signal_saves() {
    let dir = scratch("signal");
    let plan = plan_file(&dir, 4, ScheduleKind::GPipe);
    for name in ["-INT", "-TERM", "-USR1"] {
        let out = &format!("threads{name}");
        let child = start(&dir, Command::new(RUNNER), &plan, out);
        until("a checkpoint", || saved(&dir.join(out), 7));
        signal(&child, name);
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{said}");
        assert!(said.contains("error: interrupted after step "), "{said}");
        goes_on(&dir, &plan, out);
    }
}

#[test]
fn a_signal_to_mpirun_saves() {
    let Some(mpirun) = pipewright::tools::find("MPIRUN", &["mpirun"]) else {
        return pipewright::tools::skip("mpirun");
    };
    let dir = scratch("signal-mpi");
    let plan = plan_file(&dir, 2, ScheduleKind::OneFOneB);
    let mut program = Command::new(mpirun);
    program.args(["-n", "2", RUNNER]).envs(pipewright::mpirun::environment());
    let child = start(&dir, program, &plan, "mpi");
    until("a checkpoint", || saved(&dir.join("mpi"), 7));
    signal(&child, "-USR1");
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert_eq!(said.matches("error: interrupted after step ").count(), 1, "{said}");
    goes_on(&dir, &plan, "mpi");
}

/// Two steps of training and a test that takes until somebody ends it.
fn long_test(dir: &Path) -> &'static str {
    let data = Data::Synthetic { train: 64, test: 1 << 30 };
    write(dir, "test.json", Plan { data, steps: 2, ..plan(2, ScheduleKind::OneFOneB) }.to_json())
}

#[test]
fn a_signal_ends_a_long_test() {
    let dir = scratch("signal-test");
    let plan = long_test(&dir);
    let mut programs = vec![("threads", Command::new(RUNNER), "-TERM")];
    if let Some(mpirun) = pipewright::tools::find("MPIRUN", &["mpirun"]) {
        let mut program = Command::new(mpirun);
        program.args(["-n", "2", RUNNER]).envs(pipewright::mpirun::environment());
        programs.push(("mpi", program, "-USR1"));
    } else {
        pipewright::tools::skip("mpirun");
    }
    for (out, mut program, name) in programs {
        program.args([plan, "--out", out, "--save-every", "0"]).current_dir(&dir);
        program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = program.spawn().unwrap();
        // Saved at the end of training, so that from here on it tests.
        until("the last checkpoint", || saved(&dir.join(out), 2));
        signal(&child, name);
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{out}: {said}");
        assert!(said.contains("interrupted after step 2, while testing"), "{out}: {said}");
        let record = result(&dir.join(out));
        assert_eq!((&record["status"], &record["steps"]), (&"interrupted".into(), &2.into()));
        assert!(record["test_accuracy"].is_null(), "{record}");
    }
}

#[test]
fn divergence_leaves_the_checkpoint_before() {
    let dir = scratch("diverged");
    let good = plan_file(&dir, 2, ScheduleKind::OneFOneB);
    let optimizer = "sgd:lr=1e9,momentum=0.9".parse().unwrap();
    let bad = Plan { optimizer, steps: 500, ..plan(2, ScheduleKind::OneFOneB) };
    let bad = write(&dir, "bad.json", bad.to_json());
    let args = ["--save-every", "1", "--keep", "1"];
    let check = |out: &str| {
        let record = result(&dir.join(out));
        assert_eq!(record["status"], "failed", "{record}");
        let [step] = checkpoints(&dir.join(out))[..] else { panic!("one checkpoint is left") };
        for (name, bits) in tensors(&at(&dir.join(out), step)) {
            let finite = bits.iter().all(|bits| f32::from_bits(*bits).is_finite());
            assert!(finite || name.contains('@'), "{name} at step {step} is of no use");
        }
    };
    let run = runner_in(&dir, &[&[bad, "--out", "threads"][..], &args].concat());
    run.refused(1, "lower the learning rate");
    check("threads");
    if let Some(run) = mpirun_in(&dir, 2, &[&[bad, "--out", "mpi"][..], &args].concat()) {
        run.refused(1, "lower the learning rate");
        check("mpi");
    }
    runner_in(&dir, &[&good, "--out", "good"]).done();
    assert_eq!(losses(&dir.join("good")).len() as u64, STEPS);
}
