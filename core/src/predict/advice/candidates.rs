//! Candidates: plans that are worth a simulation, a few at a time.

use super::Advice;
use crate::compress::USUAL;
use crate::cost::{Costs, Workload};
use crate::graph::Precision;
use crate::partition::balanced;
use crate::plan::{Plan, PlanError, ScheduleText, training_graphs};
use crate::predict::search::{Choice, Fixed, Search, Space};
use crate::predict::{Borders, PredictError, USUAL as USUAL_WORK, best_split};
use crate::schedule::{ScheduleKind, Updates};
use crate::simulate::StageCost;
use crate::units::Nanos;
use std::collections::VecDeque;

/// Micro-batches beyond this are not tried: overheads have long won.
const MICRO_BATCHES_MAX: u32 = 1024;

/// Numbers of micro-batches of the first look: every octave has two.
const PER_OCTAVE: f64 = 2.0;

/// Estimates of a search for one number of lanes, and plans of it that are simulated.
const ESTIMATES: u64 = 48;
const SHORTLIST: usize = 3;

/// Lanes that are searched at most.
const LANES_MAX: u32 = 64;

/// A way to look for plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wave {
    /// The most micro-batches, for a plan that does not fit: the more there are, the less each of them keeps.
    Room,
    /// Other numbers of micro-batches.
    MicroBatches,
    /// Those beside the best that was found.
    Nearby,
    /// The best cuts.
    Cuts,
    /// Other schedules on as many lanes.
    Schedules,
    /// Everything open but for the lanes and the devices at most.
    Lanes {
        /// Of the pipeline.
        lanes: u32,
        /// Ranks in all.
        ranks: u32,
    },
    /// The best cuts for the best plan that was found.
    Refined,
    /// The plan itself without its recomputation.
    Recompute,
    /// Half precision, and encoded gradients.
    Numerics,
}

/// The waves for a plan, which may not fit: what is cheap and changes least first.
pub(super) fn waves(plan: &Plan, fits: bool) -> VecDeque<Wave> {
    let mut waves = VecDeque::from([Wave::MicroBatches, Wave::Nearby, Wave::Schedules, Wave::Cuts]);
    if !fits {
        waves.push_front(Wave::Room);
    }
    if !plan.recompute.is_empty() {
        waves.push_back(Wave::Recompute);
    }
    // A tensor group stands for one device.
    let there = u32::try_from(plan.cluster.devices()).unwrap_or(u32::MAX) / plan.tensor;
    let own = plan.ranks() / plan.tensor;
    let mut sizes = vec![own.min(there.max(own))];
    if there > own {
        sizes.push(there);
    }
    for ranks in sizes {
        let mut lanes = 1;
        while lanes <= ranks.min(LANES_MAX) {
            waves.push_back(Wave::Lanes { lanes, ranks });
            lanes *= 2;
        }
        waves.extend([Wave::Refined, Wave::Nearby]);
    }
    waves.push_back(Wave::Numerics);
    waves
}

impl Wave {
    /// Its candidates beside `plan`, which may not fit, given what was found so far.
    pub(super) fn candidates(self, plan: &Plan, fits: bool, found: &[Advice]) -> Vec<Plan> {
        let best = || found.iter().filter(|advice| advice.fits).min_by_key(|advice| advice.step);
        match self {
            Wave::Room => micro_batches(plan, fits).take(1).collect(),
            Wave::MicroBatches => micro_batches(plan, fits).collect(),
            Wave::Nearby => best().map(|best| nearby(&best.plan)).unwrap_or_default(),
            Wave::Cuts => cut_anew(plan).into_iter().collect(),
            Wave::Schedules => schedules(plan),
            Wave::Lanes { lanes, ranks } => searched(plan, lanes, ranks),
            Wave::Refined => best().and_then(|best| cut_anew(&best.plan)).into_iter().collect(),
            Wave::Recompute => vec![Plan { recompute: vec![], ..plan.clone() }],
            Wave::Numerics => numerics(plan, best().map(|best| &best.plan)),
        }
    }
}

/// The plan with another number of micro-batches; none for an order without a name.
fn with_micro_batches(plan: &Plan, micro_batches: u32) -> Option<Plan> {
    let kind: ScheduleKind = plan.schedule.name.parse().ok()?;
    let schedule = ScheduleText::of(kind, plan.stages(), micro_batches).ok()?;
    Some(Plan { schedule, micro_batches, recompute: vec![], ..plan.clone() })
}

/// What divides a replica's share of the mini-batch.
fn divisors(plan: &Plan) -> Vec<u32> {
    let share = plan.mini_batch / u64::from(plan.data_parallel.replicas);
    let most = u32::try_from(share).unwrap_or(u32::MAX).min(MICRO_BATCHES_MAX);
    (1..=most).filter(|m| share.is_multiple_of(u64::from(*m))).collect()
}

/// From the plan's own number outwards, not all of those that are close to each other. Where the plan does not fit
/// from the most downwards.
fn micro_batches(plan: &Plan, fits: bool) -> impl Iterator<Item = Plan> {
    let octave = |m: u32| (f64::from(m).log2() * PER_OCTAVE).round() as i64;
    let own = octave(plan.micro_batches);
    let mut numbers = divisors(plan);
    numbers.dedup_by_key(|m| octave(*m));
    numbers.retain(|m| *m != plan.micro_batches);
    numbers.sort_by_key(|m| if fits { (octave(*m) - own).abs() } else { -octave(*m) });
    numbers.into_iter().filter_map(|m| with_micro_batches(plan, m))
}

