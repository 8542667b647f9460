//! The folder of a run: `rank-NNN.jsonl`, `trace.json`, `result.json`, `checkpoints`.

use crate::args::RunArgs;
use crate::checkpoint::{CheckpointError, has_checkpoints, remove_all};
use crate::failure::{Code, Failure};
use crate::fence::{Fence, Fenced};
use crate::files;
use crate::lock::Lock;
use crate::report::{Difference, Metrics, Outcome, ReportError, ResultRecord, Status};
use crate::train::TrainError;
use pipewright_core::predict::{Prediction, Throughput};
use pipewright_core::timeline::{Trace, chrome};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where a run's files go, if anywhere.
pub(super) struct Output {
    folder: Option<PathBuf>,
    predicted_step_ns: u64,
    predicted_bubble: f64,
    fence: Option<Fence>,
    talks: OnceLock<String>,
    /// Keeps others out of the folder for as long as this run goes on; a supervisor does for its ranks.
    lock: OnceLock<Lock>,
}

impl Output {
    pub fn new(args: &RunArgs, prediction: &Prediction, fence: Option<Fence>) -> Self {
        Self {
            folder: args.out.clone(),
            predicted_step_ns: prediction.timeline.step.0,
            predicted_bubble: prediction.timeline.bubble(),
            fence,
            talks: OnceLock::new(),
            lock: OnceLock::new(),
        }
    }

    /// How GPUs talk to each other, for the record: what the first rank of this process says.
    pub fn talks(&self, name: String) {
        let _ = self.talks.set(name);
    }

    /// Where a rank's metrics go, from `first_step` on.
    pub fn metrics(&self, rank: u32, first_step: u64) -> Result<Metrics, ReportError> {
        match &self.folder {
            Some(folder) => Metrics::create(folder, rank, first_step, self.fence.clone()),
            None => Ok(Metrics::none()),
        }
    }

    fn record(&self, status: Status) -> ResultRecord {
        let generation = self.fence.as_ref().map(Fence::generation);
        let record = ResultRecord::new(status, self.predicted_step_ns, self.predicted_bubble);
        ResultRecord { generation, transport: self.talks.get().cloned(), ..record }
    }

    /// Refuses to write where this run is of a generation that was given up.
    fn may_write(&self) -> Result<(), Failure> {
        let fenced = |e: Fenced| Failure::new(Code::Peers, e.to_string());
        self.fence.as_ref().map_or(Ok(()), Fence::check).map_err(fenced)
    }

    /// Makes the folder and the record that says that a run began. An earlier run in it stays
    /// unless `overwrite`, or unless this run `continues` it on so many ranks.
    pub fn begin(&self, overwrite: bool, continues: Option<u32>) -> Result<(), Failure> {
        let Some(folder) = &self.folder else { return Ok(()) };
        self.may_write()?;
        let checkpoints = |e: CheckpointError| Failure::usage(e.to_string());
        let earlier =
            folder.join("result.json").exists() || has_checkpoints(folder).map_err(checkpoints)?;
        if earlier && !overwrite && continues.is_none() {
            return Err(Failure::usage(format!(
                "{} holds an earlier run; choose another --out, or replace it with --overwrite",
                folder.display()
            )));
        }
        std::fs::create_dir_all(folder).map_err(|e| Failure::file(folder, &e))?;
        if self.fence.is_none()
            && let Some(lock) =
                Lock::take(folder, None).map_err(|e| Failure::usage(e.to_string()))?
        {
            let _ = self.lock.set(lock);
        }
        if continues.is_none() {
            remove_all(folder).map_err(checkpoints)?;
        }
        remove_run(folder, continues.unwrap_or(0))?;
        match self.record(Status::Running).write(folder) {
            // The supervisor knows that it runs. The state is in memory, and the disk may take more later.
            Err(e) if self.fence.is_some() => {
                warn!("{}: {e}; training goes on", folder.join("result.json").display());
                Ok(())
            }
            written => written.map_err(|e| Failure::file(folder, &e)),
        }
    }

    /// Writes the record of a run that failed. Another rank may have failed first; the cause is
    /// kept, not what follows from it.
    pub fn fail(&self, error: &TrainError) {
        let Some(folder) = &self.folder else { return };
        if super::caused_by_peer(error) || self.may_write().is_err() {
            return;
        }
        let mut record = self.record(Status::Failed);
        record.error = Some(error.to_string());
        if let TrainError::Replicas { difference, .. } = error {
            record.difference = Some(Difference::clone(difference));
        }
        if let Err(e) = record.write(folder) {
            error!("{}: {e}", folder.display());
        }
    }

    /// Writes `trace.json`; who reads it sees the old one or the new one, never half.
    pub fn trace(&self, trace: &Trace) -> Result<(), ReportError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join("trace.json");
        files::replace(&path, chrome::write(trace))
            .map_err(|source| ReportError::Write { path: path.display().to_string(), source })
    }

    /// Writes trace and record of a run that ended; returns the record.
    pub fn finish(
        &self,
        outcome: &Outcome,
        throughput: Option<Throughput>,
    ) -> Result<ResultRecord, Failure> {
        let record = ResultRecord { throughput, ..self.record(Status::Done).with(outcome) };
        self.may_write()?;
        if let Some(folder) = &self.folder {
            if let Some(trace) = &outcome.trace {
                match self.trace(trace) {
                    // What the job has come to is worth more.
                    Err(e) if self.fence.is_some() => warn!("{e}"),
                    written => written.map_err(|e| Failure::usage(e.to_string()))?,
                }
            }
            record.write(folder).map_err(|e| Failure::file(folder, &e))?;
        }
        Ok(record)
    }
}

/// Removes the files of an earlier run, but for the metrics of the first `continued` ranks: of more
/// ranks than this one's, some would stay and pass for this one's. Nothing else in the folder is
/// touched.
fn remove_run(folder: &Path, continued: u32) -> Result<(), Failure> {
    let of_a_run = |name: &str| {
        let rank = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".jsonl"));
        let digits = |text: &&str| text.len() >= 3 && text.bytes().all(|b| b.is_ascii_digit());
        let old = |text: &str| text.parse::<u32>().map_or(true, |rank| rank >= continued);
        rank.filter(digits).is_some_and(old)
            || name == "trace.json"
            || (continued == 0 && name == "choices.jsonl")
    };
    for entry in std::fs::read_dir(folder).map_err(|e| Failure::file(folder, &e))? {
        let path = entry.map_err(|e| Failure::file(folder, &e))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(of_a_run) {
            std::fs::remove_file(&path).map_err(|e| Failure::file(&path, &e))?;
        }
    }
    Ok(())
}
