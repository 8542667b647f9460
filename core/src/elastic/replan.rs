//! A plan for the ranks that are there.
//!
//! Stages stay where they are as long as one replica of them fits: only the number of replicas
//! changes, so ranks keep their weights. With fewer ranks than stages the network is cut anew into
//! fewer of them, balanced; of all numbers of stages those that promise the shortest step by
//! `(m + p - 1) · slowest stage` are predicted, and the best that fits the memory is taken. Tensor groups are
//! left whole: a group stands for a rank, and ranks that make none have no work.
//!
//! Always starts from the plan of the whole job, never from a plan that was made here: so the size
//! that was lost comes back with the very same plan, and all sizes are functions of one plan.
//!
//! ```
//! use pipewright_core::cost::Cluster;
//! use pipewright_core::elastic::{BatchRule, replan};
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::plan::{Draft, Model};
//!
//! let mut draft =
//!     Draft::new(Model::Preset(Preset::Vgg16), Cluster::preset("dgx-a100")?, vec![10]);
//! draft.data_parallel.replicas = 4;
//! let (plan, _) = draft.plan()?;
//! // Of eight ranks one was lost: three whole replicas of two stages are left.
//! let smaller = replan(&plan, 7, BatchRule::default())?;
//! assert!(smaller.plan.ranks() <= 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::size::Batch;
use super::{BatchRule, ResizeError, Size};
use crate::graph::Graph;
use crate::partition::{PartitionError, balanced, layer_times, split};
use crate::plan::{Plan, PlanError, Resized, ScheduleText};
use crate::predict::{FitError, PredictError, Prediction, fit, fits, predict};
use crate::schedule::{GenerateError, ScheduleKind, Updates};
use crate::units::Nanos;
use std::collections::BTreeMap;
use thiserror::Error;

/// Divisions of the network that are predicted before one is taken.
const PREDICTED: usize = 4;

/// Divisions that are made to fit by recomputation, where none fits without it.
const FITTED: usize = 2;

/// Up to so many lanes all smaller numbers of ranks are sizes; beyond, it would take too long.
const LANES_MOST: u32 = 64;

/// A plan for some ranks.
#[derive(Clone, Debug)]
pub struct Replanned {
    /// The plan.
    pub plan: Plan,
    /// Whether its stages are those of the whole job.
    pub kept_stages: bool,
}

impl Replanned {
    /// What policies are told of it.
    pub fn size(&self) -> Size {
        Size {
            ranks: self.plan.ranks(),
            replicas: self.plan.data_parallel.replicas,
            mini_batch: self.plan.mini_batch,
            step_ns: Some(self.plan.prediction.step_ns),
        }
    }
}

/// Why a division is not possible.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Obstacle {
    /// The mini-batch.
    #[error(transparent)]
    Batch(#[from] ResizeError),
    /// The schedule.
    #[error(transparent)]
    Schedule(#[from] GenerateError),
    /// An order of actions of one's own is only known for its own number of micro-batches.
    #[error(
        "schedule `{name}` has no name that other numbers of micro-batches or stages follow from"
    )]
    OwnSchedule {
        /// What it is called.
        name: String,
    },
    /// An update for every micro-batch: their size is what is trained.
    #[error(
        "its schedule updates parameters with every micro-batch, so another division would train \
         something else"
    )]
    Stashed,
    /// The network.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The memory.
    #[error(transparent)]
    Memory(#[from] FitError),
    /// Anything else about the plan.
    #[error(transparent)]
    Plan(#[from] PredictError),
}

/// Why no plan fits.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ReplanError {
    /// Nobody is there.
    #[error("no plan for no rank")]
    NoRank,
    /// Fewer than a group.
    #[error("a tensor group of {tensor} ranks is left whole, and {ranks} of them are there")]
    Group {
        /// Ranks that are there.
        ranks: u32,
        /// Ranks of a group.
        tensor: u32,
    },
    /// The plan to begin with.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// None of the divisions that were tried is possible.
    #[error("no plan for {ranks} ranks: {}", reasons(.tried))]
    Nothing {
        /// Ranks that are there.
        ranks: u32,
        /// Lanes, replicas and what is wrong with them; the nearest first.
        tried: Vec<(u32, u32, Obstacle)>,
    },
}

fn reasons(tried: &[(u32, u32, Obstacle)]) -> String {
    let reason = |(lanes, replicas, why): &(u32, u32, Obstacle)| {
        format!("{lanes} lanes x {replicas} replicas: {why}")
    };
    let mut text = tried.iter().take(3).map(reason).collect::<Vec<_>>().join("; ");
    if tried.len() > 3 {
        text += &format!("; and {} more", tried.len() - 3);
    }
    text
}

