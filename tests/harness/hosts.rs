//! Starts a program under `mpirun` on several hosts: network namespaces with links of a known speed,
//! built by scripts/hosts.sh, which says what they are and what a kernel must allow.

use crate::mpirun::{Run, finish, limited};
use crate::{Outcome, tools};
use std::path::{Path, PathBuf};

/// scripts/hosts.sh's exit code where the kernel refuses.
const REFUSED: i32 = 69;
/// And for a program that is not installed.
const MISSING: i32 = 72;

/// Hosts and what joins them.
#[derive(Clone, Copy, Debug)]
pub struct Hosts<'a> {
    /// How many ranks each host gets, in order of ranks: the first belong to `host1`. A host may
    /// have none.
    pub ranks: &'a [u32],
    /// What a host can send, and also receive, at a time: Mbit/s, all headers included.
    pub mbit: u32,
}

/// What passed a host's cable from before `mpirun` started until after it ended: frames with all
/// their headers. Nothing but MPI's connections between ranks and neighbour discovery, a few
/// KB; the launcher's connections have another cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Bytes that the host sent.
    pub sent: u64,
    /// Bytes that it received.
    pub received: u64,
    /// Frames that found a queue full, in either direction. With any of them, what was sent again
    /// is part of the bytes.
    pub dropped: u64,
}

/// The script, for tests that want another command than `mpirun`.
pub fn script() -> PathBuf {
    tools::root().join("scripts/hosts.sh")
}

/// Runs `program` on the hosts for at most `seconds_max`, in the folder `dir`, which all hosts see.
/// Leaves `wire.txt` there. Returns how it ended and each host's traffic.
///
/// `None` where MPI or iproute2 is not installed or the kernel refuses (the skip has been reported,
/// or has panicked). A run that exceeds its time is an error that quotes the output; whatever
/// happens, no process and no interface stays.
pub fn mpirun(
    hosts: Hosts,
    program: &Path,
    args: &[&str],
    dir: &Path,
    seconds_max: u32,
) -> Outcome<Option<(Run, Vec<Wire>)>> {
    let Some(mpirun) = tools::find("MPIRUN", &["mpirun"]) else {
        tools::skip("mpirun");
        return Ok(None);
    };
    let used = hosts.ranks.iter().enumerate().filter(|(_, ranks)| **ranks > 0);
    let slots: Vec<_> = used.map(|(i, ranks)| format!("host{}:{ranks}", i + 1)).collect();
    let ranks: u32 = hosts.ranks.iter().sum();
    let count_after = r#""$@"; code=$?; wire >wire.txt; exit $code"#;
    let mut command = limited(seconds_max);
    command.arg(script()).args([hosts.ranks.len().to_string(), hosts.mbit.to_string()]);
    command.args(["bash", "-c", count_after, "bash"]).arg(mpirun);
    command.args(["--host", &slots.join(","), "-n", &ranks.to_string()]).arg(program).args(args);
    let run = finish(command.current_dir(dir), seconds_max)?;
    if skipped(run.status.code(), &run.stderr) {
        return Ok(None);
    }
    let counted = std::fs::read_to_string(dir.join("wire.txt"))?;
    let wire = counted.lines().map(|line| wire(line).ok_or(format!("{line:?}: {run:#?}").into()));
    let wire = wire.collect::<Outcome<Vec<_>>>()?;
    assert_eq!(wire.len(), hosts.ranks.len(), "a line for each host: {counted}");
    Ok(Some((run, wire)))
}

/// Whether scripts/hosts.sh ended with `code` before its command began; says why.
pub fn skipped(code: Option<i32>, stderr: &str) -> bool {
    let said = stderr.trim_end();
    match code {
        Some(REFUSED) if said.starts_with("hosts.sh: ") => tools::refused(said),
        Some(MISSING) if said.starts_with("hosts.sh: ") => tools::skip("iproute2"),
        _ => return false,
    }
    true
}

fn wire(line: &str) -> Option<Wire> {
    let mut numbers = line.split(' ').skip(1).map(|number| number.parse().ok());
    let mut next = || numbers.next()?;
    Some(Wire { sent: next()?, received: next()?, dropped: next()? })
}
