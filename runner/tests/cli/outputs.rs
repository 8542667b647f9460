//! Files that commands write: whole or not at all, also where the disk is full.

use crate::common::{Ended, RUNNER, mpirun_in, runner_in, scratch, small_plan, write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether this machine lets a test mount a file system that only the test sees.
fn may_mount(namespace: &[&str]) -> bool {
    let mut probe = Command::new(namespace[0]);
    probe.args(&namespace[1..]).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A run, its plan, and a checkpoint.
fn run(dir: &Path) {
    let mut plan = small_plan();
    plan.steps = 4;
    write(dir, "plan.json", plan.to_json());
    runner_in(dir, &["plan.json", "--out", "run", "--save-every", "0", "--eval-every", "2"]).done();
}

/// Each command that writes a file, up to the name of the file.
const WRITERS: [&[&str]; 9] = [
    &["plan", "--model", "mlp4", "--ranks", "1", "--cluster", "a100", "-o"],
    &["simulate", "plan.json", "-o"],
    &["profile", "plan.json", "--repeats", "1", "-o"],
    &["curves", "run", "-o"],
    &["export", "plan.json", "--format", "pytorch-csv", "-o"],
    &["export", "run", "--csv"],
    &["export", "--weights", "run"],
    &["calibrate", "run/trace.json", "--plan", "plan.json", "-o"],
    &["cluster", "dgx-a100", "-o"],
];

#[test]
fn a_full_disk_leaves_the_file_as_it_was() {
    let namespace = ["unshare", "--map-root-user", "--mount"];
    if !may_mount(&namespace) {
        return pipewright::tools::skip("right to mount a file system of one's own (unshare)");
    }
    let dir = scratch("outputs-full");
    run(&dir);
    std::fs::create_dir(dir.join("small")).unwrap();
    // One page is taken by what was there before, and the rest by something else. What a command says
    // stands behind its exit code, and what is left behind that.
    let mut script = String::from(
        "mount -t tmpfs -o size=64k tmpfs small || exit 99; echo before > small/file\n\
         mkdir small/logs; cat /dev/zero > small/rest 2> /dev/null\n",
    );
    for writer in WRITERS {
        let line = writer.join(" ");
        script += &format!(
            "\"$RUNNER\" {line} small/file > said 2>&1; echo \"$? $(cat small/file) \
             $(ls -A small | tr '\\n' ' '): $(grep error: said)\"\n"
        );
    }
    script += "\"$RUNNER\" export run --tensorboard small/logs > said 2>&1; \
               echo \"$? $(ls -A small/logs): $(grep error: said)\"\n";
    let output = Command::new("timeout")
        .args(["--kill-after=10", "200"])
        .args(namespace)
        .args(["sh", "-c", &script])
        .env("RUNNER", RUNNER)
        .current_dir(&dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), WRITERS.len() + 1, "{told}\n{output:?}");
    for (line, writer) in lines.iter().zip(WRITERS) {
        assert!(line.starts_with("2 before file logs rest :"), "{writer:?}: {line}");
        assert!(line.contains("No space left on device"), "{writer:?}: {line}");
    }
    let tensorboard = lines[WRITERS.len()];
    assert!(tensorboard.starts_with("2 :"), "{tensorboard}");
    assert!(tensorboard.contains("No space left on device"), "{tensorboard}");
}

#[test]
fn what_is_printed_and_not_taken_is_an_error() {
    let dir = scratch("outputs-print");
    run(&dir);
    for args in [
        &["show", "plan.json"][..],
        &["check", "plan.json"],
        &["simulate", "plan.json"],
        &["export", "run", "--csv", "-"],
        &["cluster", "laptop"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(RUNNER);
        command.args(args).current_dir(&dir).stdin(Stdio::null()).stdout(full);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let ended = Ended { code: output.status.code(), stdout: String::new(), stderr: said };
        ended.refused(2, "standard output: No space left on device");
    }
}

#[test]
fn a_command_for_one_process_is_run_by_the_first() {
    let dir = scratch("outputs-mpi");
    let args = ["plan", "--model", "mlp4", "--ranks", "1", "--cluster", "a100"];
    let Some(ended) = mpirun_in(&dir, 2, &args) else { return };
    assert_eq!(ended.done().stdout.matches("\"version\"").count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("note: this command is for one process"), "{ended:?}");
}

#[test]
fn processes_that_are_alone_in_mpi_are_of_another_launcher() {
    let dir = scratch("outputs-other-mpi");
    run(&dir);
    let start = |rank: &str| {
        let mut command = Command::new(RUNNER);
        command.args(["run", "plan.json"]).current_dir(&dir).stdin(Stdio::null());
        // As MPICH's launcher says it, which Open MPI does not hear.
        command.env("PMI_SIZE", "2").env("PMI_RANK", rank);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ended { code: output.status.code(), stdout: String::new(), stderr: said }
    };
    if pipewright::tools::find("MPIRUN", &["mpirun"]).is_none() {
        return pipewright::tools::skip("mpirun");
    }
    let first = start("0");
    if first.stderr.contains("built without MPI") {
        return;
    }
    first.refused(4, "the launcher started 2 processes, and each is alone in MPI");
    assert_eq!(start("1").errors(), Vec::<&str>::new());
}
