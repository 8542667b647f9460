//! `runner bench`: codecs and sums of gradients, measured.

mod allreduce;
mod codecs;
mod gradient;

use super::write_text;
use crate::args::{Bench, BenchArgs};
use crate::failure::Failure;
use serde::Serialize;
use std::path::Path;

/// Runs the command.
pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    match &args.what {
        Bench::Allreduce(args) => allreduce::allreduce(args),
        Bench::Codecs(args) => codecs::codecs(args),
    }
}

/// Whether the table is printed while it is made: JSON takes its place at `-`.
fn prints_table(json: Option<&Path>) -> bool {
    json != Some(Path::new("-"))
}

/// Writes rows as JSON, where asked for.
fn write_json(path: Option<&Path>, rows: &impl Serialize) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(rows).expect("rows are plain numbers and texts");
    write_text(path, &(text + "\n"))
}

/// Bytes a second, as tables show them.
fn gigabytes(per_second: f64) -> String {
    format!("{:.3}", per_second / 1e9)
}
