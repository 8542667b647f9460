//! What the page weighs, against its budgets.

use crate::Failure;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The wasm that every visitor waits for, compressed: about two seconds on a slow phone line
/// (2 Mbit/s).
const WASM_BUDGET: usize = 500_000;
/// Page, style and glue together, compressed.
const REST_BUDGET: usize = 40_000;
/// The worker, compressed: whoever starts a search has the page already and waits for this alone.
const WORKER_BUDGET: usize = 200_000;

/// The lines of the summary, with their budgets.
const PARTS: [(&str, usize); 3] =
    [("wasm", WASM_BUDGET), ("page, style and glue", REST_BUDGET), ("worker", WORKER_BUDGET)];

/// Prints a table of `files` and fails when a budget is exceeded.
pub fn report(dist: &Path, files: &[PathBuf]) -> Result<(), Failure> {
    let mut sizes = [0; PARTS.len()];
    println!("{:>10} {:>10}  file", "raw", "gzip");
    for file in files {
        let bytes = std::fs::read(dist.join(file))?;
        let packed = gzip_len(&bytes)?;
        println!("{:>10} {:>10}  {}", bytes.len(), packed, file.display());
        sizes[part(file)] += packed;
    }
    for ((what, budget), size) in PARTS.into_iter().zip(sizes) {
        println!("{what}: {size} of {budget} bytes compressed");
        if size >= budget {
            return Err(format!("{what} is over its budget by {} bytes", size - budget + 1).into());
        }
    }
    Ok(())
}

/// The index in [`PARTS`] of what a bundled file counts towards.
fn part(file: &Path) -> usize {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let is_worker = name.starts_with("worker-") || name.starts_with("pipewright_worker");
    match (is_worker, name.ends_with(".wasm")) {
        (true, _) => 2,
        (false, true) => 0,
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
    fn the_worker_counts_by_itself() {
        let of = |name: &str| PARTS[part(Path::new(name))].0;
        assert_eq!(of("app_bg-1.wasm"), "wasm");
        for name in ["app-1.js", "style-1.css", "index.html", "snippets/a/inline0.js"] {
            assert_eq!(of(name), "page, style and glue");
        }
        for name in ["worker-1.js", "pipewright_worker-1.js", "pipewright_worker_bg-1.wasm"] {
            assert_eq!(of(name), "worker");
        }
    }
}
