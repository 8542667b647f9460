//! Records of runs: a line of the history's file each, and a row of what is printed.

use crate::commands::words::counted;
use crate::failure::Failure;
use pipewright_core::graph::Graph;
use pipewright_core::ids::NodeId;
use pipewright_core::plan::Plan;
use pipewright_core::units::{Bytes, Nanos};
use serde::Serialize;
use std::path::PathBuf;

/// A run of a plan.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Record {
    /// Which plan, by when it was first run; from 1.
    pub trial: u32,
    /// Which run, from 1.
    pub run: u32,
    #[serde(flatten)]
    pub choices: Choices,
    /// What its cluster predicts, which is calibrated by the runs before it.
    pub predicted_step_ns: Nanos,
    /// The same with what predictions of plans like it were off.
    pub expected_step_ns: Nanos,
    /// Median of the steps after the first ones; none where it failed.
    pub measured_step_ns: Option<Nanos>,
    /// Steps of the run.
    pub steps: u64,
    /// By rank; none where it failed.
    pub memory_bytes: Vec<u64>,
    /// Why it was run.
    pub why: &'static str,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Seconds since the tuning began, at its end.
    pub seconds: f64,
}

/// What a plan chooses.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Choices {
    lanes: u32,
    replicas: u32,
    /// Ranks of a tensor group, where there are groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<u32>,
    stages: u32,
    /// First layers, or nodes, of the stages after the first.
    cuts: Vec<String>,
    micro_batches: u32,
    micro_batch_samples: u64,
    schedule: String,
    /// Stages that compute again.
    recomputing_stages: usize,
}

impl Choices {
    pub fn of(plan: &Plan, graph: &Graph) -> Self {
        let name = |cut: &u32| {
            let layer = graph.layers().iter().find(|layer| layer.first_node.0 == *cut);
            layer.map_or_else(|| graph.node(NodeId(*cut)).name.clone(), |layer| layer.name.clone())
        };
        let stages = plan.recompute.iter();
        Self {
            lanes: plan.lanes(),
            replicas: plan.data_parallel.replicas,
            tensor: Some(plan.tensor).filter(|tensor| *tensor > 1),
            stages: plan.stages(),
            cuts: plan.cuts.iter().map(name).collect(),
            micro_batches: plan.micro_batches,
            micro_batch_samples: plan.samples(),
            schedule: plan.schedule.name.clone(),
            recomputing_stages: stages.filter(|s| **s != Default::default()).count(),
        }
    }

    /// `2 lanes x 1 replica, 8 micro-batches, zb-h1, cut at conv2`.
    pub fn words(&self) -> String {
        let lanes = counted(self.lanes, "lane");
        let replicas = counted(self.replicas, "replica");
        let micro_batches = counted(self.micro_batches, "micro-batch");
        let tensor = self.tensor.map_or(String::new(), |t| format!(" x {t} tensor-parallel"));
        let cuts = match self.cuts.is_empty() {
            true => String::new(),
            false => format!(", cut at {}", self.cuts.join(", ")),
        };
        format!("{lanes} x {replicas}{tensor}, {micro_batches}, {}{cuts}", self.schedule)
    }
}

/// What was run so far, also in a file where that is asked for, and as rows unless they are not wanted.
pub(super) struct History {
    pub records: Vec<Record>,
    file: Option<PathBuf>,
    silent: bool,
}

impl History {
    pub fn new(file: Option<PathBuf>, silent: bool) -> Self {
        Self { records: vec![], file, silent }
    }

    /// Adds a record; the file has it when this returns.
    pub fn add(&mut self, record: Record) -> Result<(), Failure> {
        if !self.silent {
            if self.records.is_empty() {
                say!(
                    "{:>5} {:>11} {:>11} {:>11}  {:17} plan",
                    "trial",
                    "expected",
                    "measured",
                    "memory",
                    "why"
                );
            }
            say!("{}", row(&record));
        }
        self.records.push(record);
        let Some(path) = &self.file else { return Ok(()) };
        let line = |record: &Record| serde_json::to_string(record).expect("plain data") + "\n";
        let text: String = self.records.iter().map(line).collect();
        crate::commands::write_text(path, &text)
    }
}

fn row(record: &Record) -> String {
    let expected = record.expected_step_ns.to_string();
    let measured = record.measured_step_ns.map_or("failed".into(), |step| step.to_string());
    let most = record.memory_bytes.iter().max();
    let memory = most.map_or("-".into(), |bytes| Bytes(*bytes).to_string());
    let what = match &record.failed {
        None => record.choices.words(),
        Some(why) => format!("{}: {why}", record.choices.words()),
    };
    format!(
        "{:>5} {expected:>11} {measured:>11} {memory:>11}  {:17} {what}",
        record.trial, record.why
    )
}
