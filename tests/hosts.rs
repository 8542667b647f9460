//! Hosts in network namespaces: each is a machine of its own for MPI, and none outlives its test.
//!
//! `make test` runs these; by hand: `cargo test --test hosts -- --ignored`.

use pipewright::hosts::{Hosts, mpirun, script, skipped};
use pipewright::{Outcome, tools};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the kernel may take to start or to end processes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs root or user namespaces: make test"]
fn each_host_has_its_ranks_and_its_name() -> Outcome<()> {
    let dir = tools::scratch("hosts-ranks")?;
    let who = "echo $(hostname) $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_LOCAL_RANK";
    let hosts = Hosts { ranks: &[2, 0, 1], mbit: 1000 };
    let Some((run, wire)) = mpirun(hosts, Path::new("sh"), &["-c", who], &dir, 60)? else {
        return Ok(());
    };
    let mut lines: Vec<_> = run.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["host1 0 0", "host1 1 1", "host3 2 0"], "{run:#?}");
    // No rank spoke MPI: what the launcher said went over its own cable.
    assert!(wire.iter().all(|host| host.sent < 8192 && host.received < 8192), "{wire:?}");
    Ok(std::fs::remove_dir_all(dir)?)
}

#[test]
#[ignore = "needs root or user namespaces: make test"]
fn exit_codes_are_those_of_the_command() -> Outcome<()> {
    for (args, code) in [
        (&["1", "100", "sh", "-c", "exit 7"][..], 7),
        (&["0", "100", "true"], 64),
        (&["1", "1gbit", "true"], 64),
        (&["1", "100"], 64),
    ] {
        let output = Command::new(script()).args(args).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if skipped(output.status.code(), &stderr) {
            return Ok(());
        }
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    }
    Ok(())
}

/// Killed, it can clean nothing up: the kernel does.
#[test]
#[ignore = "needs root or user namespaces: make test"]
fn nothing_survives_a_kill() -> Outcome<()> {
    // A time that nobody else sleeps, as a name of the process.
    let time = format!("{}.25", 100_000 + std::process::id());
    let mut hosts = Command::new(script())
        .args(["2", "100", "on", "host2", "sleep", &time])
        .stderr(Stdio::piped())
        .spawn()?;
    let begin = Instant::now();
    while !sleeps(&time)? {
        if hosts.try_wait()?.is_some() {
            let output = hosts.wait_with_output()?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(skipped(output.status.code(), &stderr), "{}: {stderr}", output.status);
            return Ok(());
        }
        assert!(begin.elapsed() < PATIENCE, "the command does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    hosts.kill()?;
    hosts.wait()?;
    let begin = Instant::now();
    while sleeps(&time)? {
        assert!(begin.elapsed() < PATIENCE, "`sleep {time}` outlives its host");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether a process sleeps for just so long.
fn sleeps(time: &str) -> Outcome<bool> {
    let wanted = format!("sleep\0{time}\0").into_bytes();
    for process in std::fs::read_dir("/proc")? {
        // Processes end while this looks at them.
        if std::fs::read(process?.path().join("cmdline")).is_ok_and(|line| line == wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}
