//! Sizes of the page, against its budgets.

use crate::Failure;
use crate::compile::Care;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The wasm that every visitor waits for, compressed: about two seconds on a slow phone line
/// (2 Mbit/s).
const WASM_BUDGET: usize = 497_000;
/// Page, style and glue together, compressed.
const REST_BUDGET: usize = 40_000;
/// The worker, compressed: whoever starts a search has the page already and waits for this alone. It
/// holds lowering, simulation and the search for sequences, as it predicts what it proposes, and draws every
/// schedule; plans have tensor groups, slices of sequences and divided updates by now.
const WORKER_BUDGET: usize = 581_000;

/// A chunk, compressed: it hides behind the first click that needs it, half a second on that line.
const CHUNK_BUDGET: usize = 160_000;
/// The interpreter of policies written as scripts, compressed: who writes one waits for it once.
const SCRIPTS_BUDGET: usize = 270_000;
/// The import of networks, compressed: whoever drops an ONNX file or a config.json waits for it once. What it takes
/// to undo what exporters change, and to price what is not supported, brought it over the budget of the others.
const NETWORKS_BUDGET: usize = 205_000;
/// All chunks together, compressed; nobody needs all of them at once.
const CHUNKS_BUDGET: usize = 1_667_500;

/// Texts in other languages than English, compressed: who speaks one waits for it before the first picture. A
/// quarter of them are core's sentences.
const TEXTS_BUDGET: usize = 45_000;

/// The run that the Run screen shows on demand, compressed: a second on that line.
const EXAMPLE_BUDGET: usize = 50_000;

/// The lines of the summary, with their budgets.
const PARTS: [(&str, usize); 6] = [
    ("wasm", WASM_BUDGET),
    ("page, style and glue", REST_BUDGET),
    ("chunks, loaded when needed", CHUNKS_BUDGET),
    ("worker", WORKER_BUDGET),
    ("texts in other languages", TEXTS_BUDGET),
    ("example run", EXAMPLE_BUDGET),
];

/// Prints a table of `files` and fails when a budget of the published page is exceeded.
pub fn report(dist: &Path, files: &[PathBuf], care: Care) -> Result<(), Failure> {
    let mut sizes = [0; PARTS.len()];
    println!("{:>10} {:>10}  file", "raw", "gzip");
    for file in files {
        let bytes = std::fs::read(dist.join(file))?;
        let packed = gzip_len(&bytes)?;
        println!("{:>10} {:>10}  {}", bytes.len(), packed, file.display());
        sizes[part(file)] += packed;
        let budget = chunk_budget(file);
        let chunk = care == Care::Published && PARTS[part(file)].0.starts_with("chunks");
        if chunk && packed >= budget {
            let over = packed - budget + 1;
            return Err(format!("{} is over its budget by {over} bytes", file.display()).into());
        }
    }
    for ((what, budget), size) in PARTS.into_iter().zip(sizes) {
        println!("{what}: {size} of {budget} bytes compressed");
        if care == Care::Published && size >= budget {
            return Err(format!("{what} is over its budget by {} bytes", size - budget + 1).into());
        }
    }
    Ok(())
}

/// What a chunk may weigh.
fn chunk_budget(file: &Path) -> usize {
    match file.file_name().and_then(|name| name.to_str()) {
        Some("split_scripts.wasm") => SCRIPTS_BUDGET,
        Some("split_networks.wasm") => NETWORKS_BUDGET,
        _ => CHUNK_BUDGET,
    }
}

/// The index in [`PARTS`] of what a bundled file counts towards.
fn part(file: &Path) -> usize {
    let path = file.to_string_lossy();
    let chunk = path.ends_with(".wasm") || path.ends_with(".bin");
    match (path.ends_with("app_bg.wasm"), chunk) {
        _ if path.starts_with("worker-") => 3,
        _ if path.starts_with("ja-") => 4,
        _ if path.ends_with(".json") || path.ends_with(".jsonl") => 5,
        (true, _) => 0,
        (false, true) => 2,
        (false, false) => 1,
    }
}

fn gzip_len(bytes: &[u8]) -> Result<usize, Failure> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes)?;
    Ok(out.finish()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_first_load_does_not_need_counts_by_itself() {
        let of = |name: &str| PARTS[part(Path::new(name))].0;
        assert_eq!(of("app-1/app_bg.wasm"), "wasm");
        assert_eq!(of("app-1/split_help_1.wasm"), "chunks, loaded when needed");
        for name in ["app-1/app.js", "app-1/snippets/a/inline0.js", "style-1.css", "index.html"] {
            assert_eq!(of(name), "page, style and glue");
        }
        assert_eq!(of("ja-1.json"), "texts in other languages");
        assert_eq!((of("trace-1.json"), of("rank-000-1.jsonl")), ("example run", "example run"));
        for name in ["worker-1/worker.js", "worker-1/pipewright_worker_bg.wasm"] {
            assert_eq!(of(name), "worker");
        }
    }
}
