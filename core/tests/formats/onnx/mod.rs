//! ONNX files of both of PyTorch's exporters: what they import as, against PyTorch's own numbers.

mod attributes;
mod broken;
mod built;
mod families;
mod numbers;
mod opaque;
#[path = "../../../src/onnx/proto.rs"]
#[expect(dead_code, reason = "no file of a test has all types of values")]
mod proto;
mod reference;
mod training;

use pipewright_core::onnx::{Imported, Loss, Options, read_with};
use std::path::{Path, PathBuf};

/// A file below `tests/data/onnx`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/onnx").join(name)
}

/// Imports a file.
pub fn import(path: &Path, loss: Loss) -> Imported {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let options = Options { loss, ..Options::default() };
    read_with(bytes, &options, &|_| None).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// How many nodes are of that operation.
pub fn count(imported: &Imported, op: &str) -> usize {
    imported.graph.nodes().iter().filter(|node| node.op.name() == op).count()
}
