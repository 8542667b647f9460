//! The plan file and what it becomes: one program per rank.
//!
//! ```
//! use pipewright_core::cost::Cluster;
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::plan::{Draft, Model, Plan, lower, training_graphs};
//!
//! let cuts = vec![5, 10, 14];
//! let draft = Draft::new(Model::Preset(Preset::Vgg16), Cluster::preset("dgx-a100")?, cuts);
//! let (plan, _) = draft.plan()?;
//! assert_eq!(Plan::from_json(&plan.to_json())?, plan, "a plan is its file");
//!
//! // What the runner executes and the simulator predicts: one program for each lane.
//! let (graph, schedule) = (plan.model.graph()?, plan.schedule.parse()?);
//! let inputs = plan.inputs(&graph, &schedule);
//! let programs = lower(&inputs, &training_graphs(&inputs));
//! assert_eq!(programs.len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
mod communication;
mod data;
mod data_parallel;
mod divided;
pub mod export;
mod layout;
mod lower;
mod measured;
mod mesh;
mod optimizer;
mod program;
mod recompute;
mod resized;
mod training;

pub use crate::graph::Precision;
pub use check::{PlanError, excluded};
pub use communication::{Choose, Communication, Edges, GradientReduction};
pub use data::Data;
pub use data_parallel::{DataParallel, DataParallelMode};
pub use divided::{Divided, part};
pub(crate) use lower::{AreaBytes, area_bytes, value_bytes};
pub use lower::{Inputs, groups, lay_out, lower, lower_evaluation, training_graphs};
pub use measured::Measured;
pub use mesh::Mesh;
pub use optimizer::Optimizer;
pub use program::{
    Area, Bucket, Encoded, Instruction, Kernel, Operand, ParamPlace, Pool, Program, Region, Source,
    StageProgram, TensorGroup, Tie, Versions,
};
pub use recompute::{RecomputeError, Sequence, SequenceTextError, StageProblem, in_sequences};
pub use resized::{RateRule, Resized};
pub use training::{BatchNorm, Decay, RateSchedule, Training};

use crate::cost::{Cluster, Costs};
use crate::graph::autodiff::TrainingGraph;
use crate::graph::presets::Preset;
use crate::graph::{Graph, GraphError};
use crate::schedule::{GenerateError, ParseError, Schedule, ScheduleKind};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Version of the file format that this code writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// Most steps that a plan may have: so many take centuries.
pub const STEPS_MAX: u64 = 1 << 40;

/// All that a run needs besides data and weights. Made by [`Draft::plan`] and
/// [`Plan::from_json`], both of which check it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of the file format.
    pub version: u32,
    /// The network.
    pub model: Model,
    /// The machine that the plan was made for.
    pub cluster: Cluster,
    /// First nodes of the stages after the first, ascending.
    pub cuts: Vec<u32>,
    /// Who does what in which order.
    pub schedule: ScheduleText,
    /// By stage: what it computes again instead of keeping it; empty: no stage does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recompute: Vec<Sequence>,
    /// Samples of an optimizer step.
    pub mini_batch: u64,
    /// Where that is not the mini-batch that the job was planned with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resized: Option<Resized>,
    /// Micro-batches of a step; with the number of replicas it divides `mini_batch`.
    pub micro_batches: u32,
    /// Copies of the pipeline.
    #[serde(default, skip_serializing_if = "training::is_default")]
    pub data_parallel: DataParallel,
    /// Ranks that divide every lane's work: 1, or the degree of tensor parallelism (Shoeybi et al. 2019).
    #[serde(default = "undivided", skip_serializing_if = "is_undivided")]
    pub tensor: u32,
    /// Whether ranks of a tensor group have slices of the sequence where nothing else is divided (Korthikanti et al.
    /// 2022).
    #[serde(default, skip_serializing_if = "training::is_default")]
    pub sequence_parallel: bool,
    /// How what ranks send each other is encoded.
    #[serde(default, skip_serializing_if = "training::is_default")]
    pub communication: Communication,
    /// How parameters change.
    pub optimizer: Optimizer,
    /// How the learning rate changes, and what else plain training does not have.
    #[serde(default, skip_serializing_if = "training::is_default")]
    pub training: Training,
    /// What to train on.
    pub data: Data,
    /// A file of initial weights, relative to where the runner starts; none: drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Whether each epoch takes the samples in an order of its own; else as they lie in their files.
    #[serde(default = "shuffled", skip_serializing_if = "Clone::clone")]
    pub shuffle: bool,
    /// Weights and the order of samples follow from it.
    pub seed: u64,
    /// Steps to train, of the mini-batch that the job was planned with.
    pub steps: u64,
    /// What the planner expects.
    pub prediction: Expectation,
    /// What was measured, where the plan was tuned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// What a plan file means that says nothing of the order.
fn shuffled() -> bool {
    true
}

/// What a plan file means that says nothing of tensor parallelism.
fn undivided() -> u32 {
    1
}

fn is_undivided(tensor: &u32) -> bool {
    *tensor == 1
}

/// The network of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// One that the planner knows by name, such as `fc32:512`.
    Preset(Preset),
    /// A network of one's own.
    Graph(Graph),
}

impl Model {
    /// The graph.
    ///
    /// # Errors
    /// For a preset whose size makes no network.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        match self {
            Model::Preset(preset) => preset.graph(),
            Model::Graph(graph) => Ok(graph.clone()),
        }
    }
}

/// A schedule as text: a line a lane, see [`crate::schedule`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleText {
    /// For people; the lanes are what runs.
    pub name: String,
    /// Actions of each lane: `0F0 0F1 0B0 0B1`.
    pub lanes: Vec<String>,
}

