//! The lanes of a schedule, action by action.
//!
//! An F starts when the lane is free and the F of the stage before has arrived; a B or I when that
//! of the stage after has, and an outbox entry is free: when the gradient sent that many
//! backwards ago has been taken, which is at the start of the backward pass that needs it. Both of
//! an overlapped pair start when both can, and end together after the sum of their times.
//!
//! Every lane runs as far as it can and is looked at again when something happened that it may
//! have waited for: linear in actions.

use super::ready::Ready;
use super::{StageCost, Stuck, Waiting};
use crate::ids::{LaneId, MicroBatch, StageId};
use crate::schedule::{Action, ActionKind, Schedule};
use crate::units::Nanos;

/// A message from one stage to the next or the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The earlier of the two stages, whichever way it travels: the crossing.
    pub boundary: StageId,
    /// Whether it is a gradient on its way back.
    pub gradient: bool,
    /// Sending lane.
    pub from: LaneId,
    /// Receiving lane; another one.
    pub to: LaneId,
}

/// Whether backward passes wait until earlier gradients have been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// Never: there is memory for all of them.
    Free,
    /// As in a plan's programs, which have few outbox entries ([`Schedule::outboxes`]). Schedules
    /// with several routes have no programs; their sends are free.
    Outbox,
}

/// What of a lane may be waited for.
#[derive(Clone, Copy, Default)]
struct LaneState {
    next: usize,
    pair: usize,
    now: Nanos,
    parked: bool,
}

/// When what an action waits for besides its lane is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// The activation or gradient that it computes with.
    pub message: Nanos,
    /// A place for the gradient that it sends.
    pub entry: Nanos,
}

impl Needs {
    fn and(self, other: Self) -> Self {
        Self { message: self.message.max(other.message), entry: self.entry.max(other.entry) }
    }
}

/// Before it is known.
const NEVER: Nanos = Nanos(u64::MAX);

pub(super) struct ActionSimulation<'a, H> {
    pub schedule: &'a Schedule,
    /// The lane of each stage, where there is one route: asked for every action.
    route: Option<&'a [LaneId]>,
    stages: &'a [StageCost],
    hop: H,
    /// Entries by stage; none when sends are free.
    outboxes: Box<[u32]>,
    /// By stage, as a ring: the micro-batches whose gradients lie in the outbox, and the number of
    /// backwards so far.
    sent: Box<[(Vec<MicroBatch>, u32)]>,
    // Slices and not vectors: where code is compiled for size, indexing a vector is a call.
    lanes: Box<[LaneState]>,
    ready: Ready,
    /// By stage and micro-batch.
    forward_end: Box<[Nanos]>,
    /// Entries of a stage: a cache line more than micro-batches, so that the lanes, which are at
    /// much the same micro-batch, do not meet in one cache set.
    width: usize,
    backward_start: Box<[Nanos]>,
    pub backward_end: Box<[Nanos]>,
}

impl<'a, H: Fn(Hop) -> Nanos> ActionSimulation<'a, H> {
    /// `outboxes` by stage; empty when sends are free.
    pub fn new(
        schedule: &'a Schedule,
        stages: &'a [StageCost],
        hop: H,
        outboxes: Vec<u32>,
    ) -> Self {
        let width = schedule.micro_batches as usize + 8;
        let cells = schedule.stages() as usize * width;
        let lanes = schedule.lanes.len();
        let ring = |size: &u32| (Vec::with_capacity(*size as usize), 0);
        Self {
            schedule,
            route: schedule.placement(),
            stages,
            hop,
            sent: outboxes.iter().map(ring).collect(),
            lanes: vec![LaneState::default(); lanes].into(),
            ready: Ready::all(lanes),
            forward_end: vec![NEVER; cells].into(),
            width,
            backward_start: vec![NEVER; if outboxes.is_empty() { 0 } else { cells }].into(),
            backward_end: vec![NEVER; cells].into(),
            outboxes: outboxes.into(),
        }
    }

    fn lane_of(&self, stage: u32, micro_batch: MicroBatch) -> LaneId {
        match self.route {
            Some(lanes) => lanes[stage as usize],
            None => self.schedule.lane_of(StageId(stage), micro_batch),
        }
    }

    fn at(&self, stage: u32, micro_batch: MicroBatch) -> usize {
        stage as usize * self.width + micro_batch.index()
    }

    /// Runs all lanes; `each` gets every action with when what it needs was there, its start and its end,
    /// those of a lane in order.
    ///
    /// # Errors
    /// The lanes that wait for each other.
    pub fn all(
        &mut self,
        mut each: impl FnMut(LaneId, Action, Needs, (Nanos, Nanos)),
    ) -> Result<(), Stuck> {
        let schedule = self.schedule;
        while let Some(lane) = self.ready.pop() {
            let actions = schedule.lanes[lane.index()].as_slice();
            let overlaps = schedule.overlaps[lane.index()].as_slice();
            let mut state = self.lanes[lane.index()];
            while state.next < actions.len() {
                let paired = overlaps.get(state.pair).is_some_and(|at| *at as usize == state.next);
                let count = if paired { 2 } else { 1 };
                let next = &actions[state.next..state.next + count];
                let ready = next.iter().try_fold(Needs::default(), |needs, action| {
                    self.needs(lane, *action).map(|more| needs.and(more))
                });
                let Some(needs) = ready else {
                    state.parked = true;
                    break;
                };
                let start = state.now.max(needs.entry).max(needs.message);
                let mut end = start;
                for action in next {
                    let begin = end;
                    end += self.stages[action.stage.index()].of(action.kind);
                    each(lane, *action, needs, (begin, end));
                }
                state.next += count;
                state.pair += usize::from(paired);
                state.now = end;
                for action in next {
                    self.finish(lane, *action, start, end);
                }
            }
            self.lanes[lane.index()] = state;
        }
        self.stuck()
    }

