//! What the page weighs, against its budgets.

use crate::Failure;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The wasm, compressed: about two seconds on a slow phone line (2 Mbit/s).
const WASM_BUDGET: usize = 500_000;
/// Page, style and glue together, compressed.
const REST_BUDGET: usize = 40_000;

/// Prints a table of `files` and fails when a budget is exceeded.
pub fn report(dist: &Path, files: &[PathBuf]) -> Result<(), Failure> {
    let (mut wasm, mut rest) = (0, 0);
    println!("{:>10} {:>10}  file", "raw", "gzip");
    for file in files {
        let bytes = std::fs::read(dist.join(file))?;
        let packed = gzip_len(&bytes)?;
        println!("{:>10} {:>10}  {}", bytes.len(), packed, file.display());
        match file.extension().is_some_and(|e| e == "wasm") {
            true => wasm += packed,
            false => rest += packed,
        }
    }
    for (what, size, budget) in
        [("wasm", wasm, WASM_BUDGET), ("page, style and glue", rest, REST_BUDGET)]
    {
        println!("{what}: {size} of {budget} bytes compressed");
        if size >= budget {
            return Err(format!("{what} is over its budget by {} bytes", size - budget + 1).into());
        }
    }
    Ok(())
}

fn gzip_len(bytes: &[u8]) -> Result<usize, Failure> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes)?;
    Ok(out.finish()?.len())
}
