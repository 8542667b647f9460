//! A search for whole plans. Estimates say which plans are worth a look, and each of these is
//! predicted before it is shown: a plan that is taken is what its point said, to the byte.

use crate::protocol::{FoundPlan, Plans, Reply};
use pipewright_core::cost::{Costs, Workload};
use pipewright_core::graph::Graph;
use pipewright_core::order::sort_by_numbers;
use pipewright_core::plan::{Plan, ScheduleText, Sequence};
use pipewright_core::predict::search::{Choice, Encoding, Fixed, Scored, Search, Space};
use pipewright_core::predict::{FitError, fit, outline};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::timeline::Timeline;
use pipewright_core::units::Bytes;
use std::collections::BTreeSet;

/// Estimates between two rests, for each part of the search.
const BUDGET: u64 = 2000;

/// Estimates at a time: always as many, so that a slow machine is led to the same plans as a fast one.
const AT_ONCE: u64 = 8;

/// Moves of a search for a sequence that take about as long as these.
const MOVES: u64 = 400;

/// Moves for each node when a stage's sequence is looked for: a glance, as there are many plans.
const EFFORT: u64 = 20;

/// Plans that are predicted of each part's, at most: the fastest.
const LOOKED_AT: usize = 48;

/// The search of one schedule, or of all, with one degree of tensor groups.
struct Part {
    /// Which of the plans it varies.
    of: usize,
    search: Search<'static>,
    tried: u64,
    until: u64,
    /// Nothing is left to try, and why if nothing fits.
    over: Option<Option<String>>,
}

/// A question for plans and what was found so far.
pub struct Planning {
    /// What is asked about, then the same with other tensor groups; plans that are found differ from these in what
    /// was left open.
    plans: Vec<Plan>,
    /// First nodes of the blocks that are not cut.
    blocks: Vec<u32>,
    parts: Vec<Part>,
    /// Choices that were predicted.
    known: BTreeSet<String>,
    found: Vec<FoundPlan>,
    /// How many of them were said.
    said: usize,
    on: bool,
    /// Which part is next, or one more: a prediction.
    turn: usize,
}

impl Planning {
    /// Plans for the network, cluster and mini-batch of `plan`, on so many devices at most.
    ///
    /// # Errors
    /// A sentence for the person.
    pub fn new(plan: &str, devices: u32) -> Result<Self, String> {
        let plan = Plan::from_json(plan).map_err(|e| e.to_string())?;
        let (graph, _) = plan.check().map_err(|e| e.to_string())?;
        let blocks: Vec<u32> = graph.layers().iter().map(|layer| layer.first_node.0).collect();
        let plans: Vec<Plan> =
            std::iter::once(plan.clone()).chain(with_groups(&plan, devices)).collect();
        let mut parts = vec![];
        for (of, plan) in plans.iter().enumerate() {
            // Those with one stage a lane are soon through and lead the way; then all that keep a stage on one
            // lane and train the same.
            let straight =
                ScheduleKind::STRAIGHT.iter().filter(|_| of == 0).map(|kind| Some(*kind));
            let schedules: Vec<Option<ScheduleKind>> = straight.chain([None]).collect();
            parts.extend(
                searches(plan, &blocks, &schedules, devices)?.into_iter().map(|search| Part {
                    of,
                    search,
                    tried: 0,
                    until: BUDGET,
                    over: None,
                }),
            );
        }
        let (known, found) = (BTreeSet::new(), vec![]);
        Ok(Self { plans, blocks, parts, known, found, said: 0, on: false, turn: 0 })
    }

    /// Searches on, or rests.
    pub fn run(&mut self, on: bool) {
        self.on = on;
        if on && self.rested() {
            self.parts.iter_mut().for_each(|part| part.until += BUDGET);
        }
    }

    /// Estimates a few plans or predicts one; whether there is more to do.
    pub fn step(&mut self, moves: u64) -> bool {
        if !self.on {
            return false;
        }
        self.turn = (self.turn + 1) % (self.parts.len() + 1);
        match self.parts.get_mut(self.turn) {
            Some(part) => (0..(moves / MOVES).max(1)).for_each(|_| part.advance(AT_ONCE)),
            None => drop(self.look()),
        }
        if self.rested() && !self.look() {
            self.on = false;
        }
        self.on
    }

