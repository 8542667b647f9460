//! Reading a plan and saying in one sentence why it cannot run.

use super::{
    BatchNorm, Communication, DataParallel, Optimizer, Plan, RecomputeError, STEPS_MAX, Training,
    VERSION,
};
use crate::cost::{ClusterError, ProfileError};
use crate::graph::{ExpertParallelError, Graph, GraphError, Op, TensorParallelError};
use crate::schedule::{self, CheckError, GenerateError, ParseError, Schedule, Updates};
use serde::Deserialize;
use thiserror::Error;

/// Why a plan cannot run.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// Not JSON, cut off, or with fields that no plan has.
    #[error("not a plan: {0}")]
    Json(String),
    /// Made by a newer Pipewright.
    #[error("the plan has version {found}, this program reads up to {VERSION}; use a newer one")]
    Version {
        /// The version in the file.
        found: u64,
    },
    /// The model does not build.
    #[error("model: {0}")]
    Graph(#[from] GraphError),
    /// The model cannot be trained.
    #[error("model `{model}` has no {what}; training needs an input, a target and a loss")]
    Untrainable {
        /// The model.
        model: String,
        /// Input, target or loss.
        what: &'static str,
    },
    /// More than one source or loss: the data set gives one sample, one class.
    #[error("model `{model}` has {count} {what}; a plan trains a network with one")]
    Several {
        /// The model.
        model: String,
        /// How many.
        count: usize,
        /// Inputs, targets or losses.
        what: &'static str,
    },
    /// The cluster makes no sense.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The cluster's measured times make no sense.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A cut outside of the model or out of order.
    #[error(
        "cut {index} is at node {cut}; cuts ascend and lie between nodes 1 and {last} of `{model}`"
    )]
    Cut {
        /// Which cut.
        index: usize,
        /// Where it is.
        cut: u32,
        /// The last node.
        last: usize,
        /// The model.
        model: String,
    },
    /// The schedule cannot be read.
    #[error("schedule: {0}")]
    Parse(#[from] ParseError),
    /// There is no such schedule.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Something that cannot be done while micro-batches of several updates are under way.
    #[error(
        "schedule `{name}` updates parameters while micro-batches are under way, which rules out \
         {what}; use 1f1b, which has the same order with a flush"
    )]
    Asynchronous {
        /// Its name.
        name: String,
        /// What the plan asks for.
        what: &'static str,
    },
    /// The schedule cannot run.
    #[error("schedule: {0}")]
    Schedule(#[from] CheckError),
    /// Cuts and schedule differ.
    #[error(
        "{cuts} cut{} make{} {} stage{}, the schedule has {stages}",
        if *.cuts == 1 { "" } else { "s" },
        if *.cuts == 1 { "s" } else { "" },
        .cuts + 1,
        if *.cuts == 0 { "" } else { "s" }
    )]
    Stages {
        /// Cuts of the plan.
        cuts: usize,
        /// Stages of its schedule.
        stages: u32,
    },
    /// Micro-batches and schedule differ.
    #[error("the plan says {plan} micro-batches, its schedule has {schedule}")]
    MicroBatches {
        /// `micro_batches`.
        plan: u32,
        /// Of the schedule.
        schedule: u32,
    },
    /// Micro-batches would differ in size.
    #[error(
        "a mini-batch of {mini_batch} does not divide into {micro_batches} micro-batches{}",
        if *.replicas == 1 { String::new() } else { format!(" on each of {replicas} replicas") }
    )]
    Indivisible {
        /// Samples of the mini-batch.
        mini_batch: u64,
        /// Parts on a replica.
        micro_batches: u32,
        /// Replicas.
        replicas: u32,
    },
    /// A network that tensor parallelism cannot divide.
    #[error("tensor: {0}")]
    Tensor(#[from] TensorParallelError),
    /// Something that tensor groups do not do.
    #[error("tensor parallelism does not go together with {0}")]
    WithTensor(&'static str),
    /// A network whose experts replicas cannot divide.
    #[error("data_parallel.expert_parallel: {0}")]
    Experts(#[from] ExpertParallelError),
    /// Something that replicas which divide experts do not do.
    #[error("expert parallelism does not go together with {0}")]
    WithExperts(&'static str),
    /// Something that replicas cannot do while they divide what the optimizer keeps.
    #[error(
        "replicas that divide the optimizer's state (zero 1) do not go together with {0}; use zero 0"
    )]
    WithZero(&'static str),
    /// Something that replicas cannot do while they divide gradients.
    #[error("replicas that divide gradients (zero 2) do not go together with {0}; use zero 1")]
    WithZero2(&'static str),
    /// Parameters through the first replica, of a pipeline.
    #[error(
        "data-parallel mode `dp` is for one lane, this plan has {lanes}; use `ddp`, or one stage"
    )]
    ThroughFirst {
        /// Lanes of the pipeline.
        lanes: u32,
    },
    /// A stage cannot compute in the order that the plan says.
    #[error("recompute: {0}")]
    Recompute(#[from] RecomputeError),
    /// A way of summing gradients that does not exist.
    #[error("{field}: `{reduction}` is not possible: {what}")]
    Reduction {
        /// The field.
        field: &'static str,
        /// What stands there.
        reduction: String,
        /// What is wrong with it, and what is possible.
        what: &'static str,
    },
    /// A number out of range.
    #[error("{field} is {value}, must be {must}")]
    Value {
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What may stand there.
        must: &'static str,
    },
}

/// What cannot be done while micro-batches of several updates are under way, where that is asked for.
pub fn excluded(graph: &Graph, updates: Updates, training: &Training) -> Option<&'static str> {
    if updates != Updates::Stashed {
        return None;
    }
    let tied = graph.nodes().iter().any(|n| matches!(n.op, Op::TiedLinear { .. }));
    let excluded = [
        (training.clip_norm.is_some(), "clipping the gradient of all stages together"),
        (training.skip_nonfinite.is_some(), "skipping a step on all stages together"),
        (training.precision.scales_loss(), "scaling the loss, as f16 needs it"),
        (tied, "parameters that several stages share"),
        (training.batch_norm != BatchNorm::PerMicroBatch, "deferred batch norm"),
    ];
    excluded.into_iter().find(|(asked, _)| *asked).map(|(_, what)| what)
}

impl Plan {
    /// Reads and checks a plan file.
    ///
    /// # Errors
    /// What is wrong with it, where, and what may stand there.
    // Inlined so that the reading of JSON is compiled as its caller is: the explorer's worker has core for speed
    // and itself for size, and this is a quarter of it.
    #[inline]
    pub fn from_json(text: &str) -> Result<Self, PlanError> {
        #[derive(Deserialize)]
        struct Version {
            version: Option<u64>,
        }
        // The version first: a newer plan may have fields that this program does not know.
        let json = |e: serde_json::Error| PlanError::Json(e.to_string());
        let version: Version = serde_json::from_str(text).map_err(json)?;
        match version.version {
            None => return Err(PlanError::Json("missing field `version`".into())),
            Some(found) if found > u64::from(VERSION) => return Err(PlanError::Version { found }),
            Some(_) => {}
        }
        let plan: Plan = serde_json::from_str(text).map_err(json)?;
        plan.check()?;
        Ok(plan)
    }

    /// Checks everything that later steps rely on; returns what was built on the way.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check(&self) -> Result<(Graph, Schedule), PlanError> {
        self.check_numbers()?;
        self.cluster.check()?;
        if let Some(profile) = &self.cluster.profile {
            profile.check()?;
        }
        let graph = self.shard()?;
        check_trainable(&graph)?;
        let last = graph.nodes().len() - 1;
        for (index, &cut) in self.cuts.iter().enumerate() {
            let after = index.checked_sub(1).map_or(0, |i| self.cuts[i]);
            if cut <= after || cut as usize > last {
                let model = graph.name().into();
                return Err(PlanError::Cut { index, cut, last, model });
            }
        }
        let schedule = self.schedule.parse()?;
        if schedule.stages() as usize != self.cuts.len() + 1 {
            let stages = schedule.stages();
            return Err(PlanError::Stages { cuts: self.cuts.len(), stages });
        }
        if schedule.micro_batches != self.micro_batches {
            return Err(PlanError::MicroBatches {
                plan: self.micro_batches,
                schedule: schedule.micro_batches,
            });
        }
        schedule::check(&schedule)?;
        self.check_together(&graph, &schedule)?;
        if !self.recompute.is_empty() {
            self.training_graphs(&self.inputs(&graph, &schedule))?;
        }
        Ok((graph, schedule))
    }

    /// The network, or where tensor groups divide it what each of their ranks computes of it.
    ///
    /// # Errors
    /// For a network that does not build, or cannot be divided.
    fn shard(&self) -> Result<Graph, PlanError> {
        let graph = self.tensor_shard()?;
        self.data_parallel.check_experts(&self.communication)?;
        match self.data_parallel.expert_parallel {
            1 => Ok(graph),
            experts => Ok(graph.expert_parallel(experts)?),
        }
    }

    fn tensor_shard(&self) -> Result<Graph, PlanError> {
        let graph = self.model.graph()?;
        if self.tensor == 1 && self.sequence_parallel {
            let (field, must) = ("sequence_parallel", "false without tensor groups");
            return Err(PlanError::Value { field, value: "true".into(), must });
        }
        if self.tensor == 1 {
            return Ok(graph);
        }
        let excluded = [
            (self.data_parallel.through_first(), "data-parallel mode `dp`; use `ddp`"),
            (self.communication.encodes(), "encoded gradients"),
        ];
        match excluded.into_iter().find(|(asked, _)| *asked) {
            Some((_, what)) => Err(PlanError::WithTensor(what)),
            None => Ok(graph.divided(self.tensor, self.sequence_parallel)?),
        }
    }

    /// Refuses tensor groups where `what` knows nothing of them.
    ///
    /// # Errors
    /// [`PlanError::WithTensor`].
    pub fn check_undivided(&self, what: &'static str) -> Result<(), PlanError> {
        if self.tensor == 1 { Ok(()) } else { Err(PlanError::WithTensor(what)) }
    }

    /// Refuses replicas that divide experts where `what` knows nothing of them.
    ///
    /// # Errors
    /// [`PlanError::WithExperts`].
    pub fn check_all_experts(&self, what: &'static str) -> Result<(), PlanError> {
        match self.data_parallel.expert_parallel {
            1 => Ok(()),
            _ => Err(PlanError::WithExperts(what)),
        }
    }

    /// Refuses replicas that divide the optimizer's state where `what` knows nothing of them.
    ///
    /// # Errors
    /// [`PlanError::WithZero`].
    pub fn check_whole(&self, what: &'static str) -> Result<(), PlanError> {
        if self.data_parallel.divides_updates() { Err(PlanError::WithZero(what)) } else { Ok(()) }
    }

    /// Refuses what needs whole gradients where replicas divide them.
    fn check_divided_gradients(&self, schedule: &Schedule) -> Result<(), PlanError> {
        if self.communication.encodes() {
            self.data_parallel.check_encoded()?;
        }
        let excluded = [
            // Copies of a stage wait for each other in the middle of a step: their passes follow from each other.
            (schedule.routes.len() > 1, "schedules whose pipelines run both ways"),
        ];
        let asked = excluded.into_iter().find(|(asked, _)| *asked);
        match asked.filter(|_| self.data_parallel.divides_gradients()) {
            Some((_, what)) => Err(PlanError::WithZero2(what)),
            None => Ok(()),
        }
    }

    /// What is right by itself and does not go together.
    fn check_together(&self, graph: &Graph, schedule: &Schedule) -> Result<(), PlanError> {
        let lanes = self.lanes();
        if self.data_parallel.through_first() && lanes != 1 {
            return Err(PlanError::ThroughFirst { lanes });
        }
        if self.data_parallel.through_first() {
            self.check_whole("data-parallel mode `dp`")?;
        }
        self.check_divided_gradients(schedule)?;
        if let Optimizer::Lars { .. } = self.optimizer {
            let lars = "`lars`, whose rates follow from whole parameters";
            self.check_whole(lars)?;
            self.check_undivided(lars)?;
            self.check_all_experts(lars)?;
        }
        if self.data_parallel.through_first() && !self.communication.gradients.is_plain() {
            return Err(PlanError::Value {
                field: "communication.gradients",
                value: self.communication.gradients.to_string(),
                must: "fp32 in data-parallel mode `dp`; use `ddp`",
            });
        }
        let edges = self.communication.edges;
        let encodes = !edges.within.is_lossless() || !edges.across.is_lossless();
        if encodes && self.training.precision.is_half() {
            return Err(PlanError::Value {
                field: "communication.edges",
                value: edges.across.to_string(),
                must: "fp32 with activations in two bytes, which already travel in half the bytes",
            });
        }
        if self.communication.encodes() && self.training.precision.scales_loss() {
            return Err(PlanError::Value {
                field: "communication.gradients",
                value: self.communication.gradients.to_string(),
                must: "fp32 with f16 activations: what codecs carry over would be of another scale",
            });
        }
        // The first replica hands out one version of its parameters.
        if schedule.updates != Updates::Synchronous && self.data_parallel.through_first() {
            let (name, what) = (self.schedule.name.clone(), "data-parallel mode `dp`");
            return Err(PlanError::Asynchronous { name, what });
        }
        match excluded(graph, schedule.updates, &self.training) {
            Some(what) => Err(PlanError::Asynchronous { name: self.schedule.name.clone(), what }),
            None => Ok(()),
        }
    }

    fn check_numbers(&self) -> Result<(), PlanError> {
        let refuse = |field, value: String, must| Err(PlanError::Value { field, value, must });
        if self.version == 0 || self.version > VERSION {
            return refuse("version", self.version.to_string(), "1");
        }
        if !(1..=1 << 32).contains(&self.mini_batch) {
            return refuse("mini_batch", self.mini_batch.to_string(), "between 1 and 2^32");
        }
        let planned = self.planned_batch();
        if !(1..=1 << 32).contains(&planned) {
            return refuse("resized.mini_batch", planned.to_string(), "between 1 and 2^32");
        }
        if self.steps > STEPS_MAX {
            return refuse("steps", self.steps.to_string(), "at most 2^40");
        }
        let DataParallel { replicas, bucket, zero, .. } = self.data_parallel;
        if zero > 2 {
            return refuse("data_parallel.zero", zero.to_string(), "0, 1 or 2");
        }
        if !(1..=1 << 20).contains(&replicas) {
            return refuse("data_parallel.replicas", replicas.to_string(), "between 1 and 2^20");
        }
        if !(1..=1 << 10).contains(&self.tensor) {
            return refuse("tensor", self.tensor.to_string(), "between 1 and 2^10");
        }
        if bucket.0 == 0 {
            return refuse("data_parallel.bucket", "0".into(), "at least 1 byte");
        }
        let parts = u64::from(self.micro_batches) * u64::from(replicas);
        if parts == 0 || !self.mini_batch.is_multiple_of(parts) {
            let (mini_batch, micro_batches) = (self.mini_batch, self.micro_batches);
            return Err(PlanError::Indivisible { mini_batch, micro_batches, replicas });
        }
        let mut optimizer = self.optimizer;
        for (field, value, range) in optimizer.numbers() {
            if !range.holds(*value) {
                return refuse(field, value.to_string(), range.must());
            }
        }
        if let Optimizer::Sgd { momentum: 0.0, nesterov: true, .. } = self.optimizer {
            return refuse("optimizer.momentum", "0".into(), "above 0 with nesterov");
        }
        if let Some((field, value, must)) = self.training.wrong_number() {
            return refuse(field, value, must);
        }
        self.communication.check()?;
        if let Some((train, test)) = self.data.drawn() {
            for (field, value) in [("data.train", train), ("data.test", test)] {
                if !(1..=1 << 40).contains(&value) {
                    return refuse(field, value.to_string(), "between 1 and 2^40");
                }
            }
        }
        Ok(())
    }
}

