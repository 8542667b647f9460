//! Metrics of one rank: a JSON object a line in `rank-NNN.jsonl`.

use crate::execute::RunError;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where a rank's metrics go.
pub struct Metrics {
    file: Option<(PathBuf, BufWriter<File>)>,
}

/// One step of one rank, as it stands in the file. Files of earlier versions lack some fields.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StepRecord {
    /// Which, from 0.
    pub step: u64,
    /// Mean over the mini-batch; none where nothing is trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Correct predictions of the mini-batch, 0 to 1; none where nothing is classified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The step's learning rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Length of the gradient before clipping, where it is clipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
    /// What messages between stages lost of their values by being encoded, relative to them; none
    /// where they travel as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_error: Option<f64>,
    /// Mean loss of the test samples after the step, where they were evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// Correct predictions of them, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// From the end of the step before to the end of this one.
    pub step_ns: u64,
    /// Time that this rank computed.
    pub busy_ns: u64,
    /// Time that this rank waited for samples and copied them.
    #[serde(default)]
    pub input_ns: u64,
    /// When it was written: milliseconds since 1970 by this rank's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_ms: Option<u64>,
}

impl Metrics {
    /// Metrics that go nowhere.
    pub fn none() -> Self {
        Self { file: None }
    }

    /// Begins `rank-NNN.jsonl` in `folder`, or goes on with it where steps before `first_step`
    /// are in it already.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(folder: &Path, rank: u32, first_step: u64) -> Result<Self, RunError> {
        let path = folder.join(format!("rank-{rank:03}.jsonl"));
        match continued(&path, first_step) {
            Ok(file) => Ok(Self { file: Some((path, BufWriter::new(file))) }),
            Err(source) => Err(RunError::Write { path: path.display().to_string(), source }),
        }
    }

    /// Hands all lines to the system.
    ///
    /// # Errors
    /// When the disk does not take them.
    pub fn flush(&mut self) -> Result<(), RunError> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        file.flush().map_err(|source| RunError::Write { path: path.display().to_string(), source })
    }

    /// Adds a step; its moment is now.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn step(&mut self, record: StepRecord) -> Result<(), RunError> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let record = StepRecord { unix_ms: Some(now.as_millis() as u64), ..record };
        serde_json::to_writer(&mut *file, &record)
            .map_err(std::io::Error::from)
            .and_then(|()| file.write_all(b"\n"))
            .map_err(|source| RunError::Write { path: path.display().to_string(), source })
    }
}

/// The file with its lines of steps before `first_step`, to be written on behind them. A run that
/// was killed may have left half a line and steps after the checkpoint that is continued.
fn continued(path: &Path, first_step: u64) -> std::io::Result<File> {
    #[derive(Deserialize)]
    struct Step {
        step: u64,
    }
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut lines = BufReader::new(&file);
    let (mut end, mut line) = (0, vec![]);
    while lines.read_until(b'\n', &mut line)? > 0 {
        let step = serde_json::from_slice(&line).ok().filter(|_| line.ends_with(b"\n"));
        if step.is_none_or(|Step { step }| step >= first_step) {
            break;
        }
        end += line.len() as u64;
        line.clear();
    }
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    Ok(file)
}
