//! The automatic order of a plan: made for its stages' times, its messages and its memory.
//!
//! The scheduler ([`schedule::automatic`]) knows passes, hops and stashes. What else a step has, messages
//! that wait for room and updates, only the simulation of the lowered plan knows, so that decides between
//! its order and those of the schedules by name.

use super::{PredictError, Prediction, plans};
use crate::ids::LaneId;
use crate::order::sort_by_numbers;
use crate::plan::{Draft, Plan, ScheduleText};
use crate::schedule::{
    self, Action, ActionKind, Automatic, Placement, Schedule, ScheduleKind, StageLoad, Updates,
};
use crate::units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// The name of an order that was made for its plan.
pub const AUTOMATIC: &str = "automatic";

/// How often an order that takes more memory than was thought is made anew with less.
const TRIES: u32 = 4;

/// A plan in the best order that was found.
#[derive(Clone, Debug)]
pub struct AutomaticPlan {
    /// Its schedule is called [`AUTOMATIC`], or as the one by name that nothing beats.
    pub plan: Plan,
    /// What follows from it.
    pub prediction: Prediction,
    /// The fastest schedule by name that fits the memory, and its step; none where none fits.
    pub named: Option<(ScheduleKind, Nanos)>,
    /// No order of these stages takes less, messages and updates not counted; none where the scheduler found
    /// none within the memory.
    pub bound: Option<Nanos>,
}

/// The draft in the order that is fastest on `lanes` lanes within the memory of a device: of those that
/// the scheduler makes and those of the synchronous schedules with one copy of each stage. Its own
/// schedule is not looked at. Where no order fits, the one that needs least memory.
///
/// # Errors
/// A draft that makes no plan, and stages that do not divide among the lanes.
pub fn automatic_plan(draft: &Draft, lanes: u32) -> Result<AutomaticPlan, PredictError> {
    let stages = draft.cuts.len() as u32 + 1;
    let memory = draft.cluster.device.memory;
    let kinds = named_orders(stages, lanes, draft.micro_batches);
    let in_order = |kind: &ScheduleKind| Draft { schedule: *kind, ..draft.clone() };
    let made = plans(kinds.iter().map(in_order).collect());
    let mut named: Vec<(ScheduleKind, Plan, Prediction)> = vec![];
    let mut refused = None;
    for (kind, made) in kinds.into_iter().zip(made) {
        match made {
            Ok((plan, prediction)) => named.push((kind, plan, prediction)),
            Err(error) => refused = Some(error),
        }
    }
    // Of equal ones the first: the simplest.
    sort_by_numbers(&mut named, |(_, _, prediction)| {
        let (over, step) = rank(prediction, memory);
        [over.0, step.0]
    });
    let mut bound = None;
    let mut best: Option<(Plan, Prediction)> = None;
    for placement in placements(stages, lanes) {
        let Some(found) = own(draft, placement, lanes)? else { continue };
        bound = bound.min(Some(found.bound)).or(Some(found.bound));
        let better = |(_, before): &(Plan, Prediction)| {
            rank(&found.prediction, memory) < rank(before, memory)
        };
        if best.as_ref().is_none_or(better) {
            best = Some((found.plan, found.prediction));
        }
    }
    let fits = |prediction: &Prediction| rank(prediction, memory).0 == Bytes::ZERO;
    let first = named.first().filter(|(_, _, prediction)| fits(prediction));
    let name = first.map(|(kind, _, prediction)| (*kind, prediction.timeline.step));
    let by_name = named.into_iter().next().map(|(_, plan, prediction)| (plan, prediction));
    let (plan, prediction) = match (best, by_name) {
        (Some(own), Some(named)) if rank(&own.1, memory) < rank(&named.1, memory) => own,
        (_, Some(named)) => named,
        (Some(own), None) => own,
        (None, None) => {
            return Err(match refused {
                Some(error) => error,
                None => draft.clone().plan().err().unwrap_or_else(|| indivisible(stages, lanes)),
            });
        }
    };
    Ok(AutomaticPlan { plan, prediction, named: name, bound })
}

/// Bytes that the fullest device lacks, then the step.
fn rank(prediction: &Prediction, memory: Bytes) -> (Bytes, Nanos) {
    let most = prediction.programs.iter().map(|program| program.arena).max().unwrap_or_default();
    (most.saturating_sub(memory), prediction.timeline.step)
}

fn indivisible(stages: u32, lanes: u32) -> PredictError {
    let kind = ScheduleKind::Interleaved { chunks: stages.div_ceil(lanes.max(1)) };
    let must = format!("they have to be a multiple of {lanes} lanes");
    PredictError::Plan(schedule::GenerateError::Stages { kind, stages, must }.into())
}

