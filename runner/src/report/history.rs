//! The metrics of a run that is over, all ranks joined.

use super::StepRecord;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// One step of a run.
#[derive(Clone, Copy, Debug)]
pub struct HistoryStep {
    /// What rank 0 recorded.
    pub record: StepRecord,
    /// Idle share of the time of the ranks whose metrics are there, 0 to 1.
    pub bubble: f64,
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
                let share = 1.0 - record.busy_ns as f64 / record.step_ns.max(1) as f64;
                idle[at] = (idle[at].0 + share, idle[at].1 + 1);
            }
        }
    }
    let mean = |(idle, ranks): (f64, u32)| idle / f64::from(ranks.max(1));
    let joined = first.into_iter().zip(idle);
    Ok(joined.map(|(record, idle)| HistoryStep { record, bubble: mean(idle) }).collect())
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

/// The names and values of a step's curves; seconds for times.
pub(super) fn scalars(step: &HistoryStep) -> [(&'static str, Option<f64>); 11] {
    let HistoryStep { record, bubble } = step;
    [
        ("loss", record.loss),
        ("accuracy", record.accuracy),
        ("test_loss", record.test_loss),
        ("test_accuracy", record.test_accuracy),
        ("step_time_s", Some(record.step_ns as f64 / 1e9)),
        ("bubble", Some(*bubble)),
        ("learning_rate", record.learning_rate),
        ("gradient_norm", record.gradient_norm),
        ("edge_error", record.edge_error),
        ("way", record.way.map(f64::from)),
        ("encoded_bytes", record.encoded_bytes.map(|bytes| bytes as f64)),
    ]
}

/// The history as comma-separated values with a line of names; what is not known stays empty.
pub fn csv(history: &[HistoryStep]) -> String {
    let mut text = String::from("step");
    let blank = StepRecord::default();
    for (name, _) in scalars(&HistoryStep { record: blank, bubble: 0.0 }) {
        text += &format!(",{name}");
    }
    text += ",unix_ms\n";
    for step in history {
        text += &step.record.step.to_string();
        for (_, value) in scalars(step) {
            text += &value.map_or(",".into(), |value| format!(",{value}"));
        }
        text += &step.record.unix_ms.map_or(",\n".into(), |moment| format!(",{moment}\n"));
    }
    text
}
