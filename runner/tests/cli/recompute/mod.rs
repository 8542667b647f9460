//! `runner recompute`: answers beside an independent checker, bad files, budgets, equal results.

mod answers;
mod endings;
mod files;

use crate::common::{Ended, runner_in};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A graph of `tests/data/recompute`.
pub fn graph(name: &str) -> String {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/recompute");
    format!("{data}/{name}.json.gz")
}

/// The names of all of them.
pub const GRAPHS: [&str; 3] = ["perceptron3", "transformer3", "unet4"];

/// Runs `runner recompute` in `dir`.
pub fn recompute(dir: &Path, graph: &str, args: &[&str]) -> Ended {
    runner_in(dir, &[&["recompute", graph], args].concat())
}

/// The JSON text of a file of gzip.
pub fn unpacked(path: &Path) -> Vec<u8> {
    let file = std::fs::File::open(path).unwrap();
    let mut text = vec![];
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
    text
}

/// A file that is kept beside the repository; says so where it is not.
pub fn shared(file: &str) -> Option<PathBuf> {
    let path = pipewright::tools::root().join("../shared").join(file);
    if !path.exists() {
        let test = std::thread::current().name().unwrap_or("a test").to_string();
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: no {}", path.display());
        return None;
    }
    Some(path)
}

/// What the independent checker says of a graph with `args`; `None` where there is no checker.
pub fn checked(graph: &Path, args: &[&str]) -> Option<Value> {
    let checker = shared("tools/check_sequence.py")?;
    let Some(python) = pipewright::tools::find("PYTHON", &["python3"]) else {
        pipewright::tools::skip("python3");
        return None;
    };
    let output =
        Command::new(python).arg(checker).arg(graph).args(args).arg("--json").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let told = serde_json::from_str(&text);
    Some(told.unwrap_or_else(|_| panic!("{}: {output:?}", graph.display())))
}

/// All graphs that there are: those here, and those beside the repository.
pub fn all_graphs() -> Vec<PathBuf> {
    let mut graphs: Vec<PathBuf> = GRAPHS.iter().map(|name| graph(name).into()).collect();
    for folder in ["graphs", "graphs/moccasin"] {
        let Some(folder) = shared(folder) else { continue };
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        graphs.extend(files.filter(|file| file.extension().is_some_and(|end| end == "gz")));
    }
    graphs.sort();
    graphs
}
