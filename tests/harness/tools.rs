//! Outside programs: where they are, and what a test does without them.

use crate::Outcome;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// `make test` sets this after it installed everything: from then on nothing may be skipped.
const REQUIRE_ALL: &str = "PIPEWRIGHT_REQUIRE_ALL";

/// The program named by the environment variable `variable`, else the first of `names` on PATH.
pub fn find(variable: &str, names: &[&str]) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(PathBuf::from(path));
    }
    let path = std::env::var_os("PATH")?;
    names.iter().find_map(|name| {
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
    })
}

/// Says that a test did not run for want of `what`; panics where skipping is forbidden.
///
/// Writes to the stream itself: the test runner hides `eprintln!` of tests that pass, and a skip
/// that nobody sees is a pass.
pub fn skip(what: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    if std::env::var_os(REQUIRE_ALL).is_some_and(|value| value == "1") {
        panic!("{test} needs {what}, and {REQUIRE_ALL}=1 forbids to skip it");
    }
    writeln!(std::io::stderr(), "SKIPPED: {test}: no {what}; `make setup` installs it").ok();
}

/// Says that a test did not run because the kernel refuses it: `why`. Passes even where skipping is
/// forbidden, since nothing that could be installed would help.
pub fn refused(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    writeln!(std::io::stderr(), "SKIPPED: {test}: {why}").ok();
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// An empty folder for one test, below cargo's target folder: a browser installed as a snap may
/// read neither the system's temporary folder nor hidden ones. No two calls get the same one, even
/// by the same name.
pub fn scratch(name: &str) -> std::io::Result<PathBuf> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let program = std::env::current_exe()?;
    // target/debug/deps/program-hash
    let target = program.ancestors().nth(3).unwrap_or(root());
    let dir = target.join("tmp").join(format!("{name}-{}-{call}", std::process::id()));
    std::fs::remove_dir_all(&dir).ok();
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Copies a folder with what is below it, but only files and folders of `wanted` names.
pub fn copy(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (name, target) = (entry.file_name(), to.join(entry.file_name()));
        if !wanted(&name.to_string_lossy()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target, wanted)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The runner that cargo built beside this test.
pub fn runner() -> Outcome<PathBuf> {
    let program = std::env::current_exe()?;
    let runner = program.ancestors().nth(2).map(|dir| dir.join("runner"));
    match runner.filter(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => Err("no runner beside the tests: cargo build -p pipewright-runner".into()),
    }
}