    /// Predicts the fastest plan that was not yet; whether there was one.
    fn look(&mut self) -> bool {
        let worth = |part: &Part| {
            let entries = part.search.front().entries().iter().take(LOOKED_AT);
            entries.map(|scored| (part.of, scored.clone())).collect::<Vec<(usize, Scored)>>()
        };
        let mut all: Vec<(usize, Scored)> = self.parts.iter().flat_map(worth).collect();
        sort_by_numbers(&mut all, |(_, scored)| [scored.step.0, 0]);
        let next = all.into_iter().find(|(of, scored)| self.known.insert(key(*of, &scored.choice)));
        let Some((of, next)) = next else { return false };
        if let Some(found) = self.predicted(of, &next) {
            self.found.push(found);
        }
        true
    }

    /// The plan of a choice, with sequences where it recomputes or does not fit.
    fn predicted(&self, of: usize, scored: &Scored) -> Option<FoundPlan> {
        let choice = &scored.choice;
        let cuts: Vec<u32> =
            choice.starts.iter().map(|block| self.blocks[*block as usize]).collect();
        let schedule = ScheduleText::of(choice.schedule, choice.stages(), choice.micro_batches);
        let mut plan = Plan {
            cuts,
            schedule: schedule.ok()?,
            recompute: vec![],
            micro_batches: choice.micro_batches,
            ..self.plans[of].clone()
        };
        plan.data_parallel.replicas = choice.replicas;
        let whole = plan.cluster.device.memory;
        let mut timeline = outline(&plan).ok()?.timeline;
        let peak = |t: &Timeline| t.peak().map_or(Bytes::ZERO, |(_, bytes)| bytes);
        let again = choice.recompute.contains(&true);
        let limit = if again { scored.peak.min(whole) } else { whole };
        if peak(&timeline) > limit {
            (plan.recompute, timeline) = within(&plan, limit)?;
        }
        Some(FoundPlan {
            cuts: plan.cuts,
            schedule: choice.schedule.to_string(),
            micro_batches: choice.micro_batches,
            replicas: choice.replicas,
            tensor: plan.tensor,
            sequence_parallel: plan.sequence_parallel,
            recompute: plan.recompute.iter().map(Sequence::to_string).collect(),
            step: timeline.step.0,
            peak: peak(&timeline).0,
            traffic: timeline.traffic().0,
        })
    }

    fn rested(&self) -> bool {
        self.parts.iter().all(Part::rested)
    }

    /// How far it is.
    pub fn report(&mut self) -> Reply {
        let why = || {
            let over = self.parts.iter().map(|part| part.over.clone().flatten());
            over.collect::<Option<Vec<String>>>()?.into_iter().next()
        };
        if let Some(why) = why().filter(|_| self.found.is_empty()) {
            return Reply::Failed { why };
        }
        let counts = self.parts.iter().map(|part| part.search.counts());
        let (tried, skipped) = counts.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let found = self.found[self.said..].to_vec();
        self.said = self.found.len();
        let front = front(&self.found, self.plans[0].cluster.device.memory.0);
        Reply::Plans(Plans { tried, skipped, found, front, done: !self.on })
    }
}

impl Part {
    fn advance(&mut self, count: u64) {
        let count = count.min(self.until.saturating_sub(self.tried));
        if self.over.is_some() || count == 0 {
            return;
        }
        match self.search.advance(count) {
            Ok(tried) => {
                self.tried += tried;
                self.over = (tried < count).then_some(None);
            }
            Err(why) => self.over = Some(Some(why.to_string())),
        }
    }

    fn rested(&self) -> bool {
        self.over.is_some() || self.tried >= self.until
    }
}

/// The plan with the other degrees of tensor groups that its network and its hosts allow, with slices of the sequence
/// where these can be had: they take less memory and send as much.
fn with_groups(plan: &Plan, devices: u32) -> Vec<Plan> {
    // What divides a node, so that no group is on two.
    let within = plan.cluster.devices_per_node.min(plan.cluster.ranks_per_node);
    let with = |tensor: u32, sequence_parallel: bool| {
        // As small as a plan can be: the search chooses the rest.
        let schedule = ScheduleText::of(ScheduleKind::GPipe, 1, 1).ok()?;
        let (cuts, recompute, micro_batches) = (vec![], vec![], 1);
        let mut small = Plan {
            tensor,
            sequence_parallel,
            cuts,
            recompute,
            micro_batches,
            schedule,
            ..plan.clone()
        };
        small.data_parallel.replicas = 1;
        small.check().is_ok().then_some(small)
    };
    let degrees = (1..=within.min(devices))
        .filter(|degree| within.is_multiple_of(*degree) && *degree != plan.tensor);
    degrees
        .filter_map(|degree| match degree {
            1 => with(1, false),
            degree => with(degree, true).or_else(|| with(degree, false)),
        })
        .collect()
}

