//! Jobs whose disk takes no checkpoints for a while, and ranks that may not have the memory they need.

use crate::common::{RUNNER, draft, losses, scratch, write};
use crate::job::{ledger, mpi, two_by_two};
use pipewright_core::graph::presets::Preset;
use pipewright_runner::elastic::journal::{Cause, Event, Line};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A folder of checkpoints on a disk of its own, full and then read-only: the job trains on, says so, and
/// saves when it can again. What was there before stays.
const BAD_DISK: &str = r#"
mkdir -p out/checkpoints && mount -t tmpfs -o size=800k tmpfs out/checkpoints || exit 99
warned() { # TIMES WHAT
  local i; for ((i = 0; i < 1200; i++)); do
    [ "$(grep -c "$2" log)" -ge "$1" ] && return; sleep 0.05
  done; echo "not said: $2" >&2; cat log >&2; exit 8
}
"$RUNNER" elastic plan.json --out out --job "$JOB" --settle 0.1 --save-every 10 --steps 1000000 \
  -- --threads 1 > log 2>&1 &
job=$!
trap 'kill -KILL $job 2> /dev/null' EXIT
warned 2 'No space left on device'
ls out/checkpoints > full
mount -o remount,size=8m,ro out/checkpoints
warned 1 'Read-only file system'
mount -o remount,rw out/checkpoints
newest=$(cat full)
for ((i = 0; i < 1200; i++)); do [ "$(ls out/checkpoints)" != "$newest" ] && break; sleep 0.05; done
kill -TERM $job; wait $job; code=$?
cp -a out result
exit $code
"#;

/// The whole folder of a run on a disk that is full for a while: the job trains on, and what it could not
/// write is written later.
const FULL_FOLDER: &str = r#"
mkdir -p out && mount -t tmpfs -o size=16m tmpfs out || exit 99
said() { # WHAT
  local i; for ((i = 0; i < 1200; i++)); do grep -q "$1" log && return; sleep 0.05; done
  echo "not said: $1" >&2; cat log >&2; exit 8
}
"$RUNNER" elastic plan.json --out out --job "$JOB" --settle 0.1 --save-every 20 --steps 1000000 \
  -- --threads 1 > log 2>&1 &
job=$!
trap 'kill -KILL $job 2> /dev/null' EXIT
until [ -s out/rank-000.jsonl ]; do sleep 0.05; done
cat /dev/zero > out/rest 2> /dev/null
said 'rank-000.jsonl: No space left on device.*training goes on, and metrics wait'
said 'the checkpoint before it stays'
rm out/rest
said 'rank-000.jsonl: the disk takes metrics again, 0 steps'
kill -TERM $job; wait $job; code=$?
cp -a out result
exit $code
"#;

#[test]
fn a_folder_that_takes_nothing_is_a_warning() {
    let Some((dir, ended)) = on_a_small_disk("elastic-folder", FULL_FOLDER) else { return };
    let said = String::from_utf8_lossy(&ended.stderr);
    let log = std::fs::read_to_string(dir.join("log")).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{said}\n{log}");
    let steps: Vec<u64> = ledger(&dir.join("result")).into_iter().map(|(step, _)| step).collect();
    assert_eq!(steps, (0..steps.len() as u64).collect::<Vec<_>>(), "each step once, none lost");
    let newest = pipewright_runner::checkpoint::newest(&dir.join("result/checkpoints")).unwrap();
    assert_eq!(newest, Some(steps.len() as u64), "the last step is kept");
}

/// The disk is still full when the job is told to end: its state stays where it is, for the next start.
const FULL_TO_THE_END: &str = r#"
mkdir -p out && mount -t tmpfs -o size=16m tmpfs out || exit 99
go() {
  "$RUNNER" elastic plan.json --out out --job "$JOB" --settle 0.1 --steps 1000000 -- --threads 1 \
    >> log 2>&1 &
  job=$!
}
trained() { while [ "$(grep -c . out/rank-000.jsonl)" -le "$1" ]; do sleep 0.05; done; }
go
until [ -s out/rank-000.jsonl ]; do sleep 0.05; done
cat /dev/zero > out/rest 2> /dev/null
until grep -q 'metrics wait' log; do sleep 0.05; done
kill -TERM $job; wait $job; [ $? = 1 ] || exit 7
grep -q 'the last step is in memory alone' log || exit 6
rm out/rest
before=$(grep -c . out/rank-000.jsonl)
go
trained "$before"
kill -TERM $job; wait $job; code=$?
cp -a out result
exit $code
"#;

#[test]
fn a_disk_that_is_full_to_the_end_loses_no_step() {
    let Some((dir, ended)) = on_a_small_disk("elastic-end", FULL_TO_THE_END) else { return };
    let log = std::fs::read_to_string(dir.join("log")).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}\n{log}");
    assert!(!log.contains("trained again"), "{log}");
    let steps = ledger(&dir.join("result"));
    let (first, second): (Vec<_>, Vec<_>) = steps.into_iter().partition(|(_, number)| *number == 1);
    assert!(first.last().unwrap().0 < second[0].0, "it went on: {first:?} {second:?}");
}

