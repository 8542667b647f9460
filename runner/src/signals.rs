//! Signals that ask a command to end in order.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::c_int;
use std::fs::File;
use std::io::IsTerminal;

/// SIGINT and SIGTERM, and SIGHUP, the end of the terminal, unless whoever started this process had it
/// ignored, as nohup does.
pub fn ends() -> Vec<c_int> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn is_ignored(status: &str, signal: c_int) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}

/// Lets what is printed go nowhere where it went to a terminal: there is none any more, and to print would
/// be an error in the middle of what is still to be saved.
pub fn without_terminal() {
    let Ok(nowhere) = File::options().write(true).open("/dev/null") else { return };
    // Where it cannot be done it was no terminal.
    if std::io::stdout().is_terminal() {
        let _ = rustix::stdio::dup2_stdout(&nowhere);
    }
    if std::io::stderr().is_terminal() {
        let _ = rustix::stdio::dup2_stderr(&nowhere);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_told_by_their_bit() {
        let of = |mask: &str| {
            is_ignored(&format!("Name:\trunner\nSigIgn:\t{mask}\nSigCgt:\t1\n"), SIGHUP)
        };
        assert!(of("0000000000000001") && of("0000000000001001"));
        assert!(!of("0000000000001000") && !of("x") && !is_ignored("", SIGHUP));
    }
}