/// A search for each of the schedules, or for all of them.
///
/// # Errors
/// A sentence for the person.
fn searches(
    plan: &Plan,
    blocks: &[u32],
    schedules: &[Option<ScheduleKind>],
    devices: u32,
) -> Result<Vec<Search<'static>>, String> {
    // The graph is what a rank of a tensor group computes; the search places groups.
    let (graph, _) = plan.check().map_err(|e| e.to_string())?;
    // A worker asks one question and ends with it, so what searches borrow is never given back.
    let graph: &'static Graph = Box::leak(Box::new(graph));
    let cluster = Box::leak(Box::new(plan.cluster.clone()));
    let precision = plan.training.precision;
    let model = move |samples| Workload::of(graph, &Costs::new(graph, cluster, samples, precision));
    let model: &'static (dyn Fn(u64) -> Workload + Sync) = Box::leak(Box::new(model));
    let groups = devices / plan.tensor;
    let search = |schedule: &Option<ScheduleKind>| {
        let space = space(plan, blocks.to_vec(), model, *schedule, groups);
        let space: &'static Space = Box::leak(Box::new(space));
        Search::new(space).map_err(|e| e.to_string())
    };
    schedules.iter().map(search).collect()
}

/// What is left open: lanes, replicas, micro-batches, cuts, recomputation. Of tensor groups each counts as a device.
fn space(
    plan: &Plan,
    blocks: Vec<u32>,
    model: &'static (dyn Fn(u64) -> Workload + Sync),
    schedule: Option<ScheduleKind>,
    devices: u32,
) -> Space<'static> {
    let own = &plan.communication;
    // Gradients and activations travel as the plan says: lossy codecs train something else.
    let own = Encoding { gradients: own.gradients, by_hosts: own.hierarchical, edges: own.edges };
    let plain = own == Encoding::default();
    let fixed = Fixed {
        schedule,
        one_route: true,
        encoding: Some((!plain).then_some(0)),
        ..Fixed::default()
    };
    Space {
        model,
        blocks,
        cluster: plan.cluster.of_groups(plan.tensor),
        devices: devices.max(1),
        memory: plan.cluster.device.memory,
        mini_batch: plan.mini_batch,
        states: plan.data_parallel.states(plan.optimizer),
        parameter_bytes: 4,
        fixed: fixed.plain(),
        encodings: if plain { vec![] } else { vec![own] },
        seed: 1,
    }
}

/// Sequences with which no lane takes more than `limit`, or as little more as can be.
fn within(plan: &Plan, limit: Bytes) -> Option<(Vec<Sequence>, Timeline)> {
    let mut small = plan.clone();
    small.cluster.device.memory = limit;
    let mut fitted = fit(&small, EFFORT);
    if let Err(FitError::Memory { lanes, .. }) = &fitted {
        small.cluster.device.memory = lanes.iter().map(|(_, least)| *least).max()?;
        fitted = fit(&small, EFFORT);
    }
    let (fitted, prediction) = fitted.ok()?;
    Some((fitted.recompute, prediction.timeline))
}

fn key(of: usize, choice: &Choice) -> String {
    format!("{of} {choice:?}")
}

/// Numbers of the plans within `memory` that no other is better than, the fastest first.
fn front(found: &[FoundPlan], memory: u64) -> Vec<u32> {
    let covers = |a: &FoundPlan, b: &FoundPlan| {
        a.step <= b.step && a.peak <= b.peak && a.traffic <= b.traffic
    };
    let mut front: Vec<u32> = vec![];
    for (number, plan) in (0..).zip(found).filter(|(_, plan)| plan.peak <= memory) {
        let of = |number: &u32| &found[*number as usize];
        if !front.iter().any(|other| covers(of(other), plan)) {
            front.retain(|other| !covers(plan, of(other)));
            front.push(number);
        }
    }
    sort_by_numbers(&mut front, |number| [found[*number as usize].step, (*number).into()]);
    front
}