/// Runs a script with file systems of its own beside a plan; `None` where that cannot be.
fn on_a_small_disk(name: &str, script: &str) -> Option<(PathBuf, Output)> {
    if !mpi() {
        return None;
    }
    let namespace = ["unshare", "--map-root-user", "--mount"];
    let mut probe = Command::new(namespace[0]);
    probe.args(&namespace[1..]).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    if !probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        pipewright::tools::skip("right to mount a file system of one's own (unshare)");
        return None;
    }
    let dir = scratch(name);
    write(&dir, "plan.json", two_by_two(20).to_json());
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "150"]).args(namespace).args(["bash", "-c", script]);
    command.env("RUNNER", RUNNER).env("JOB", format!("test-{name}-{}", std::process::id()));
    command.envs(pipewright::mpirun::environment()).current_dir(&dir).stdin(Stdio::null());
    let ended = command.output().unwrap();
    Some((dir, ended))
}

#[test]
fn a_disk_that_takes_nothing_is_a_warning() {
    let Some((dir, ended)) = on_a_small_disk("elastic-disk", BAD_DISK) else { return };
    let said = String::from_utf8_lossy(&ended.stderr);
    let log = std::fs::read_to_string(dir.join("log")).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{said}\n{log}");
    assert!(log.contains("the checkpoint before it stays"), "{log}");
    let kept = std::fs::read_to_string(dir.join("full")).unwrap();
    assert!(kept.starts_with("step-"), "the one before stays: {kept}");
    let steps = losses(&dir.join("result")).len() as u64;
    let newest = pipewright_runner::checkpoint::newest(&dir.join("result/checkpoints")).unwrap();
    assert_eq!(newest, Some(steps), "the last step is kept");
}

/// A plan with some GB of tensors, beside which what a process takes by itself does not count.
fn large(dir: &Path) {
    let mut draft = draft(Preset::Resnet18, 2);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (512, 1, 3);
    write(dir, "plan.json", draft.plan().unwrap().0.to_json());
}

/// Why generations ended.
fn causes(dir: &Path) -> Vec<Cause> {
    let journal = std::fs::read_to_string(dir.join("out/run.jsonl")).unwrap();
    let lines = journal.lines().map(|line| serde_json::from_str(line).unwrap());
    let cause = |line: Line| match line.event {
        Event::Ended { cause, .. } => Some(cause),
        _ => None,
    };
    lines.filter_map(cause).collect()
}

/// Ranks that the kernel ends for memory, in a group of processes that may not have more. The plan is tried
/// once more, for it may have been others who took the memory.
#[test]
fn ranks_that_are_ended_for_memory_are_tried_once_more() {
    if !mpi() {
        return;
    }
    let group = PathBuf::from(format!("/sys/fs/cgroup/memory/pipewright-{}", std::process::id()));
    if std::fs::create_dir(&group).is_err() {
        return pipewright::tools::skip("right to make a group of processes (cgroup v1, memory)");
    }
    let dir = scratch("elastic-oom");
    large(&dir);
    std::fs::write(group.join("memory.limit_in_bytes"), "400M").unwrap();
    // The supervisor is no member, so it is not the one that is ended.
    let mpirun = pipewright::tools::find("MPIRUN", &["mpirun"]).unwrap();
    let script = format!(
        "#!/bin/sh\necho $$ > {}/cgroup.procs\nexec {} \"$@\"\n",
        group.display(),
        mpirun.display()
    );
    std::fs::write(dir.join("mpirun"), script).unwrap();
    std::fs::set_permissions(dir.join("mpirun"), PermissionsExt::from_mode(0o755)).unwrap();
    let args =
        ["elastic", "plan.json", "--out", "out", "--job", "test-oom", "--", "--threads", "1"];
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "120", RUNNER]).args(args);
    command.envs(pipewright::mpirun::environment()).env("MPIRUN", dir.join("mpirun"));
    let ended = command.current_dir(&dir).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    // Processes that have just ended leave it a moment later.
    let busy = || std::fs::remove_dir(&group).is_err_and(|e| e.kind() == ErrorKind::ResourceBusy);
    for _ in 0..1000 {
        if !busy() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(ended.status.code(), Some(4), "{said}");
    assert!(said.contains(" for memory, for the second time with this plan"), "{said}");
    assert!(said.contains("(stage ") && said.contains("; its tensors take "), "{said}");
    assert_eq!(causes(&dir), [Cause::RankLost; 2]);
}

/// Refused before there are tensors, with the stage, what it needs and what is left; not tried again.
#[test]
fn ranks_that_may_not_have_the_memory_are_refused() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-memory");
    large(&dir);
    let limit =
        ["--kill-after=10", "120", "bash", "-c", "ulimit -v 1500000; exec \"$@\"", "bash", RUNNER];
    let args =
        ["elastic", "plan.json", "--out", "out", "--job", "test-memory", "--", "--threads", "1"];
    let mut command = Command::new("timeout");
    command.args(limit).args(args).envs(pipewright::mpirun::environment());
    let ended = command.current_dir(&dir).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(4), "{said}");
    assert!(said.contains("(stage ") && said.contains(" would need "), "{said}");
    assert!(said.contains(" are left. Use more stages"), "{said}");
    assert_eq!(causes(&dir), [Cause::Failed], "once");
}
