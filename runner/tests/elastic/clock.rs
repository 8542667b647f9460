//! Wall clocks that jump: nothing is decided by them. `clock.c` stands between the job, with all its ranks,
//! and the system's clock.

use crate::common::{scratch, write};
use crate::endings::{LONG, goes_on};
use crate::job::{Job, mpi, ranks, signal, two_by_two};
use pipewright::tools;
use pipewright_runner::elastic::journal::{Cause, Event};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const HOUR: i64 = 3600;

/// The library that is loaded before the system's; `None` where there is no compiler, which is said.
fn library(dir: &Path) -> Option<PathBuf> {
    let Some(compiler) = tools::find("CC", &["clang", "cc", "gcc"]) else {
        tools::skip("compiler of C");
        return None;
    };
    let library = dir.join("clock.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/elastic/clock.c");
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
    assert!(command.status().unwrap().success());
    Some(library)
}

/// Sets the clock ahead.
fn set(clock: &Path, seconds: i64) {
    let file = std::fs::File::options().write(true).open(clock).unwrap();
    file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
}

/// Waits until a second of training has passed, by the job's own record.
fn goes_on_training(job: &mut Job) {
    let step = |event: &Event| match event {
        Event::Training { step, .. } | Event::Progress { step, .. } => Some(*step),
        _ => None,
    };
    let lines = job.journal();
    let now = lines.iter().rev().find_map(|line| step(&line.event)).expect("it trains");
    job.until("progress", |event| step(event).filter(|step| *step > now));
}

/// An hour ahead, an hour behind, a rank lost in between: nobody is given up for it, and each step is made
/// once with the loss of a run without faults.
#[test]
fn a_wall_clock_that_jumps_disturbs_nothing() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-clock");
    let Some(library) = library(&dir) else { return };
    write(&dir, "plan.json", two_by_two(20).to_json());
    let clock = dir.join("clock");
    std::fs::write(&clock, [0; 8]).unwrap();
    let variables = [("LD_PRELOAD", library.as_path()), ("CLOCK", &clock)];
    let mut job = Job::start_in(&variables, &dir, "out", LONG, "");
    job.until_training(1);
    set(&clock, HOUR);
    goes_on_training(&mut job);
    set(&clock, -HOUR);
    goes_on_training(&mut job);
    signal(ranks(&job.name)[3].1, "-KILL");
    job.until_training(2);
    set(&clock, 0);
    goes_on_training(&mut job);
    job.signal("-TERM");
    job.ends(0);
    assert_eq!(job.causes(), [Cause::RankLost, Cause::Stopped]);
    let lines = job.journal();
    assert!(lines.is_sorted_by_key(|line| line.at_ms), "the record's own time");
    let jumps = lines.windows(2).map(|pair| pair[1].unix_ms as i64 - pair[0].unix_ms as i64);
    let jumps: Vec<i64> =
        jumps.map(|ms| ms / 1000 / (HOUR - 600)).filter(|hours| *hours != 0).collect();
    assert_eq!(jumps, [1, -2, 1], "the clock did jump");
    goes_on(&dir, &job);
}
