//! A disk that is full while a checkpoint is saved: a real one, of a size that holds one checkpoint
//! and no second; and files that may not grow any further.

use crate::common::{Ended, RUNNER, losses, result, runner_in, scratch, write};
use crate::run::{at, checkpoints, plan_file, tensors};
use pipewright_core::schedule::ScheduleKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Runs a shell script in `dir` with `$RUNNER`.
fn shell(dir: &Path, wrapper: &[&str], script: &str) -> Ended {
    let begin = Instant::now();
    let output = Command::new("timeout")
        .args(["--kill-after=10", "200"])
        .args(wrapper)
        .args(["sh", "-c", script])
        .env("RUNNER", RUNNER)
        .envs(pipewright::mpirun::environment())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ended = Ended {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    };
    println!("`{script}` ended with {:?} after {:.2} s", ended.code, begin.elapsed().as_secs_f64());
    ended
}

/// The checkpoint of step 2 is whole and trains on; nothing is left of the one that failed.
fn goes_on(dir: &Path, plan: &str) {
    let out = dir.join("out");
    assert_eq!(checkpoints(&out), [2]);
    let record = result(&out);
    assert_eq!(record["status"], "failed", "{record}");
    assert!(record["error"].as_str().unwrap().contains("no checkpoint was saved"), "{record}");
    runner_in(dir, &[plan, "--out", "out", "--save-every", "0", "--resume"]).done();
    runner_in(dir, &[plan, "--out", "whole", "--save-every", "0"]).done();
    assert_eq!(losses(&out), losses(&dir.join("whole")));
    assert!(tensors(&at(&out, 8)) == tensors(&at(&dir.join("whole"), 8)));
}

#[test]
fn a_full_disk() {
    let namespace = ["unshare", "--map-root-user", "--mount"];
    if !may_mount(&namespace) {
        return pipewright::tools::skip("right to mount a file system of one's own (unshare)");
    }
    let mpi = pipewright::tools::find("MPIRUN", &["mpirun"]).is_some();
    for launcher in ["", "mpirun -n 4"] {
        if !launcher.is_empty() && !mpi {
            return pipewright::tools::skip("mpirun");
        }
        let dir = scratch(if launcher.is_empty() { "full-threads" } else { "full-mpi" });
        let plan = plan_file(&dir, 4, ScheduleKind::GPipe);
        std::fs::create_dir(dir.join("small")).unwrap();
        // A checkpoint takes 0.5 MB: one fits, and a half. What is left is copied out of the file
        // system, which ends with the namespace.
        let script = format!(
            "mount -t tmpfs -o size=800k tmpfs small || exit 99; \
             {launcher} \"$RUNNER\" {plan} --out small/out --save-every 2; \
             code=$?; cp -a small/out out; exit $code"
        );
        let run = shell(&dir, &namespace, &script);
        run.refused(1, "no checkpoint was saved: ");
        let error = run.errors()[0];
        assert!(error.contains("small/out/checkpoints/.step-4.part/stage-"), "{error}");
        assert!(error.contains("No space left on device") && error.contains("bytes"), "{error}");
        assert!(error.contains("rank "), "which rank: {error}");
        goes_on(&dir, &plan);
    }
}

/// Whether this machine lets a test mount a file system that only the test sees.
fn may_mount(namespace: &[&str]) -> bool {
    let mut probe = Command::new(namespace[0]);
    probe.args(&namespace[1..]).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn a_file_that_may_not_grow() {
    let dir = scratch("limit");
    let plan = plan_file(&dir, 4, ScheduleKind::GPipe);
    runner_in(&dir, &[&plan, "--out", "out", "--save-every", "2", "--steps", "2"]).done();
    // Blocks of 512 or 1024 bytes, as the shell likes: less than the largest stage needs.
    let script =
        format!("ulimit -f 400; exec \"$RUNNER\" {plan} --out out --save-every 2 --resume");
    let run = shell(&dir, &["env"], &script);
    run.refused(1, "File too large");
    goes_on(&dir, &plan);
}

#[test]
fn a_folder_that_cannot_be_made() {
    let dir = scratch("blocked");
    let plan = plan_file(&dir, 2, ScheduleKind::OneFOneB);
    std::fs::create_dir(dir.join("out")).unwrap();
    write(&dir.join("out"), "checkpoints", "a file where a folder should be");
    let run = runner_in(&dir, &[&plan, "--out", "out", "--save-every", "2"]);
    run.refused(2, "out/checkpoints");
}
