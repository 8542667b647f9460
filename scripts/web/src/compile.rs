//! Runs cargo for wasm32.

use crate::Failure;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is compiled: a package in a profile, and the wasm file that comes out.
pub struct Target {
    pub package: &'static str,
    pub profile: &'static str,
    pub file: &'static str,
    /// How wasm-opt goes on where the profile ends.
    pub optimise: &'static str,
    /// Whether it is split into chunks.
    pub splits: bool,
}

/// The page's application.
pub const APP: Target = Target {
    package: "pipewright-app",
    profile: "web",
    file: "app.wasm",
    optimise: "-Oz",
    splits: true,
};

/// The page's worker: a library, so its file's name has no hyphen.
pub const WORKER: Target = Target {
    package: "pipewright-worker",
    profile: "worker",
    file: "pipewright_worker.wasm",
    optimise: "-O3",
    splits: false,
};

/// Compiles `target` and returns the path of its wasm.
pub fn compile(root: &Path, target: &Target) -> Result<PathBuf, Failure> {
    let Target { package, profile, file, splits, .. } = target;
    let cargo = std::env::var("PIPEWRIGHT_WEB_CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["rustc", "--locked", "-p", package, "--profile", profile])
        .args(["--target", "wasm32-unknown-unknown", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit());
    if *splits {
        // Splitting moves functions and data to other places: it needs to know who refers to them.
        // An argument for the linker alone, so that no dependency is compiled again for it.
        command.args(["--bin", "app", "--", "-Clink-arg=--emit-relocs"]);
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{package} does not compile").into());
    }
    // Ask cargo where the file is: the target folder may be configured anywhere.
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let files = message["filenames"].as_array().into_iter().flatten();
        let mut paths = files.filter_map(|f| f.as_str()).map(Path::new);
        if let Some(path) = paths.find(|path| path.ends_with(file)) {
            return Ok(path.to_path_buf());
        }
    }
    Err(format!("cargo built no {file}").into())
}
