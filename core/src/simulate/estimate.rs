//! Times and memory of a schedule without programs: for searches, for large pipelines, and for
//! schedules that no plan can hold.
//!
//! The same rules as the programs' on a chain of stages without skip connections, action by
//! action, so the spans are the same (a pair that overlaps excepted: programs run its halves one
//! after the other). Devices are not shared. Linear in actions.

use super::actions::{ActionSimulation, Hop, Sends};
use super::footprint::{self, Footprint};
use super::{StageCost, Stuck};
use crate::ids::{LaneId, StageId};
use crate::schedule::{Action, ActionKind, Schedule, Updates};
use crate::timeline::{Lane, Span, Work};
use crate::units::{Bytes, Nanos};

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// End of the last action or update.
    pub makespan: Nanos,
    /// By lane.
    pub lanes: Vec<LaneEstimate>,
    /// Messages between different lanes.
    pub messages: u64,
    /// With updates that do not wait ([`Updates`]): the time of a micro-batch once the pipeline is
    /// full. None with synchronous updates, or when the window is too short to tell.
    pub steady: Option<Nanos>,
}

/// One lane's step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneEstimate {
    /// Time spent working.
    pub busy: Nanos,
    /// Start of the first action.
    pub start: Nanos,
    /// End of the last action or update.
    pub end: Nanos,
    /// What is in memory all the time.
    pub persistent: Bytes,
    /// Most bytes in use at one moment.
    pub peak: Bytes,
}

impl LaneEstimate {
    /// From the first start to the last end: the step's length once steps follow each other
    /// without a flush between lanes, the zero-bubble papers' measure.
    pub fn span(&self) -> Nanos {
        self.end.saturating_sub(self.start)
    }
}

impl Estimate {
    /// Idle share of the lanes' time in the step, between 0 and 1.
    pub fn bubble(&self) -> f64 {
        let total = self.makespan.0 as f64 * self.lanes.len() as f64;
        let busy: Nanos = self.lanes.iter().map(|lane| lane.busy).sum();
        if total == 0.0 { 0.0 } else { 1.0 - busy.0 as f64 / total }
    }

    /// The most that a lane uses.
    pub fn peak(&self) -> Bytes {
        self.lanes.iter().map(|lane| lane.peak).max().unwrap_or_default()
    }
}

/// Runs `schedule`, which [`crate::schedule::check`] accepts, on stages with these costs and
/// footprints, one each by stage. `hop` is asked for messages between different lanes only.
///
/// # Errors
/// Lanes that wait for each other, in a schedule that was not checked.
pub fn estimate(
    schedule: &Schedule,
    stages: &[StageCost],
    footprints: &[Footprint],
    sends: Sends,
    hop: impl Fn(Hop) -> Nanos + Copy,
) -> Result<Estimate, Stuck> {
    let with = |outboxes| estimate_with(schedule, stages, footprints, outboxes, hop);
    with(few(schedule, sends)).or_else(|_| with(enough(schedule, sends)))
}

fn estimate_with(
    schedule: &Schedule,
    stages: &[StageCost],
    footprints: &[Footprint],
    outboxes: Vec<u32>,
    hop: impl Fn(Hop) -> Nanos + Copy,
) -> Result<Estimate, Stuck> {
    let mut lanes = vec![LaneEstimate::default(); schedule.lanes.len()];
    for (lane, actions) in lanes.iter_mut().zip(&schedule.lanes) {
        lane.busy = actions.iter().map(|a| stages[a.stage.index()].of(a.kind)).sum();
        lane.start = Nanos(u64::MAX);
    }
    let mut run = ActionSimulation::new(schedule, stages, hop, outboxes);
    run.all(|lane, _, _, (start, _)| {
        let first = &mut lanes[lane.index()].start;
        *first = start.min(*first);
    })?;
    let persistent = footprint::persistent(schedule, footprints);
    let updates = updates(schedule, stages);
    for (index, (lane, end)) in lanes.iter_mut().zip(run.ends()).enumerate() {
        let updates: Nanos = updates[index].iter().map(|(_, time)| *time).sum();
        lane.start = lane.start.min(end);
        lane.busy += updates;
        lane.end = end + updates;
        lane.persistent = persistent[index];
        lane.peak = footprint::peak(&schedule.lanes[index], footprints, persistent[index]);
    }
    let makespan = lanes.iter().map(|lane| lane.end).max().unwrap_or_default();
    let steady = steady(schedule, &run.backward_end);
    Ok(Estimate { makespan, lanes, messages: messages(schedule), steady })
}