/// The next numbers of micro-batches on both sides.
fn nearby(plan: &Plan) -> Vec<Plan> {
    let numbers = divisors(plan);
    let Some(at) = numbers.iter().position(|m| *m == plan.micro_batches) else { return vec![] };
    let near = at.saturating_sub(3)..(at + 4).min(numbers.len());
    numbers[near].iter().filter_map(|m| with_micro_batches(plan, *m)).collect()
}

/// The plan with the best cuts for its schedule.
fn cut_anew(plan: &Plan) -> Option<Plan> {
    let found = best_split(&plan.draft(), &plan.schedule, Borders::Nodes, USUAL_WORK).ok()?;
    (found.cuts != plan.cuts).then(|| Plan { cuts: found.cuts, recompute: vec![], ..plan.clone() })
}

/// Synchronous schedules on as many lanes; cut anew where they need other stages.
fn schedules(plan: &Plan) -> Vec<Plan> {
    let lanes = plan.lanes();
    let Ok(graph) = plan.model.graph() else { return vec![] };
    let costs = plan.costs(&graph, plan.samples());
    let other = |kind: ScheduleKind| {
        let stages = kind.placement().stages(lanes);
        let schedule = ScheduleText::of(kind, stages, plan.micro_batches).ok()?;
        let mut other = Plan { schedule, ..plan.clone() };
        if stages != plan.stages() {
            other.cuts = balanced(&graph, &costs, stages).ok()?;
            other.recompute = vec![];
        }
        Some(other)
    };
    let same = |kind: &ScheduleKind| kind.updates() == Updates::Synchronous;
    ScheduleKind::ALL.into_iter().filter(same).filter_map(other).collect()
}

/// What a search finds best with so many lanes and everything else open.
fn searched(plan: &Plan, lanes: u32, ranks: u32) -> Vec<Plan> {
    let Ok((graph, _)) = plan.check() else { return vec![] };
    let (cluster, precision) = (&plan.cluster, plan.training.precision);
    let model = |samples| {
        let costs = Costs::new(&graph, cluster, samples, precision);
        Workload::of_training(&graph, &costs, precision)
    };
    let blocks: Vec<u32> = graph.layers().iter().map(|layer| layer.first_node.0).collect();
    let space = Space {
        model: &model,
        blocks: blocks.clone(),
        cluster: cluster.of_groups(plan.tensor),
        devices: ranks,
        memory: cluster.device.memory,
        mini_batch: plan.mini_batch,
        states: plan.data_parallel.states(plan.optimizer),
        parameter_bytes: 4,
        fixed: Fixed {
            lanes: Some(lanes),
            one_route: true,
            recompute: Some(false),
            encoding: Some(None),
            ..Fixed::default()
        }
        .plain(),
        encodings: vec![],
        seed: 1,
    };
    let Ok(mut search) = Search::new(&space) else { return vec![] };
    // What does not fit by the estimate alone is nothing to look for.
    if search.advance(ESTIMATES).is_err() {
        return vec![];
    }
    let made = |choice: &Choice| {
        let schedule =
            ScheduleText::of(choice.schedule, choice.stages(), choice.micro_batches).ok()?;
        let mut other = Plan {
            cuts: choice.starts.iter().map(|block| blocks[*block as usize]).collect(),
            schedule,
            micro_batches: choice.micro_batches,
            recompute: vec![],
            ..plan.clone()
        };
        other.data_parallel = other.data_parallel.with_replicas(choice.replicas);
        Some(other)
    };
    let list = search.shortlist(SHORTLIST);
    list.iter().filter_map(|scored| made(&scored.choice)).collect()
}

/// The plan, and the best that was found, in half precision and with encoded gradients.
fn numerics(plan: &Plan, best: Option<&Plan>) -> Vec<Plan> {
    let mut found = vec![];
    for plan in std::iter::once(plan).chain(best) {
        let device = &plan.cluster.device;
        if device.half_flops_per_sec.is_some() && !plan.training.precision.is_half() {
            let mut half = plan.clone();
            half.training.precision = Precision::Bf16;
            half.recompute = vec![];
            found.push(half);
        }
        if plan.data_parallel.replicas > 1 && plan.communication.gradients.is_plain() {
            found.extend(USUAL.iter().map(|way| {
                let mut encoded = plan.clone();
                encoded.communication.gradients = *way;
                encoded
            }));
        }
    }
    found
}

/// Every device's share of the arithmetic of a mini-batch: that of one micro-batch on one device, which has the
/// least.
pub(super) fn bound(plan: &Plan) -> Result<Nanos, PredictError> {
    let schedule = ScheduleText::of(ScheduleKind::OneFOneB, 1, 1).map_err(PlanError::from)?;
    let data_parallel = plan.data_parallel.with_replicas(1);
    let (cuts, recompute, micro_batches) = (vec![], vec![], 1);
    let alone = Plan { cuts, schedule, recompute, micro_batches, data_parallel, ..plan.clone() };
    let (graph, schedule) = alone.check()?;
    let graphs = training_graphs(&alone.inputs(&graph, &schedule));
    let costs = alone.costs(&graph, alone.mini_batch);
    let work = |costs: &Costs| {
        let stages = graphs.iter().map(|graph| StageCost::new(graph, costs));
        stages.map(|stage| stage.forward + stage.backward()).sum::<Nanos>()
    };
    let (whole, split) = (work(&costs), work(&costs.clone().with_backward(true)));
    let devices = u64::from(plan.ranks()).min(plan.cluster.devices()).max(1);
    Ok(Nanos(whole.min(split).0 / devices))
}
