//! The learning curve of a run.

use super::metrics::CHOICES;
use super::{Choice, HistoryError, HistoryStep, history};
use std::path::Path;

/// The accuracy of a run after some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Steps that were trained.
    pub steps: u64,
    /// Seconds since the beginning of training: of steps and of trials, not of tests and checkpoints.
    pub seconds: f64,
    /// Correct predictions, 0 to 1.
    pub accuracy: f64,
}

/// The learning curve of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Of test samples, after each evaluation.
    pub test: Vec<CurvePoint>,
    /// Of the samples trained on, means over a hundredth of the run.
    pub train: Vec<CurvePoint>,
    /// Seconds of all steps and trials.
    pub seconds: f64,
    /// How many steps went by each way, the last choice's last; empty where nothing was chosen.
    pub ways: Vec<(String, u64)>,
}

/// Points of a curve of training samples.
const POINTS: usize = 100;

impl Curve {
    /// Reads the metrics of the run in `folder`.
    ///
    /// # Errors
    /// When there are none, or a line is broken.
    pub fn read(folder: &Path) -> Result<Self, HistoryError> {
        let steps = history(folder)?;
        let choices = choices(&folder.join(CHOICES))?;
        let mut curve = Self { test: vec![], train: vec![], seconds: 0.0, ways: vec![] };
        let mut waiting = choices.iter().peekable();
        let width = steps.len().div_ceil(POINTS).max(1);
        let mut open: Vec<f64> = vec![];
        for HistoryStep { record, .. } in &steps {
            while let Some(choice) = waiting.next_if(|choice| choice.step <= record.step) {
                curve.seconds += choice.spent_ns as f64 / 1e9;
                curve.ways.push((choice.way.clone(), 0));
            }
            curve.seconds += record.step_ns as f64 / 1e9;
            if let Some((_, count)) = curve.ways.last_mut() {
                *count += 1;
            }
            let point =
                |accuracy| CurvePoint { steps: record.step + 1, seconds: curve.seconds, accuracy };
            curve.test.extend(record.test_accuracy.map(point));
            open.extend(record.accuracy);
            if open.len() == width {
                curve.train.push(point(open.drain(..).sum::<f64>() / width as f64));
            }
        }
        curve.ways = joined(curve.ways);
        Ok(curve)
    }
}

/// Equal names together, in the order of their first.
fn joined(ways: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = vec![];
    for (way, count) in ways {
        match all.iter_mut().find(|(known, _)| *known == way) {
            Some((_, sum)) => *sum += count,
            None => all.push((way, count)),
        }
    }
    all
}

fn choices(path: &Path) -> Result<Vec<Choice>, HistoryError> {
    if !path.exists() {
        return Ok(vec![]);
    }
    let text = std::fs::read_to_string(path)
        .map_err(|source| HistoryError::File { path: path.into(), source })?;
    let mut all = vec![];
    for (line, text) in (1..).zip(text.lines()) {
        let choice = serde_json::from_str(text).map_err(|e| HistoryError::Line {
            path: path.into(),
            line,
            why: e.to_string(),
        })?;
        all.push(choice);
    }
    Ok(all)
}
