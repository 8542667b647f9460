//! The metrics of a run that is over, all ranks joined.

use super::StepRecord;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// One step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryStep {
    /// Which step, from 0.
    pub step: u64,
    /// Mean over the mini-batch.
    pub loss: f64,
    /// Correct predictions of the mini-batch, 0 to 1.
    pub accuracy: f64,
    /// From the end of the step before to the end of this one, on rank 0.
    pub step_ns: u64,
    /// Idle share of the time of the ranks whose metrics are there, 0 to 1.
    pub bubble: f64,
    /// The learning rate, where the run told it.
    pub learning_rate: Option<f64>,
    /// When it ended, in milliseconds since 1970, where the run told it.
    pub unix_ms: Option<u64>,
}

/// Why there is no history.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A folder of something else.
    #[error("{}: no metrics of a run: there is no rank-000.jsonl", path.display())]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
    /// A line that is no step.
    #[error("{}, line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// Reads the metrics in a run's folder: a step for each line of rank 0. What a killed run left of
/// its last line is passed over.
///
/// # Errors
/// When there are none or a line before the last is broken.
pub fn history(folder: &Path) -> Result<Vec<HistoryStep>, HistoryError> {
    let file = |rank: u32| folder.join(format!("rank-{rank:03}.jsonl"));
    if !file(0).exists() {
        return Err(HistoryError::Nothing { path: folder.into() });
    }
    let first = records(&file(0))?;
    // Each step's idle time, and the ranks that told it. Steps ascend in every file.
    let mut idle: Vec<(f64, u32)> = vec![(0.0, 0); first.len()];
    for rank in (0..).take_while(|rank| file(*rank).exists()) {
        for record in records(&file(rank))? {
            if let Ok(at) = first.binary_search_by_key(&record.step, |r| r.step) {
                let share = 1.0 - record.busy_ns as f64 / first[at].step_ns.max(1) as f64;
                idle[at] = (idle[at].0 + share, idle[at].1 + 1);
            }
        }
    }
    let joined = first.iter().zip(&idle).map(|(record, (idle, ranks))| HistoryStep {
        step: record.step,
        loss: record.loss,
        accuracy: record.accuracy,
        step_ns: record.step_ns,
        bubble: idle / f64::from((*ranks).max(1)),
        learning_rate: record.learning_rate,
        unix_ms: record.unix_ms,
    });
    Ok(joined.collect())
}

fn records(path: &Path) -> Result<Vec<StepRecord>, HistoryError> {
    let failed = |source| HistoryError::File { path: path.into(), source };
    let mut lines = BufReader::new(std::fs::File::open(path).map_err(failed)?);
    let (mut records, mut line) = (vec![], vec![]);
    while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        match serde_json::from_slice(&line) {
            Ok(record) => records.push(record),
            Err(_) if !line.ends_with(b"\n") => {}
            Err(e) => {
                let (path, line, why) = (path.into(), records.len() + 1, e.to_string());
                return Err(HistoryError::Line { path, line, why });
            }
        }
        line.clear();
    }
    Ok(records)
}

/// The history as comma-separated values with a line of names; what is not known stays empty.
pub fn csv(history: &[HistoryStep]) -> String {
    let mut text = String::from("step,loss,accuracy,step_time_s,bubble,learning_rate,unix_ms\n");
    for step in history {
        let HistoryStep { step, loss, accuracy, step_ns, bubble, learning_rate, unix_ms } = step;
        let seconds = *step_ns as f64 / 1e9;
        let rate = learning_rate.map_or(String::new(), |rate| rate.to_string());
        let moment = unix_ms.map_or(String::new(), |moment| moment.to_string());
        text += &format!("{step},{loss},{accuracy},{seconds},{bubble},{rate},{moment}\n");
    }
    text
}
