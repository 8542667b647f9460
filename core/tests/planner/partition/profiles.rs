//! The published profiles that the tables are about.

use pipewright_core::cost::Workload;
use pipewright_core::cost::import::read;

/// `tests/data/profiles/<path>`.
pub fn profile(path: &str) -> Workload {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/profiles/");
    let text = std::fs::read_to_string(format!("{root}{path}")).expect(path);
    read(path, &text).expect("a published profile")
}
