//! `runner schema`: the JSON Schema of plan files.

use crate::failure::Failure;
use pipewright_core::plan::Plan;

/// The schema as text.
pub fn text() -> String {
    let schema = schemars::schema_for!(Plan);
    serde_json::to_string_pretty(&schema).expect("plain data") + "\n"
}

/// Runs the command.
pub fn schema() -> Result<(), Failure> {
    super::write_text(std::path::Path::new("-"), &text())
}
