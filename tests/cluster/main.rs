//! Files of `scripts/cluster` for those who run on clusters: batch scripts, manifests, images.

mod image;
mod manifest;
mod slurm;

use pipewright::{Outcome, tools};

/// A file of the repository.
fn text(path: &str) -> Outcome<String> {
    std::fs::read_to_string(tools::root().join(path)).map_err(|e| format!("{path}: {e}").into())
}