/// The best plan for at most so many ranks, after `plan`, the one of the whole job; `rule` says what
/// stays of the mini-batch.
///
/// # Errors
/// What is wrong with each division that comes into question.
pub fn replan(plan: &Plan, ranks: u32, rule: BatchRule) -> Result<Replanned, ReplanError> {
    if ranks == 0 {
        return Err(ReplanError::NoRank);
    }
    let (graph, schedule) = plan.check()?;
    let groups = ranks / plan.tensor;
    if groups == 0 {
        return Err(ReplanError::Group { ranks, tensor: plan.tensor });
    }
    if ranks < plan.ranks() && schedule.updates == Updates::Stashed {
        let own = (plan.lanes(), plan.data_parallel.replicas, Obstacle::Stashed);
        return Err(ReplanError::Nothing { ranks, tried: vec![own] });
    }
    let job = Job { plan, graph, rule };
    let mut tried = vec![];
    let most = match schedule.updates {
        Updates::Stashed => plan.data_parallel.replicas,
        Updates::Synchronous | Updates::DoubleBuffered => groups / plan.lanes().max(1),
    };
    for replicas in (1..=most).rev() {
        match job.with_replicas(replicas) {
            Ok(plan) => return Ok(Replanned { plan, kept_stages: true }),
            Err(why) => tried.push((plan.lanes(), replicas, why)),
        }
    }
    let plan = job.with_fewer_lanes(groups, &mut tried);
    let nothing = || ReplanError::Nothing { ranks, tried };
    plan.map(|plan| Replanned { plan, kept_stages: false }).ok_or_else(nothing)
}

/// All sizes that the job can have with at most so many ranks, ascending: what policies choose from.
///
/// # Errors
/// When `plan` itself does not fit together.
pub fn sizes(plan: &Plan, ranks: u32, rule: BatchRule) -> Result<Vec<Size>, PlanError> {
    let (graph, schedule) = plan.check()?;
    if schedule.updates == Updates::Stashed {
        let own = Replanned { plan: plan.clone(), kept_stages: true }.size();
        return Ok([own].into_iter().filter(|size| size.ranks <= ranks).collect());
    }
    let job = Job { plan, graph, rule };
    let (lanes, groups) = (plan.lanes().max(1), ranks / plan.tensor);
    let below = groups.min(lanes - 1);
    let first = if lanes <= LANES_MOST { 1 } else { below.max(1) };
    let fewer = (first..=below).filter_map(|groups| job.with_fewer_lanes(groups, &mut vec![]));
    let kept = (1..=groups / lanes).filter_map(|replicas| job.with_replicas(replicas).ok());
    let size = |plan: Plan| Replanned { plan, kept_stages: true }.size();
    let mut sizes: Vec<Size> = fewer.chain(kept).map(size).collect();
    sizes.sort_by_key(|size| size.ranks);
    sizes.dedup_by_key(|size| size.ranks);
    Ok(sizes)
}

struct Job<'a> {
    plan: &'a Plan,
    graph: Graph,
    rule: BatchRule,
}

/// A division that comes into question.
struct Candidate {
    lanes: u32,
    stages: u32,
    batch: Batch,
    /// What its step takes at least, about.
    time: Nanos,
}

