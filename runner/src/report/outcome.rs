//! Outcome: how a run went, in the numbers that its record and its summary tell.

use crate::device::Graphs;
use pipewright_core::timeline::Trace;

/// How a run went, the same on every rank except for the trace.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Steps that were trained, those before a checkpoint included.
    pub steps: u64,
    /// Loss of the last step, a mean over its mini-batch; 0 where nothing was trained.
    pub loss: f64,
    /// Whether something was trained.
    pub trained: bool,
    /// What the test samples gave at the end.
    pub test: Option<Tested>,
    /// Median time of a step on rank 0, without the first ones.
    pub step_ns: u64,
    /// Median time in which rank 0 read samples, waited for them or copied them, over the same steps. On a
    /// device a part of it may lie beside computing.
    pub input_ns: u64,
    /// Idle share of the ranks' time, over the same steps.
    pub bubble: f64,
    /// Time of all steps.
    pub total_ns: u64,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// Whether all steps were trained; the test at the end may be missing.
    pub complete: bool,
    /// Steps that changed nothing because their gradients were not finite, those before a checkpoint
    /// included; none where the plan does not look.
    pub skipped: Option<u64>,
    /// Bytes that each rank allocated for tensors.
    pub arena: Vec<u64>,
    /// How much of each rank's device is replayed; of those whose devices make graphs.
    pub graphs: Vec<Graphs>,
    /// What devices have chosen of libraries' algorithms by time, in words.
    pub algorithms: Vec<String>,
    /// Why products of fp8 were made in bf16, on the first rank where some were.
    pub no_fp8: Option<String>,
    /// The last steps, on rank 0.
    pub trace: Option<Trace>,
}

/// What the test samples gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tested {
    /// How many samples.
    pub samples: u64,
    /// Mean over the samples.
    pub loss: f64,
    /// Correct predictions and all of them; none where nothing is classified.
    pub correct: Option<(u64, u64)>,
}

impl Tested {
    /// Share of correct predictions, 0 to 1.
    pub fn accuracy(&self) -> Option<f64> {
        self.correct.map(|(correct, all)| correct as f64 / all as f64)
    }
}