    /// When what `action` needs is there, if that is known.
    fn needs(&self, lane: LaneId, action: Action) -> Option<Needs> {
        let Action { stage: StageId(stage), kind, micro_batch } = action;
        let arrival = |end: Nanos, from: u32, gradient: bool| {
            let known = (end != NEVER).then_some(end)?;
            let from = self.lane_of(from, micro_batch);
            if from == lane {
                return Some(known);
            }
            let boundary = StageId(if gradient { stage } else { stage - 1 });
            Some(known + (self.hop)(Hop { boundary, gradient, from, to: lane }))
        };
        let only = |message| Needs { message, entry: Nanos::ZERO };
        match kind {
            ActionKind::BackwardWeight => Some(Needs::default()),
            ActionKind::Forward if stage == 0 => Some(Needs::default()),
            ActionKind::Forward => {
                arrival(self.forward_end[self.at(stage - 1, micro_batch)], stage - 1, false)
                    .map(only)
            }
            ActionKind::Backward | ActionKind::BackwardInput => {
                // Of a pair with its own forward: neither can start.
                let own = self.forward_end[self.at(stage, micro_batch)];
                if own == NEVER {
                    return None;
                }
                let message = match stage + 1 < self.schedule.stages() {
                    true => arrival(
                        self.backward_end[self.at(stage + 1, micro_batch)],
                        stage + 1,
                        true,
                    )?,
                    false => Nanos::ZERO,
                };
                Some(Needs { message, entry: self.entry_free_at(stage)? })
            }
        }
    }

    /// When `stage` has an outbox entry for its next gradient, if that is known.
    fn entry_free_at(&self, stage: u32) -> Option<Nanos> {
        if self.outboxes.is_empty() || stage == 0 {
            return Some(Nanos::ZERO);
        }
        let size = self.outboxes[stage as usize];
        let (ring, count) = &self.sent[stage as usize];
        let Some(oldest) = ring.get((count % size) as usize) else { return Some(Nanos::ZERO) };
        let taken = self.backward_start[self.at(stage - 1, *oldest)];
        (taken != NEVER).then_some(taken)
    }

    fn finish(&mut self, lane: LaneId, action: Action, start: Nanos, end: Nanos) {
        let Action { stage: StageId(stage), kind, micro_batch } = action;
        let at = self.at(stage, micro_batch);
        match kind {
            ActionKind::Forward => {
                self.forward_end[at] = end;
                self.wake(lane, stage + 1, micro_batch);
            }
            ActionKind::Backward | ActionKind::BackwardInput => {
                self.backward_end[at] = end;
                if let Some(size) = self.outboxes.get(stage as usize) {
                    self.backward_start[at] = start;
                    let (ring, count) = &mut self.sent[stage as usize];
                    match ring.get_mut((*count % size) as usize) {
                        Some(oldest) => *oldest = micro_batch,
                        None => ring.push(micro_batch),
                    }
                    *count += 1;
                    self.wake(lane, stage + 1, micro_batch);
                }
                if stage > 0 {
                    self.wake(lane, stage - 1, micro_batch);
                }
            }
            ActionKind::BackwardWeight => {}
        }
    }

    /// Looks again at the lane of `stage`, unless it runs anyway.
    fn wake(&mut self, running: LaneId, stage: u32, micro_batch: MicroBatch) {
        if stage >= self.schedule.stages() {
            return;
        }
        let lane = self.lane_of(stage, micro_batch);
        let state = &mut self.lanes[lane.index()];
        if lane != running && std::mem::take(&mut state.parked) {
            self.ready.push(lane);
        }
    }

    /// When `stage` sent what it computed, by micro-batch: activations, or gradients.
    pub fn ends_of(&self, stage: StageId, gradient: bool) -> &[Nanos] {
        let ends = if gradient { &self.backward_end } else { &self.forward_end };
        let from = self.at(stage.0, MicroBatch(0));
        &ends[from..from + self.schedule.micro_batches as usize]
    }

    /// When the gradients that lie in the outbox of `stage` at the end are taken, entry by entry. None
    /// where sends are free.
    pub fn taken(&self, stage: StageId) -> impl Iterator<Item = Nanos> + '_ {
        let rings = self.sent.get(stage.index()).filter(|_| stage.0 > 0);
        let sent = rings.into_iter().flat_map(|(ring, _)| ring);
        sent.map(move |mb| self.backward_start[self.at(stage.0 - 1, *mb)])
    }

    /// Moment at which each lane is done with its actions.
    pub fn ends(&self) -> impl Iterator<Item = Nanos> + '_ {
        self.lanes.iter().map(|lane| lane.now)
    }

    fn stuck(&self) -> Result<(), Stuck> {
        let waiting = |(lane, state): (LaneId, &LaneState)| {
            let action = self.schedule.lanes[lane.index()].get(state.next)?;
            let what = format!("what {action} needs");
            Some(Waiting { lane, instruction: state.next, what })
        };
        let lanes: Vec<Waiting> = (0..).map(LaneId).zip(&self.lanes).filter_map(waiting).collect();
        if lanes.is_empty() { Ok(()) } else { Err(Stuck { lanes }) }
    }
}
