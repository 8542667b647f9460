//! Error of a report: why a rank's metrics or a trace are not on the disk.

use crate::fence::Fenced;
use thiserror::Error;

/// Why something was not written.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A rank of a generation that was given up.
    #[error("{0}")]
    Fenced(#[from] Fenced),
    /// A file could not be written.
    #[error("{path}: {source}")]
    Write {
        /// Which one.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}
