//! Results of tuning: the best plan beside the given one.

use super::history::{Choices, History, Record};
use super::tuner::End;
use crate::args::TuneArgs;
use crate::commands::words::counted;
use crate::failure::Failure;
use pipewright_core::plan::Plan;
use pipewright_core::timeline::Trace;
use pipewright_core::units::Nanos;
use serde::Serialize;
use std::time::Duration;

/// A plan that was tried.
pub(super) struct Tried {
    /// As it was run the first time.
    pub plan: Plan,
    /// What was predicted of it then.
    pub predicted: Nanos,
    /// Medians of its runs; none where it failed.
    pub steps: Vec<Nanos>,
    /// Of its last run.
    pub trace: Option<Trace>,
    pub failed: Option<Failure>,
}

impl Tried {
    pub fn new(plan: Plan, predicted: Nanos) -> Self {
        Self { plan, predicted, steps: vec![], trace: None, failed: None }
    }

    /// The median of its runs.
    pub fn step(&self) -> Option<Nanos> {
        let mut steps = self.steps.clone();
        steps.sort();
        let (low, high) = (steps.len().checked_sub(1)? / 2, steps.len() / 2);
        Some(Nanos(steps[low].0.midpoint(steps[high].0)))
    }
}

/// What came of tuning.
#[derive(Serialize)]
pub(super) struct Summary {
    /// The given plan's step and the best one's; none where none was measured.
    first_step_ns: Option<Nanos>,
    step_ns: Option<Nanos>,
    /// Different plans that were tried.
    plans: usize,
    seconds: f64,
    output: String,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<End>,
    /// Its choices, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<String>,
    runs: Vec<Record>,
}

impl Summary {
    /// Of plans that were tried, and which of them was written.
    pub fn new(
        args: &TuneArgs,
        tried: &[Tried],
        best: Option<usize>,
        history: &History,
        took: Duration,
    ) -> Self {
        let words = |at: usize| {
            let of = |record: &&Record| record.trial as usize == at + 1;
            history.records.iter().find(of).map(|record| Choices::words(&record.choices))
        };
        Self {
            first_step_ns: tried.first().and_then(Tried::step),
            step_ns: best.and_then(|best| tried[best].step()),
            plans: tried.len(),
            seconds: took.as_secs_f64(),
            output: args.output().display().to_string(),
            end: None,
            best: best.and_then(words),
            runs: history.records.clone(),
        }
    }

    /// With why it ended.
    pub fn with(self, end: End) -> Self {
        Self { end: Some(end), ..self }
    }

    /// The last line.
    pub fn sentence(&self, end: End) -> String {
        let why = match end {
            End::NothingPromises => "no other plan promises more than 1 %",
            End::Trials => "as many plans were measured as --trials allows",
            End::Budget => "the time of --budget is used up",
            End::Interrupted => "interrupted",
        };
        let (Some(first), Some(step), Some(best)) = (self.first_step_ns, self.step_ns, &self.best)
        else {
            return format!("{why} before a plan was measured");
        };
        let plans = counted(self.plans as u64, "plan");
        let output = &self.output;
        let seconds = self.seconds;
        let times = first.secs() / step.secs();
        let gain = match times > 1.0 {
            true => format!("{times:.2}x as fast as the given plan, {first}"),
            false => "the given plan, which none was faster than".into(),
        };
        format!(
            "{why} ({plans} in {seconds:.0} s): {step} a step by {best}; {gain}; written to {output}"
        )
    }

    /// What an interrupted command says.
    pub fn interrupted(&self) -> String {
        match self.step_ns {
            Some(_) => format!("interrupted; {} has the best plan so far", self.output),
            None => "interrupted before a plan was measured; nothing is written".into(),
        }
    }
}