impl DataParallel {
    /// Refuses encoded gradients where replicas divide gradients, of which what is carried over would be as large as
    /// what is saved, or experts.
    ///
    /// # Errors
    /// [`PlanError::WithZero2`] and [`PlanError::WithExperts`].
    pub fn check_encoded(&self) -> Result<(), PlanError> {
        let what = "encoded gradients";
        match (self.divides_gradients(), self.expert_parallel) {
            (true, _) => Err(PlanError::WithZero2(what)),
            (false, 2..) => Err(PlanError::WithExperts(what)),
            (false, _) => Ok(()),
        }
    }

    /// Refuses what replicas cannot do while they divide experts.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check_experts(&self, communication: &Communication) -> Result<(), PlanError> {
        let DataParallel { replicas, expert_parallel, .. } = *self;
        if expert_parallel == 0 || !replicas.is_multiple_of(expert_parallel) {
            let field = "data_parallel.expert_parallel";
            let (value, must) = (expert_parallel.to_string(), "a divisor of `replicas`");
            return Err(PlanError::Value { field, value, must });
        }
        let excluded = [
            (self.through_first(), "data-parallel mode `dp`; use `ddp`"),
            (self.divides_gradients(), "replicas that divide gradients; use zero 1"),
        ];
        if communication.encodes() {
            self.check_encoded()?;
        }
        match excluded.into_iter().find(|(asked, _)| *asked && expert_parallel > 1) {
            Some((_, what)) => Err(PlanError::WithExperts(what)),
            None => Ok(()),
        }
    }
}

/// A plan trains one network: one input, one target, one loss.
fn check_trainable(graph: &Graph) -> Result<(), PlanError> {
    let count = |wanted: fn(&Op) -> bool| graph.nodes().iter().filter(|n| wanted(&n.op)).count();
    let counts = [
        ("input", "inputs", count(Op::is_sample)),
        ("target", "targets", count(Op::is_target)),
        ("loss", "losses", count(Op::is_loss)),
    ];
    for (one, what, count) in counts {
        let model = graph.name().into();
        match count {
            0 => return Err(PlanError::Untrainable { model, what: one }),
            1 => {}
            _ => return Err(PlanError::Several { model, count, what }),
        }
    }
    Ok(())
}
