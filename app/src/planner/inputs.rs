//! Inputs that a person chooses; everything else on the page follows from them.

use super::choices::{ClusterChoice, ModelChoice};
use super::times::Times;
use crate::base::shared::Shared;
use crate::base::texts::tr;
use pipewright_core::cost::{CLUSTERS, Cluster};
use pipewright_core::plan::{
    Communication, Data, DataParallel, Draft, Model, Optimizer, Plan, ScheduleText, Sequence,
    Training,
};
use pipewright_core::predict::Prediction;
use pipewright_core::schedule::{Schedule, ScheduleKind};

/// The whole editable state. Cheap to clone: one is kept for every step of undo.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    pub model: ModelChoice,
    pub cluster: ClusterChoice,
    /// First nodes of all stages but the first.
    pub cuts: Vec<u32>,
    pub schedule: ScheduleKind,
    pub mini_batch: u64,
    pub micro_batches: u32,
    pub rest: Rest,
    /// Sequences of stages that recompute.
    pub recompute: Option<Shared<Recomputed>>,
    /// Times of layers that were typed over.
    pub times: Option<Shared<Times>>,
    /// An order of actions from a file, in place of the schedule's.
    pub own: Option<Shared<Own>>,
    /// A, what this plan B is compared with, where it was pinned. It has no A of its own.
    pub a: Option<Box<Inputs>>,
}

/// An order of actions that a file gave.
#[derive(Debug, PartialEq)]
pub struct Own {
    /// Of the file, or what its plan calls it.
    pub name: String,
    pub schedule: Schedule,
}

/// Sequences by what the stages hold, so that moving a cut there and back loses none.
#[derive(Clone, Debug, PartialEq)]
pub struct Recomputed {
    /// The model that they are of.
    model: ModelChoice,
    /// First nodes of a stage and of the one after it, and the stage's sequence.
    stages: Vec<(u32, u32, Sequence)>,
}

/// What a plan says beyond what the page edits; a loaded plan's is carried on to the exported one.
#[derive(Clone, Debug, PartialEq)]
pub struct Rest {
    pub data_parallel: DataParallel,
    /// Ranks that divide the work of each lane.
    pub tensor: u32,
    /// Whether they have slices of the sequence between what they divide.
    pub sequence_parallel: bool,
    pub communication: Communication,
    pub optimizer: Optimizer,
    pub training: Training,
    pub data: Data,
    pub shuffle: bool,
    pub seed: u64,
    pub steps: u64,
}

impl Default for Rest {
    fn default() -> Self {
        let (optimizer, training) = (Optimizer::default(), Training::default());
        let data_parallel = DataParallel::default();
        Self {
            data_parallel,
            tensor: 1,
            sequence_parallel: false,
            communication: Communication::default(),
            optimizer,
            training,
            data: Data::default(),
            shuffle: true,
            seed: 1,
            steps: 100,
        }
    }
}

impl Inputs {
    /// The same choices, compared with nothing.
    pub fn alone(&self) -> Self {
        Self { a: None, ..self.clone() }
    }

    pub fn stages(&self) -> u32 {
        self.cuts.len() as u32 + 1
    }

    /// Lanes that the stages are placed on; rounded where they do not divide.
    pub fn lanes(&self) -> u32 {
        if let Some(own) = &self.own {
            return own.schedule.lanes.len() as u32;
        }
        let placement = self.schedule.placement();
        placement.lanes(self.stages()).unwrap_or(self.stages() / placement.stages(1)).max(1)
    }

    /// Ranks that execute the plan.
    pub fn ranks(&self) -> u32 {
        self.ranks_of_replica().saturating_mul(self.rest.data_parallel.replicas)
    }

    /// Ranks of one copy of the pipeline.
    pub fn ranks_of_replica(&self) -> u32 {
        self.lanes().saturating_mul(self.rest.tensor)
    }

    /// Samples of a micro-batch, when the mini-batch divides evenly.
    pub fn samples(&self) -> Option<u64> {
        let parts = u64::from(self.micro_batches) * u64::from(self.rest.data_parallel.replicas);
        (parts > 0 && self.mini_batch.is_multiple_of(parts)).then(|| self.mini_batch / parts)
    }

    /// The typed times, where they are of this model.
    pub fn typed(&self) -> Option<&Shared<Times>> {
        self.times.as_ref().filter(|times| times.model == self.model)
    }

    /// The chosen cluster, with the typed times as measured ones.
    pub fn cluster(&self) -> Shared<Cluster> {
        let chosen = self.cluster.cluster();
        self.typed().map_or(chosen.clone(), |times| Shared::new(times.over(&chosen)))
    }

    /// First nodes of a stage and of the one after it.
    fn bounds(&self, stage: usize) -> (u32, u32) {
        let first = stage.checked_sub(1).map_or(0, |before| self.cuts[before]);
        (first, self.cuts.get(stage).copied().unwrap_or(u32::MAX))
    }

    /// The sequence of each stage; none at all where no stage recomputes.
    pub fn sequences(&self) -> Vec<Sequence> {
        let Some(known) = self.recompute.as_ref().filter(|r| r.model == self.model) else {
            return vec![];
        };
        let of = |stage: u32| {
            let (first, end) = self.bounds(stage as usize);
            let found = known.stages.iter().find(|(a, b, _)| (*a, *b) == (first, end));
            found.map(|(.., sequence)| sequence.clone()).unwrap_or_default()
        };
        let all: Vec<Sequence> = (0..self.stages()).map(of).collect();
        if all.iter().all(|sequence| sequence.0.is_empty()) { vec![] } else { all }
    }

