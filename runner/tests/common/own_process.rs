//! A process of its own for a test that changes or measures what a whole process has.

use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Set in such a process.
const MARK: &str = "PIPEWRIGHT_TEST_OF_ITS_OWN";

/// Whether this process is the test's own, with `variables` in its environment. If not, the test that
/// asks is run in one, and has passed there when this returns.
pub fn is_own(variables: impl IntoIterator<Item = (String, OsString)>) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let test = std::thread::current().name().expect("a test's thread has its name").to_owned();
    let output = Command::new(std::env::current_exe().unwrap())
        // Of one thread nobody says after a minute that it still runs: the process stays quiet.
        .args([&test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .envs(variables)
        .stdin(Stdio::null())
        // What is skipped is seen at once.
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(output.status.success(), "{test} in a process of its own: {}", output.status);
    assert!(said.contains("\ntest result: ok. 1 passed; 0 failed;"), "{test}: {said}");
    false
}
