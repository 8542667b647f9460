//! Runs cargo for wasm32.

use crate::Failure;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packages that the worker has at another level than the page: what it spends its time in. It
/// searches for as long as one lets it, and is fetched when the first search starts. Not at the highest level:
/// searches would be a quarter faster, and the worker a tenth over its budget.
const FAST: [&str; 6] = [
    "pipewright-core",
    "pipewright-meter",
    "pipewright-yardsticks",
    "libm",
    "ppv-lite86",
    "rand_chacha",
];

/// What is compiled: a package, and the wasm file that comes out.
pub struct Target {
    pub package: &'static str,
    pub file: &'static str,
    /// The package's feature that is off in native builds.
    pub feature: Option<&'static str>,
    /// Whether [`FAST`] is compiled for speed instead of size.
    pub fast: bool,
    /// How wasm-opt goes on where the profile ends.
    pub optimise: &'static str,
    /// Whether it is split into chunks.
    pub splits: bool,
}

/// The page's application.
pub const APP: Target = Target {
    package: "pipewright-app",
    file: "app.wasm",
    feature: Some("page"),
    fast: false,
    optimise: "-Oz",
    splits: true,
};

/// The page's worker: a library, so its file's name has no hyphen.
pub const WORKER: Target = Target {
    package: "pipewright-worker",
    file: "pipewright_worker.wasm",
    feature: Some("worker"),
    fast: true,
    optimise: "-O3",
    splits: false,
};

/// Measures for tests, compiled as the worker is.
pub const METER: Target =
    Target { package: "pipewright-meter", file: "pipewright_meter.wasm", feature: None, ..WORKER };

/// How much care is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Care {
    /// The page that is published: all crates are optimised as one, on one core, and what comes out
    /// once more by wasm-opt.
    Published,
    /// A page for looking at, soon: each crate is optimised a little and by itself, and there is no wasm-opt.
    Quick,
}

impl Care {
    /// The profile of everything in the browser. Page and worker share it, and with it the folder and the
    /// dependencies that both have.
    fn profile(self) -> &'static str {
        match self {
            Self::Published => "web",
            Self::Quick => "look",
        }
    }
}

/// Flags by which panics name a dependency's file without this machine's folders: the page has the same bytes wherever
/// it is built, and fewer.
fn unrooted() -> Vec<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let sources = home.and_then(|home| std::fs::read_dir(home.join("registry/src")).ok());
    let folders = sources.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let flag = |folder: PathBuf| format!("--remap-path-prefix={}/=", folder.display());
    let mut flags: Vec<String> = folders.map(flag).collect();
    flags.sort();
    flags
}

/// Compiles `target` and returns the path of its wasm.
pub fn compile(root: &Path, target: &Target, care: Care) -> Result<PathBuf, Failure> {
    let Target { package, file, feature, fast, splits, .. } = target;
    let cargo = std::env::var("PIPEWRIGHT_WEB_CARGO").unwrap_or_else(|_| "cargo".into());
    let profile = care.profile();
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["rustc", "--locked", "-p", package, "--profile", profile])
        .args(["--target", "wasm32-unknown-unknown", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit());
    if let Some(feature) = feature {
        command.args(["--features", feature]);
    }
    for name in FAST.into_iter().filter(|_| *fast && care == Care::Published) {
        command.arg("--config").arg(format!("profile.{profile}.package.{name}.opt-level=\"s\""));
    }
    command
        .arg("--config")
        .arg(format!("target.wasm32-unknown-unknown.rustflags={:?}", unrooted()));
    // Said here and not in the manifest: a library for Rust as well is not optimised together with its
    // dependencies, so it needs others than the page, and its file is that of the page's own copy.
    command.args(if *splits { ["--bin", "app"] } else { ["--crate-type", "cdylib"] });
    // From here on arguments are for the last crate alone: no dependency is compiled again for them.
    command.arg("--");
    if *splits {
        // Splitting moves functions and data to other places: it needs to know who refers to them.
        command.arg("-Clink-arg=--emit-relocs");
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