    /// Gives a stage a sequence; an empty one is none.
    pub fn recompute(&mut self, stage: u32, sequence: Sequence) {
        let (first, end) = self.bounds(stage as usize);
        let known = self.recompute.as_ref().filter(|r| r.model == self.model);
        let mut stages = known.map(|known| known.stages.clone()).unwrap_or_default();
        stages.retain(|(a, b, _)| (*a, *b) != (first, end));
        stages.push((first, end, sequence));
        self.recompute = Some(Shared::new(Recomputed { model: self.model.clone(), stages }));
    }

    /// The order of actions.
    ///
    /// # Errors
    /// Numbers that the schedule cannot have, or that an order from a file is not for.
    pub fn order(&self) -> Result<Schedule, String> {
        let (stages, m) = (self.stages(), self.micro_batches);
        let Some(own) = &self.own else {
            return self.schedule.generate(stages, m).map_err(|why| why.to_string());
        };
        let (its_stages, its_m) = (own.schedule.stages(), own.schedule.micro_batches);
        if (its_stages, its_m) == (stages, m) {
            return Ok(own.schedule.clone());
        }
        Err(tr!(
            "{name} orders {its_stages} x {its_m} passes (stages x micro-batches), the plan has \
             {stages} x {m}; choose a schedule that has a name",
            name = own.name,
            its_stages,
            its_m,
            stages,
            m
        ))
    }

    /// The name of the order.
    pub fn order_title(&self) -> String {
        self.own.as_ref().map_or(self.schedule.title().into(), |own| own.name.clone())
    }

    /// The checked plan with its prediction.
    ///
    /// # Errors
    /// The first choice that does not fit.
    pub fn plan(&self) -> Result<(Plan, Prediction), String> {
        let made = match &self.own {
            None => self.draft().plan(),
            Some(own) => {
                let lanes = own.schedule.lines();
                self.draft().plan_in(ScheduleText { name: own.name.clone(), lanes })
            }
        };
        made.map_err(|why| why.to_string())
    }

    /// The plan's text as the worker takes it: without a prediction.
    ///
    /// # Errors
    /// Numbers that the schedule cannot have.
    pub fn question(&self) -> Result<String, String> {
        let name = self.own.as_ref().map_or(self.schedule.to_string(), |own| own.name.clone());
        let order = ScheduleText { name, lanes: self.order()?.lines() };
        Ok(self.draft().unpredicted(order).to_json())
    }

    /// The same choices as the core takes them, but for an order of their own.
    fn draft(&self) -> Draft {
        Draft {
            model: self.model.model(),
            cluster: (*self.cluster()).clone(),
            cuts: self.cuts.clone(),
            recompute: self.sequences(),
            schedule: self.schedule,
            mini_batch: self.mini_batch,
            micro_batches: self.micro_batches,
            data_parallel: self.rest.data_parallel,
            tensor: self.rest.tensor,
            sequence_parallel: self.rest.sequence_parallel && self.rest.tensor > 1,
            communication: self.rest.communication.clone(),
            optimizer: self.rest.optimizer,
            training: self.rest.training,
            data: self.rest.data.clone(),
            shuffle: self.rest.shuffle,
            seed: self.rest.seed,
            steps: self.rest.steps,
        }
    }

    /// The choices that make `plan`. A cluster equal to a preset becomes that preset.
    ///
    /// # Errors
    /// For a schedule that is none.
    pub fn of_plan(plan: &Plan) -> Result<Self, String> {
        let model = match &plan.model {
            Model::Preset(p) => ModelChoice::Preset(*p),
            Model::Graph(graph) => ModelChoice::File(Shared::new(graph.clone())),
        };
        let same = |name: &&str| Cluster::preset(name).is_ok_and(|preset| preset == plan.cluster);
        let cluster = match CLUSTERS.into_iter().find(same) {
            Some(name) => ClusterChoice::Preset(name),
            None => ClusterChoice::File(Shared::new(plan.cluster.clone())),
        };
        let stages = plan.cuts.len() as u32 + 1;
        let named = plan.schedule.name.parse::<ScheduleKind>().ok();
        let schedule = named.into_iter().chain(ScheduleKind::ALL).find(|kind| {
            ScheduleText::of(*kind, stages, plan.micro_batches)
                .is_ok_and(|text| text.lanes == plan.schedule.lanes)
        });
        let own = match schedule {
            Some(_) => None,
            None => {
                let (name, read) = (plan.schedule.name.clone(), plan.schedule.parse());
                let schedule = read.map_err(|why| why.to_string())?;
                Some(Shared::new(Own { name, schedule }))
            }
        };
        let schedule = schedule.unwrap_or(ScheduleKind::OneFOneB);
        let mut inputs = Self {
            model,
            cluster,
            cuts: plan.cuts.clone(),
            schedule,
            mini_batch: plan.mini_batch,
            micro_batches: plan.micro_batches,
            rest: Rest {
                data_parallel: plan.data_parallel,
                tensor: plan.tensor,
                sequence_parallel: plan.sequence_parallel,
                communication: plan.communication.clone(),
                optimizer: plan.optimizer,
                training: plan.training,
                data: plan.data.clone(),
                shuffle: plan.shuffle,
                seed: plan.seed,
                steps: plan.steps,
            },
            recompute: None,
            times: None,
            own,
            a: None,
        };
        for (stage, sequence) in (0..).zip(&plan.recompute).filter(|(_, s)| !s.0.is_empty()) {
            inputs.recompute(stage, sequence.clone());
        }
        Ok(inputs)
    }
}
