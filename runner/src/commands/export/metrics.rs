//! The metrics of a run for TensorBoard and for tables.

use crate::failure::Failure;
use crate::files;
use crate::report::{self, HistoryStep, events, file_name};
use std::path::{Path, PathBuf};

/// Writes an event file into `folder`, which `tensorboard --logdir` takes; returns its path.
pub(super) fn tensorboard(run: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    let history = history(run)?;
    let path = folder.join(file_name(&history));
    files::replace(&path, events(&history)).map_err(|e| Failure::file(&path, &e))?;
    Ok(path)
}

/// Writes a table.
pub(super) fn csv(run: &Path, file: &Path) -> Result<(), Failure> {
    super::super::write_text(file, &report::csv(&history(run)?))
}

fn history(run: &Path) -> Result<Vec<HistoryStep>, Failure> {
    report::history(run).map_err(|e| Failure::usage(e.to_string()))
}
