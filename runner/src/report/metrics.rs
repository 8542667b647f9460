//! Metrics of one rank: a JSON object a line in `rank-NNN.jsonl`.

use crate::execute::{RunError, StepCounts};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where a rank's metrics go.
pub struct Metrics {
    file: Option<(PathBuf, BufWriter<File>)>,
}

/// One step.
#[derive(Serialize)]
struct Line {
    step: u64,
    /// Mean over the mini-batch.
    loss: f64,
    /// Correct predictions of the mini-batch, 0 to 1.
    accuracy: f64,
    /// From the end of the step before to the end of this one.
    step_ns: u64,
    /// Time that this rank computed.
    busy_ns: u64,
}

impl Metrics {
    /// Metrics that go nowhere.
    pub fn none() -> Self {
        Self { file: None }
    }

    /// Begins `rank-NNN.jsonl` in `folder`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(folder: &Path, rank: u32) -> Result<Self, RunError> {
        let path = folder.join(format!("rank-{rank:03}.jsonl"));
        match File::create(&path) {
            Ok(file) => Ok(Self { file: Some((path, BufWriter::new(file))) }),
            Err(source) => Err(RunError::Write { path: path.display().to_string(), source }),
        }
    }

    /// Adds a step.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn step(
        &mut self,
        step: u64,
        loss: f64,
        accuracy: f64,
        step_ns: u64,
        counts: StepCounts,
    ) -> Result<(), RunError> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let line = Line { step, loss, accuracy, step_ns, busy_ns: counts.busy_ns };
        serde_json::to_writer(&mut *file, &line)
            .map_err(std::io::Error::from)
            .and_then(|()| file.write_all(b"\n"))
            .map_err(|source| RunError::Write { path: path.display().to_string(), source })
    }
}