/// The schedules by name with these numbers that train what one device trains, bit for bit: no second copies,
/// no reversed sums.
pub fn named_orders(stages: u32, lanes: u32, micro_batches: u32) -> Vec<ScheduleKind> {
    let chunks = stages / lanes.max(1);
    let mut found: Vec<ScheduleKind> = vec![];
    for kind in ScheduleKind::ALL {
        let numbers = [kind.with_number(chunks), kind.with_number(chunks / 2)];
        for kind in [Some(kind)].into_iter().chain(numbers).flatten() {
            let right = kind.lanes(stages) == Ok(lanes)
                && kind.number() != Some(0)
                && kind.updates() == Updates::Synchronous
                && kind.placement() != Placement::TwoWay
                && !matches!(kind, ScheduleKind::LoopedBfs { .. });
            if right && !found.contains(&kind) && kind.generate(stages, micro_batches).is_ok() {
                found.push(kind);
            }
        }
    }
    found
}

fn placements(stages: u32, lanes: u32) -> Vec<Placement> {
    match stages / lanes.max(1) {
        chunks if chunks * lanes != stages => vec![],
        1 => vec![Placement::Loop { chunks: 1 }],
        chunks => vec![Placement::Loop { chunks }, Placement::Wave { chunks }],
    }
}

/// An order of the scheduler's.
struct Own {
    plan: Plan,
    prediction: Prediction,
    bound: Nanos,
}

/// The scheduler's order, none where it finds none within the memory.
fn own(draft: &Draft, placement: Placement, lanes: u32) -> Result<Option<Own>, PredictError> {
    let lane_of = placement.routes(lanes).swap_remove(0);
    let (micro_batches, memory) = (draft.micro_batches, draft.cluster.device.memory);
    let alone = text("one at a time", &one_at_a_time(&lane_of, lanes, micro_batches));
    let (_, slow) = draft.clone().plan_in(alone)?;
    let stages = loads(&slow);
    let slots = |lane: usize| slow.programs[lane].stages.iter().map(|s| s.slots.bytes).sum();
    let room = |lane: usize| {
        let fixed = slow.programs[lane].arena.saturating_sub(slots(lane));
        memory.saturating_sub(fixed).min(slots(lane) * u64::from(micro_batches))
    };
    let room: Vec<Bytes> = (0..lanes as usize).map(room).collect();
    let mut input = Automatic { stages, lane_of, micro_batches, memory: room };
    for _ in 0..TRIES {
        let Ok(found) = schedule::automatic(&input) else { return Ok(None) };
        let (plan, prediction) = draft.clone().plan_in(text(AUTOMATIC, &found.schedule))?;
        // Messages' places are not in what the scheduler counts.
        let over = |program: &crate::plan::Program| program.arena.saturating_sub(memory);
        let over: Vec<Bytes> = prediction.programs.iter().map(over).collect();
        if over.iter().all(|over| *over == Bytes::ZERO) {
            return Ok(Some(Own { plan, prediction, bound: found.bound }));
        }
        for (room, over) in input.memory.iter_mut().zip(over) {
            *room = room.saturating_sub(over);
        }
    }
    Ok(None)
}

fn text(name: &str, schedule: &Schedule) -> ScheduleText {
    ScheduleText { name: name.into(), lanes: schedule.lines() }
}

/// Micro-batch after micro-batch, which any placement can do, with backward passes in two parts.
fn one_at_a_time(lane_of: &[LaneId], lanes: u32, micro_batches: u32) -> Schedule {
    use ActionKind::{BackwardInput, BackwardWeight, Forward};
    let stages = lane_of.len() as u32;
    let mut order: Vec<Vec<Action>> = vec![vec![]; lanes as usize];
    for micro_batch in 0..micro_batches {
        for stage in 0..stages {
            let lane = &mut order[lane_of[stage as usize].index()];
            lane.push(Action::new(stage, Forward, micro_batch));
        }
        for stage in (0..stages).rev() {
            let lane = &mut order[lane_of[stage as usize].index()];
            lane.push(Action::new(stage, BackwardInput, micro_batch));
            lane.push(Action::new(stage, BackwardWeight, micro_batch));
        }
    }
    Schedule {
        overlaps: vec![vec![]; order.len()],
        lanes: order,
        routes: vec![lane_of.to_vec()],
        route_of: vec![0; micro_batches as usize],
        micro_batches,
        updates: Updates::Synchronous,
    }
}

/// The stages as the scheduler sees them: messages by the longest on their way to the next stage and back.
fn loads(prediction: &Prediction) -> Vec<StageLoad> {
    let mut hops = BTreeMap::<u32, Nanos>::new();
    for message in &prediction.timeline.messages {
        let border = message.stage.0 - u32::from(message.gradient);
        let hop = hops.entry(border).or_default();
        *hop = (*hop).max(message.received.saturating_sub(message.sent));
    }
    let stash = |stage: u32| {
        let stage = crate::ids::StageId(stage);
        let found = prediction.programs.iter().find_map(|program| program.stage(stage));
        found.map_or(Bytes::ZERO, |stage| stage.slots.bytes)
    };
    let load = |(stage, cost): (u32, &crate::simulate::StageCost)| StageLoad {
        forward: cost.forward,
        backward_input: cost.backward_input,
        backward_weight: cost.backward_weight,
        hop: hops.get(&stage).copied().unwrap_or_default(),
        stash: stash(stage),
        weight_stash: stash(stage),
    };
    (0..).zip(&prediction.stages).map(load).collect()
}
