//! The history of `runner tune`: a JSON object a line for each run of a plan.

use crate::base::texts::tr;
use pipewright_core::units::Nanos;
use serde::Deserialize;

/// A run of a plan that was tried.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct TuneRun {
    /// Which plan, by when it was first run; from 1.
    pub trial: u32,
    lanes: u32,
    replicas: u32,
    cuts: Vec<String>,
    micro_batches: u32,
    schedule: String,
    #[serde(default)]
    recomputing_stages: usize,
    /// What was expected of it before.
    pub expected_step_ns: Nanos,
    /// None where it failed.
    pub measured_step_ns: Option<Nanos>,
    /// Why it was run, in the runner's words.
    pub why: String,
    pub failed: Option<String>,
    /// Seconds since the tuning began.
    pub seconds: f64,
}

/// All runs, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct TuneHistory {
    pub name: String,
    pub runs: Vec<TuneRun>,
}

/// Runs that are shown at most.
const MOST: usize = 10_000;

/// Whether a file that begins so is a history.
pub fn is_history(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has = |word: &[u8]| line.windows(word.len()).any(|part| part == word);
    line.trim_ascii_start().starts_with(b"{") && has(b"\"trial\"") && has(b"\"expected_step_ns\"")
}

impl TuneHistory {
    /// Reads a history. A tuning that was killed may have left half a line: that is passed over.
    ///
    /// # Errors
    /// Which line is none, without the file's name.
    pub fn read(name: &str, text: &str) -> Result<Self, String> {
        let mut runs: Vec<TuneRun> = vec![];
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        for (number, line) in (1..).zip(&lines) {
            match serde_json::from_str(line) {
                Ok(run) => runs.push(run),
                Err(e) if number < lines.len() || runs.is_empty() => {
                    return Err(tr!("line {line}: {why}", line = number, why = e));
                }
                Err(_) => {}
            }
            if runs.len() > MOST {
                return Err(tr!("it has over {count} steps", count = MOST));
            }
        }
        match runs.is_empty() {
            true => Err(tr!("it has no complete step")),
            false => Ok(Self { name: name.into(), runs }),
        }
    }

    /// The run with the shortest measured step.
    pub fn best(&self) -> Option<usize> {
        let measured = |at: &usize| self.runs[*at].measured_step_ns;
        (0..self.runs.len()).filter(|at| measured(at).is_some()).min_by_key(measured)
    }

    /// What the given plan took, and the best.
    pub fn steps(&self) -> Option<(Nanos, Nanos)> {
        let first = self.runs.iter().find_map(|run| run.measured_step_ns)?;
        Some((first, self.runs[self.best()?].measured_step_ns?))
    }
}

impl TuneRun {
    /// `2 × 2, m 8, zb-h1, R 1: relu2, conv3`
    pub fn plan(&self) -> String {
        let copies =
            if self.replicas > 1 { format!(" × {}", self.replicas) } else { String::new() };
        let again = match self.recomputing_stages {
            0 => String::new(),
            n => format!(", R {n}"),
        };
        let cuts = if self.cuts.is_empty() {
            String::new()
        } else {
            format!(": {}", self.cuts.join(", "))
        };
        format!("{}{copies}, m {}, {}{again}{cuts}", self.lanes, self.micro_batches, self.schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(trial: u32, measured: &str, more: &str) -> String {
        format!(
            r#"{{"trial":{trial},"run":{trial},"lanes":2,"replicas":1,"stages":2,"cuts":["relu2"],"micro_batches":4,"micro_batch_samples":16,"schedule":"gpipe","recomputing_stages":0,"predicted_step_ns":12,"expected_step_ns":13,"measured_step_ns":{measured},"steps":79,"memory_bytes":[1,2],"why":"the given plan","seconds":1.5{more}}}"#
        )
    }

    #[test]
    fn a_history_has_its_best_run_and_what_was_gained() {
        let failed = line(2, "null", r#","failed":"no memory""#);
        let text = [line(1, "90", ""), failed, line(3, "60", ""), line(4, "70", "")].join("\n");
        assert!(is_history(text.as_bytes()) && !is_history(b"{\"step\":0,\"step_ns\":1}"));
        let history = TuneHistory::read("tune.jsonl", &text).unwrap();
        assert_eq!((history.runs.len(), history.best()), (4, Some(2)));
        assert_eq!(history.steps(), Some((Nanos(90), Nanos(60))));
        assert_eq!(history.runs[0].plan(), "2, m 4, gpipe: relu2");
        assert_eq!(history.runs[1].failed.as_deref(), Some("no memory"));
        // The last line may have been cut off, no other.
        let cut = format!("{text}\n{{\"trial\":5");
        assert_eq!(TuneHistory::read("x", &cut).unwrap().runs.len(), 4);
        let why = TuneHistory::read("x", &format!("{{\n{text}")).unwrap_err();
        assert!(why.starts_with("line 1: "), "{why}");
        assert!(TuneHistory::read("x", "\n").is_err());
    }
}
