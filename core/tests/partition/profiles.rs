//! The published profiles that the tables are about. Absent files are skipped visibly.

use pipewright_core::cost::Workload;
use pipewright_core::cost::import::read;

/// `../shared/profiles/<path>` beside the repository, if it is there.
pub fn profile(path: &str) -> Option<Workload> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/profiles/");
    match std::fs::read_to_string(format!("{root}{path}")) {
        Ok(text) => Some(read(path, &text).expect("a published profile")),
        Err(_) => {
            println!("SKIPPED {path}: not beside the repository");
            None
        }
    }
}