impl Job<'_> {
    /// The same stages, another number of times.
    fn with_replicas(&self, replicas: u32) -> Result<Plan, Obstacle> {
        let before = Batch::of(self.plan);
        if replicas == before.replicas {
            return Ok(self.plan.clone());
        }
        let stages = self.plan.stages();
        let (batch, schedule) = self.division(replicas, stages)?;
        let mut plan = self.plan.clone();
        plan.schedule = schedule;
        self.divide(&mut plan, batch);
        let prediction = predict(&plan)?;
        finish(plan, prediction)
    }

    /// The largest micro-batches for which there is a schedule.
    fn division(&self, replicas: u32, stages: u32) -> Result<(Batch, ScheduleText), Obstacle> {
        let mut refused = None;
        for batch in Batch::of(self.plan).resized(replicas, self.rule)? {
            match self.schedule(stages, batch.micro_batches) {
                Ok(schedule) => return Ok((batch, schedule)),
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        Err(refused.expect("a mini-batch that divides has a division"))
    }

    fn schedule(&self, stages: u32, micro_batches: u32) -> Result<ScheduleText, Obstacle> {
        let plan = self.plan;
        if (stages, micro_batches) == (plan.stages(), plan.micro_batches) {
            return Ok(plan.schedule.clone());
        }
        let own = || Obstacle::OwnSchedule { name: plan.schedule.name.clone() };
        let kind = self.kind().ok_or_else(own)?;
        Ok(ScheduleText::of(kind, stages, micro_batches)?)
    }

    /// The named schedule of the plan, if its lanes are really those.
    fn kind(&self) -> Option<ScheduleKind> {
        let plan = self.plan;
        let kind: ScheduleKind = plan.schedule.name.parse().ok()?;
        let named = ScheduleText::of(kind, plan.stages(), plan.micro_batches).ok()?;
        (named.lanes == plan.schedule.lanes).then_some(kind)
    }

    /// Writes a division of the mini-batch into a plan, with all that follows from it.
    fn divide(&self, plan: &mut Plan, batch: Batch) {
        let planned = plan.planned_batch();
        (plan.mini_batch, plan.micro_batches) = (batch.mini_batch, batch.micro_batches);
        plan.data_parallel = self.plan.data_parallel.with_replicas(batch.replicas);
        if let BatchRule::Scale(rate) = self.rule {
            let resized = Resized { mini_batch: planned, rate };
            plan.resized = (batch.mini_batch != planned).then_some(resized);
        }
    }

    /// Fewer lanes than the plan has, on at most `groups` tensor groups.
    fn with_fewer_lanes(&self, groups: u32, tried: &mut Vec<(u32, u32, Obstacle)>) -> Option<Plan> {
        let candidates = self.candidates(groups, tried);
        let mut best: Option<Plan> = None;
        let mut fitting = 0;
        for candidate in &candidates {
            match self.cut(candidate).and_then(|(plan, prediction)| finish(plan, prediction)) {
                Ok(plan) => {
                    fitting += 1;
                    let step = |plan: &Plan| plan.prediction.step_ns;
                    best = match best {
                        Some(best) if step(&best) <= step(&plan) => Some(best),
                        _ => Some(plan),
                    };
                }
                Err(why) => tried.push((candidate.lanes, candidate.batch.replicas, why)),
            }
            if fitting == PREDICTED {
                break;
            }
        }
        let fitted = || {
            let plans = candidates.iter().take(FITTED).filter_map(|c| self.cut(c).ok());
            plans.filter_map(|(plan, _)| fit(&plan, 1).ok()).map(|(plan, _)| plan).next()
        };
        best.or_else(fitted)
    }

    /// Those with a schedule, the fastest by the formula first.
    fn candidates(&self, groups: u32, tried: &mut Vec<(u32, u32, Obstacle)>) -> Vec<Candidate> {
        let mut times: BTreeMap<u64, Vec<Nanos>> = BTreeMap::new();
        let mut found = vec![];
        let most = groups.min(self.plan.lanes().saturating_sub(1));
        let kind = self.kind().unwrap_or(ScheduleKind::OneFOneB);
        for lanes in 1..=most {
            let stages = kind.placement().stages(lanes);
            let division = (1..=groups / lanes).rev().find_map(|replicas| {
                let batches = Batch::of(self.plan).resized(replicas, self.rule).ok()?;
                batches.into_iter().find(|b| kind.generate(stages, b.micro_batches).is_ok())
            });
            let Some(batch) = division else {
                let error = kind.generate(stages, self.plan.micro_batches).err();
                tried.extend(error.map(|error| (lanes, 1, error.into())));
                continue;
            };
            if stages as usize > self.graph.layers().len() {
                continue;
            }
            let samples = batch.samples();
            let layers = times.entry(samples).or_insert_with(|| {
                layer_times(&self.graph, &self.plan.costs(&self.graph, samples))
            });
            let slowest = slowest(layers, stages as usize) * u64::from(stages / lanes.max(1));
            let time = slowest * (u64::from(batch.micro_batches) + u64::from(lanes) - 1);
            found.push(Candidate { lanes, stages, batch, time });
        }
        found.sort_by_key(|candidate| (candidate.time, candidate.lanes));
        found
    }

    /// The network cut anew.
    fn cut(&self, candidate: &Candidate) -> Result<(Plan, Prediction), Obstacle> {
        let kind = self.kind().unwrap_or(ScheduleKind::OneFOneB);
        let mut plan = self.plan.clone();
        plan.schedule = ScheduleText::of(kind, candidate.stages, candidate.batch.micro_batches)?;
        self.divide(&mut plan, candidate.batch);
        let costs = plan.costs(&self.graph, plan.samples());
        plan.cuts = balanced(&self.graph, &costs, candidate.stages)?;
        // Sequences are of stages that are no more.
        plan.recompute.clear();
        let prediction = predict(&plan)?;
        Ok((plan, prediction))
    }
}

/// The slowest of `groups` groups of a chain.
fn slowest(layers: &[Nanos], groups: usize) -> Nanos {
    let mut starts = split(layers, groups);
    starts.insert(0, 0);
    starts.push(layers.len());
    starts.windows(2).map(|w| layers[w[0]..w[1]].iter().copied().sum()).max().unwrap_or_default()
}

/// The plan with its prediction in it, if it fits the memory.
fn finish(mut plan: Plan, prediction: Prediction) -> Result<Plan, Obstacle> {
    fits(&plan, &prediction)?;
    plan.prediction = prediction.expectation();
    Ok(plan)
}
