//! A run's folder has one writer.

use crate::common::{RUNNER, losses, result, runner_in, scratch, small_plan, write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A run that goes on until it is told to end, after its first step.
fn going_on(dir: &Path) -> Child {
    let mut plan = small_plan();
    plan.steps = 1 << 40;
    write(dir, "plan.json", plan.to_json());
    let mut command = Command::new(RUNNER);
    command.args(["plan.json", "--out", "run", "--save-every", "0"]).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let metrics = dir.join("run/rank-000.jsonl");
    while std::fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn nobody_else_writes_into_the_folder_of_a_run_that_goes_on() {
    let dir = scratch("locks");
    let mut child = going_on(&dir);
    let who = format!("run: a run writes here, process {} on ", child.id());
    for more in [&["--overwrite"][..], &["--resume"]] {
        let args = [&["plan.json", "--out", "run", "--steps", "1"], more].concat();
        runner_in(&dir, &args).refused(2, &who);
    }
    let elastic = ["elastic", "plan.json", "--out", "run", "--steps", "1", "--overwrite"];
    runner_in(&dir, &elastic).refused(2, &who);
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // What it did is whole, and of it alone.
    let steps = result(&dir.join("run"))["steps"].as_u64().unwrap();
    assert_eq!(losses(&dir.join("run")).len() as u64, steps);
    assert!(!dir.join("run/.lock").exists());
}

#[test]
fn a_killed_run_keeps_nobody_out() {
    let dir = scratch("locks-killed");
    let mut child = going_on(&dir);
    signal(&child, "-KILL");
    child.wait().unwrap();
    assert!(dir.join("run/.lock").exists(), "nobody could remove it");
    let again = ["plan.json", "--out", "run", "--steps", "2", "--overwrite"];
    runner_in(&dir, &again).done();
    assert_eq!(losses(&dir.join("run")).len(), 2);
    assert!(!dir.join("run/.lock").exists());
}
