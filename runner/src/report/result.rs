//! `result.json`: whether and how a run ended. Supervisors read it instead of mpirun's exit code,
//! which does not always tell.

use super::{Difference, Outcome};
use crate::device::Graphs;
use crate::files;
use pipewright_core::predict::Throughput;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How far a run came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It began; when nobody runs any more, it was killed.
    Running,
    /// All steps were trained.
    Done,
    /// A signal ended it after a step.
    Interrupted,
    /// It could not go on.
    Failed,
}

/// The record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResultRecord {
    /// How it ended.
    pub status: Status,
    /// Steps that were trained, those before a checkpoint included.
    pub steps: u64,
    /// Steps among them that changed nothing because their gradients were not finite; none where the
    /// plan does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<u64>,
    /// Mean loss of the last step; none on device `model`, which trains nothing.
    pub loss: Option<f64>,
    /// Mean loss of the test samples.
    pub test_loss: Option<f64>,
    /// How many test samples that was; 0 where none were evaluated at the end, because there are none or
    /// the run was asked not to.
    #[serde(default)]
    pub test_samples: u64,
    /// Share of the test samples' predictions that were correct.
    pub test_accuracy: Option<f64>,
    /// Median step time; none, like the bubble, where nothing was left to train.
    pub step_ns: Option<u64>,
    /// Median time of a step in which rank 0 read samples, waited for them or copied them; on a device a
    /// part of it may lie beside computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_ns: Option<u64>,
    /// Idle share of the ranks' time.
    pub bubble: Option<f64>,
    /// What a step of that time gets done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// Bytes that each rank allocated for tensors.
    pub arena: Vec<u64>,
    /// How much of each rank's device was replayed as graphs, and why not; none where devices make none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graphs: Vec<Graphs>,
    /// What `--cuda-algorithms measured` has chosen on any rank, and the times; each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub algorithms: Vec<String>,
    /// Why products of fp8 were made in bf16, of the same factors, on the first rank where some were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_fp8: Option<String>,
    /// What the planner expects on this machine: step time and bubble.
    pub predicted_step_ns: u64,
    /// See above.
    pub predicted_bubble: f64,
    /// Why it failed.
    pub error: Option<String>,
    /// What replicas did not have alike any more, where it failed for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// How GPUs of several ranks talked to each other: `nccl 2.24.3`, or `mpi, staged: ranks 0 and 1 share
    /// a GPU`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The generation of an elastic job that wrote this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

impl ResultRecord {
    /// A record without results.
    pub fn new(status: Status, predicted_step_ns: u64, predicted_bubble: f64) -> Self {
        Self {
            status,
            steps: 0,
            skipped: None,
            loss: None,
            test_loss: None,
            test_samples: 0,
            test_accuracy: None,
            step_ns: None,
            input_ns: None,
            bubble: None,
            throughput: None,
            arena: vec![],
            graphs: vec![],
            algorithms: vec![],
            no_fp8: None,
            predicted_step_ns,
            predicted_bubble,
            error: None,
            difference: None,
            transport: None,
            generation: None,
        }
    }

    /// The results of a run that ended.
    pub fn with(mut self, outcome: &Outcome) -> Self {
        self.status = if outcome.interrupted { Status::Interrupted } else { Status::Done };
        self.steps = outcome.steps;
        self.skipped = outcome.skipped;
        self.loss = (outcome.trained && outcome.steps > 0).then_some(outcome.loss);
        self.test_loss = outcome.test.map(|test| test.loss);
        self.test_samples = outcome.test.map_or(0, |test| test.samples);
        self.test_accuracy = outcome.test.and_then(|test| test.accuracy());
        if outcome.step_ns > 0 {
            self.step_ns = Some(outcome.step_ns);
            self.input_ns = Some(outcome.input_ns);
            self.bubble = Some(outcome.bubble);
        }
        self.arena = outcome.arena.clone();
        self.graphs = outcome.graphs.clone();
        self.algorithms = outcome.algorithms.clone();
        self.no_fp8 = outcome.no_fp8.clone();
        self
    }

    /// Writes `result.json` in `folder`; a reader sees the old record or the new one, never half.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(self).expect("plain data");
        files::replace(&folder.join("result.json"), text + "\n")
    }
}
