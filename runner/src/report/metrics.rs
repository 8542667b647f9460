//! Metrics of one rank: a JSON object a line in `rank-NNN.jsonl`.

use super::ReportError;
use super::lines::Lines;
use crate::fence::Fence;
use pipewright_core::adapt::Chosen;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The file of choices in a run's folder.
pub(super) const CHOICES: &str = "choices.jsonl";

/// Who looks on while a run goes on is no further behind than this and a step.
const BEHIND: Duration = Duration::from_millis(200);

/// Where a rank's metrics go.
pub struct Metrics {
    file: Option<Lines>,
    /// When the last lines were handed to the system.
    flushed: Option<Instant>,
    /// Where rank 0 keeps choices; the file is made with the first.
    folder: Option<PathBuf>,
    choices: Option<File>,
    /// Whether this rank may still write, in an elastic job.
    fence: Option<Fence>,
}

/// A choice of the way of gradients, with all that led to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// Steps that were trained before.
    pub step: u64,
    /// What was chosen.
    pub way: String,
    /// Time of the trials, less that of the steps that count: those of the chosen one.
    pub spent_ns: u64,
    /// The figures: [`pipewright_core::adapt::Round::decide`] of its round comes to the same.
    pub chosen: Chosen,
}

/// One step of one rank, as it stands in the file. Files of earlier versions lack some fields.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StepRecord {
    /// Which, from 0.
    pub step: u64,
    /// Which generation of an elastic job made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Mean over the mini-batch; none where nothing is trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Correct predictions of the mini-batch, 0 to 1; none where nothing is classified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The step's learning rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Length of the gradient before clipping, where the plan has somebody look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
    /// Whether it changed nothing because its gradient was not finite.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// The factor of the loss in the step, where the plan's precision needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f32>,
    /// What messages between stages lost of their values by being encoded, relative to them; none
    /// where they travel as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_error: Option<f64>,
    /// Which of the plan's ways gradients took, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<u32>,
    /// Bytes of encoded gradients that this rank sent, counted where they were handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded_bytes: Option<u64>,
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
        Self { file: None, flushed: None, folder: None, choices: None, fence: None }
    }

    /// Begins `rank-NNN.jsonl` in `folder`, or goes on with it where steps before `first_step`
    /// are in it already.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(
        folder: &Path,
        rank: u32,
        first_step: u64,
        fence: Option<Fence>,
    ) -> Result<Self, ReportError> {
        fence.as_ref().map_or(Ok(()), Fence::check)?;
        let path = folder.join(format!("rank-{rank:03}.jsonl"));
        let open = |path: &Path| {
            let failed = |source| ReportError::Write { path: path.display().to_string(), source };
            continued(path, first_step).map_err(failed)
        };
        let file = open(&path)?;
        let choices = folder.join(CHOICES);
        let choices = match rank == 0 && (first_step > 0 && choices.exists()) {
            true => Some(open(&choices)?),
            false => None,
        };
        let folder = (rank == 0).then(|| folder.to_owned());
        let lines = Lines::new(path, file, fence.is_some());
        Ok(Self { file: Some(lines), flushed: None, choices, folder, fence })
    }

    /// Adds a choice; rank 0 alone keeps them.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn choice(&mut self, choice: &Choice) -> Result<(), ReportError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        self.fence.as_ref().map_or(Ok(()), Fence::check)?;
        let path = folder.join(CHOICES);
        let failed = |source| ReportError::Write { path: path.display().to_string(), source };
        let file = match &mut self.choices {
            Some(file) => file,
            None => self.choices.insert(File::create(&path).map_err(failed)?),
        };
        let text = serde_json::to_string(choice).expect("plain data") + "\n";
        file.write_all(text.as_bytes()).map_err(failed)
    }

    /// Hands all lines to the system.
    ///
    /// # Errors
    /// When the disk does not take them.
    pub fn flush(&mut self) -> Result<(), ReportError> {
        let Some(lines) = &mut self.file else { return Ok(()) };
        self.fence.as_ref().map_or(Ok(()), Fence::check)?;
        lines.flush()
    }

    /// Adds a step; its moment is now.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn step(&mut self, record: StepRecord) -> Result<(), ReportError> {
        let Some(lines) = &mut self.file else { return Ok(()) };
        self.fence.as_ref().map_or(Ok(()), Fence::check)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let record = StepRecord { unix_ms: Some(now.as_millis() as u64), ..record };
        lines.push(&record);
        if self.flushed.is_none_or(|moment| moment.elapsed() >= BEHIND) {
            self.flushed = Some(Instant::now());
            self.flush()?;
        }
        Ok(())
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