/// The same run with every span, and memory over time.
///
/// # Errors
/// As [`estimate`].
pub fn lanes_over_time(
    schedule: &Schedule,
    stages: &[StageCost],
    footprints: &[Footprint],
    sends: Sends,
    hop: impl Fn(Hop) -> Nanos + Copy,
) -> Result<Vec<Lane>, Stuck> {
    let spans_with = |outboxes| {
        let room = |actions: &Vec<Action>| Vec::with_capacity(actions.len() + 1);
        let mut spans: Vec<Vec<Span>> = schedule.lanes.iter().map(room).collect();
        ActionSimulation::new(schedule, stages, hop, outboxes).all(
            |lane, action, _, (start, end)| {
                spans[lane.index()].push(Span { start, end, work: Work::Run(action) });
            },
        )?;
        Ok(spans)
    };
    let spans =
        spans_with(few(schedule, sends)).or_else(|_: Stuck| spans_with(enough(schedule, sends)))?;
    let persistent = footprint::persistent(schedule, footprints);
    let lanes = spans.into_iter().zip(persistent).zip(updates(schedule, stages));
    Ok(lanes
        .map(|((mut spans, persistent), updates)| {
            for (stage, time) in updates {
                let start = spans.last().map_or(Nanos::ZERO, |span| span.end);
                spans.push(Span { start, end: start + time, work: Work::Optimizer(stage) });
            }
            footprint::over_time(spans, footprints, persistent)
        })
        .collect())
}

/// Outbox entries to try first: two are enough for straight pipelines, and finding out about
/// others takes a look at the whole order.
fn few(schedule: &Schedule, sends: Sends) -> Vec<u32> {
    let straight = schedule.stages() as usize == schedule.lanes.len();
    match sends {
        Sends::Outbox if straight && schedule.placement().is_some() => {
            vec![2.min(schedule.micro_batches); schedule.lanes.len()]
        }
        Sends::Outbox | Sends::Free => enough(schedule, sends),
    }
}

/// Outbox entries by stage that keep lanes from waiting for each other; none when sends are free.
fn enough(schedule: &Schedule, sends: Sends) -> Vec<u32> {
    match sends {
        Sends::Outbox if schedule.placement().is_some() => {
            schedule.outboxes().by_stage().map_or(vec![], <[u32]>::to_vec)
        }
        Sends::Outbox | Sends::Free => vec![],
    }
}

/// The updates of each lane, in order of stages.
fn updates(schedule: &Schedule, stages: &[StageCost]) -> Vec<Vec<(StageId, Nanos)>> {
    let mut updates: Vec<Vec<(StageId, Nanos)>> = vec![vec![]; schedule.lanes.len()];
    for (stage, cost) in (0..).map(StageId).zip(stages) {
        for route in &schedule.routes {
            let lane = &mut updates[route[stage.index()].index()];
            if lane.last().is_none_or(|(last, _)| *last != stage) {
                lane.push((stage, cost.update));
            }
        }
    }
    updates
}

/// Messages between different lanes in a step: one each way over every crossing whose stages are
/// on different lanes.
fn messages(schedule: &Schedule) -> u64 {
    let crossings = |route: &Vec<LaneId>| route.windows(2).filter(|w| w[0] != w[1]).count() as u64;
    let by_route: Vec<u64> = schedule.routes.iter().map(crossings).collect();
    schedule.route_of.iter().map(|route| 2 * by_route[*route as usize]).sum()
}

/// Time of a micro-batch while the pipeline is full: between backwards of stage 0, from the middle
/// of the window to the last one before forwards run out.
fn steady(schedule: &Schedule, backward_end: &[Nanos]) -> Option<Nanos> {
    if schedule.updates == Updates::Synchronous {
        return None;
    }
    let ahead = |actions: &Vec<Action>| {
        let first = |a: &&Action| a.stage == StageId(0) && a.kind == ActionKind::Forward;
        actions.iter().take_while(first).count() as u32
    };
    let ahead: u32 = schedule.lanes.iter().map(ahead).sum();
    let last = schedule.micro_batches.checked_sub(1 + ahead)?;
    // Whole turns of the replicas.
    let turn = schedule.routes.len() as u32;
    let count = (last / 2) / turn * turn;
    if count == 0 || last < ahead {
        return None;
    }
    let [from, to] = [last - count, last].map(|i| backward_end[i as usize]);
    Some(Nanos(to.saturating_sub(from).0 / u64::from(count)))
}