impl ScheduleText {
    /// The text of a named schedule.
    ///
    /// # Errors
    /// Numbers that the schedule cannot have.
    pub fn of(kind: ScheduleKind, stages: u32, micro_batches: u32) -> Result<Self, GenerateError> {
        let schedule = kind.generate(stages, micro_batches)?;
        Ok(Self { name: kind.to_string(), lanes: schedule.lines() })
    }

    /// Reads the lanes. When parameters change is not in them; it follows from the name.
    ///
    /// # Errors
    /// The first word that is no action.
    pub fn parse(&self) -> Result<Schedule, ParseError> {
        let mut schedule = Schedule::parse(&self.lanes)?;
        if let Ok(kind) = self.name.parse::<ScheduleKind>() {
            schedule.updates = kind.updates();
        }
        Ok(schedule)
    }
}

/// What the planner expected when it wrote the plan; a record, computed again by whoever reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Time of a step.
    pub step_ns: Nanos,
    /// Idle share of the lanes' time, 0 to 1.
    pub bubble: f64,
    /// Memory of each rank.
    pub arena: Vec<Bytes>,
}

/// The choices that make a plan; everything else follows from them.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The network.
    pub model: Model,
    /// The machine.
    pub cluster: Cluster,
    /// First nodes of the stages after the first, ascending.
    pub cuts: Vec<u32>,
    /// The order in which each stage computes; none at all: nothing is computed again.
    pub recompute: Vec<Sequence>,
    /// The order of actions.
    pub schedule: ScheduleKind,
    /// Samples of an optimizer step.
    pub mini_batch: u64,
    /// Micro-batches of a step.
    pub micro_batches: u32,
    /// Copies of the pipeline.
    pub data_parallel: DataParallel,
    /// Ranks that divide every lane's work.
    pub tensor: u32,
    /// Whether they have slices of the sequence where nothing else is divided.
    pub sequence_parallel: bool,
    /// How what ranks send each other is encoded.
    pub communication: Communication,
    /// How parameters change.
    pub optimizer: Optimizer,
    /// How the learning rate changes, and what else plain training does not have.
    pub training: Training,
    /// What to train on.
    pub data: Data,
    /// Whether each epoch takes the samples in an order of its own.
    pub shuffle: bool,
    /// Seed of weights and samples.
    pub seed: u64,
    /// Steps to train.
    pub steps: u64,
}

impl Draft {
    /// A draft with the usual optimizer, synthetic data, seed 1 and 100 steps.
    pub fn new(model: Model, cluster: Cluster, cuts: Vec<u32>) -> Self {
        Self {
            model,
            cluster,
            cuts,
            recompute: vec![],
            schedule: ScheduleKind::OneFOneB,
            mini_batch: 32,
            micro_batches: 4,
            data_parallel: DataParallel::default(),
            tensor: 1,
            sequence_parallel: false,
            communication: Communication::default(),
            optimizer: Optimizer::default(),
            training: Training::default(),
            data: Data::default(),
            shuffle: true,
            seed: 1,
            steps: 100,
        }
    }
}

impl Plan {
    /// Samples of a micro-batch.
    pub fn samples(&self) -> u64 {
        let parts = u64::from(self.micro_batches) * u64::from(self.data_parallel.replicas);
        self.mini_batch / parts.max(1)
    }

    /// Times of the nodes of `graph`, its own, for micro-batches of so many samples.
    pub fn costs(&self, graph: &Graph, samples: u64) -> Costs {
        Costs::new(graph, &self.cluster, samples, self.training.precision)
    }

    /// The same choices as a draft, without recomputation, which belongs to its cuts; 1F1B for an order that has
    /// no name.
    pub fn draft(&self) -> Draft {
        Draft {
            model: self.model.clone(),
            cluster: self.cluster.clone(),
            cuts: self.cuts.clone(),
            recompute: vec![],
            schedule: self.schedule.name.parse().unwrap_or(ScheduleKind::OneFOneB),
            mini_batch: self.mini_batch,
            micro_batches: self.micro_batches,
            data_parallel: self.data_parallel,
            tensor: self.tensor,
            sequence_parallel: self.sequence_parallel,
            communication: self.communication.clone(),
            optimizer: self.optimizer,
            training: self.training,
            data: self.data.clone(),
            shuffle: self.shuffle,
            seed: self.seed,
            steps: self.steps,
        }
    }

    /// Stages that the cuts make.
    pub fn stages(&self) -> u32 {
        self.cuts.len() as u32 + 1
    }

    /// Lanes of the pipeline.
    pub fn lanes(&self) -> u32 {
        self.schedule.lanes.len() as u32
    }

    /// Ranks that the plan needs: a tensor group for each lane of each replica.
    pub fn ranks(&self) -> u32 {
        self.lanes().saturating_mul(self.mesh().copies())
    }

    /// What lowering takes of it; `graph` and `schedule` are what [`Self::check`] returned.
    pub fn inputs<'a>(&'a self, graph: &'a Graph, schedule: &'a Schedule) -> Inputs<'a> {
        Inputs {
            graph,
            cuts: &self.cuts,
            schedule,
            samples: self.samples(),
            data_parallel: self.data_parallel,
            communication: &self.communication,
            cluster: &self.cluster,
            optimizer: self.optimizer,
            training: self.training,
            halves: self.cluster.device.halves(),
        }
    }

    /// The training graphs of its stages, with recomputation where it asks for some.
    ///
    /// # Errors
    /// The first stage that cannot compute in the order that the plan says.
    pub fn training_graphs(&self, inputs: &Inputs) -> Result<Vec<TrainingGraph>, RecomputeError> {
        recompute::in_sequences(training_graphs(inputs), &self.recompute)
    }

    /// The file.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data");
        text.push('\n');
        text
    }
}
