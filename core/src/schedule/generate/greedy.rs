//! Orders found by running the pipeline: whenever a lane is free it takes the action that is
//! ready and most urgent. Patterns that are published as pictures rather than as formulas come out
//! of it (Chimera, Hanayo).
//!
//! Every F takes one unit, every B `backward` units. Urgency: backwards before forwards, so that
//! memory is freed; then what is nearest to the turn of its way; then the older micro-batch.
//! O(actions x log p).

use super::{Pipe, backward, forward};
use crate::ids::{LaneId, MicroBatch, StageId};
use crate::schedule::{Action, ActionKind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What an order must keep to.
pub(super) struct Limits<'a> {
    /// Most micro-batches between F and B, by stage and direction.
    pub in_flight: &'a dyn Fn(StageId) -> u32,
    /// Units of a B.
    pub backward: u64,
}

/// A ready action by urgency: the smallest goes first.
type Urgency = (u8, Reverse<u32>, u32);

struct Lane {
    ready: BinaryHeap<Reverse<Urgency>>,
    /// Ready forwards of stages that are full.
    held: Vec<Urgency>,
    free_at: u64,
    actions: Vec<Action>,
}

struct Run<'a> {
    pipe: Pipe,
    limits: &'a Limits<'a>,
    routes: Vec<Vec<LaneId>>,
    route_of: Vec<u32>,
    lanes: Vec<Lane>,
    /// By route and stage.
    in_flight: Vec<u32>,
    /// Ends of actions and lanes to look at again.
    events: BinaryHeap<Reverse<(u64, u32, Option<Action>)>>,
}

/// The actions of all lanes.
pub(super) fn lanes(pipe: Pipe, limits: &Limits) -> Vec<Vec<Action>> {
    let placement = pipe.kind.placement();
    let routes = placement.routes(pipe.lanes);
    let lane = || Lane { ready: BinaryHeap::new(), held: vec![], free_at: 0, actions: vec![] };
    let mut run = Run {
        in_flight: vec![0; routes.len() * pipe.stages as usize],
        route_of: placement.route_of(pipe.micro_batches),
        lanes: (0..pipe.lanes).map(|_| lane()).collect(),
        events: BinaryHeap::new(),
        routes,
        pipe,
        limits,
    };
    for micro_batch in 0..pipe.micro_batches {
        run.offer(forward(0, micro_batch));
    }
    for lane in 0..pipe.lanes {
        run.start(LaneId(lane), 0);
    }
    run.all();
    run.lanes.into_iter().map(|lane| lane.actions).collect()
}

impl Run<'_> {
    fn lane_of(&self, action: Action) -> LaneId {
        self.routes[self.route_of[action.micro_batch.index()] as usize][action.stage.index()]
    }

    fn flying(&mut self, stage: StageId, micro_batch: MicroBatch) -> &mut u32 {
        let route = self.route_of[micro_batch.index()] as usize;
        &mut self.in_flight[route * self.pipe.stages as usize + stage.index()]
    }

    /// Makes an action ready on its lane.
    fn offer(&mut self, action: Action) {
        let lane = self.lane_of(action);
        let urgency = match action.kind {
            ActionKind::Forward => (1, Reverse(action.stage.0), action.micro_batch.0),
            _ => (0, Reverse(u32::MAX - action.stage.0), action.micro_batch.0),
        };
        self.lanes[lane.index()].ready.push(Reverse(urgency));
    }

    /// Takes one moment after the other: first what ends, then what starts.
    fn all(&mut self) {
        let mut woken: Vec<LaneId> = vec![];
        while let Some(Reverse((now, lane, ended))) = self.events.pop() {
            woken.push(LaneId(lane));
            if let Some(action) = ended {
                woken.extend(self.finish(action));
            }
            if self.events.peek().is_some_and(|Reverse((next, ..))| *next == now) {
                continue;
            }
            woken.sort_unstable();
            woken.dedup();
            for lane in woken.drain(..) {
                self.start(lane, now);
            }
        }
    }

    /// What becomes ready, and on which lane.
    fn finish(&mut self, action: Action) -> Option<LaneId> {
        let Action { stage: StageId(stage), micro_batch, .. } = action;
        let last = self.pipe.stages - 1;
        let next = match action.kind {
            ActionKind::Forward if stage < last => forward(stage + 1, micro_batch.0),
            ActionKind::Forward => backward(stage, micro_batch.0),
            _ => backward(stage.checked_sub(1)?, micro_batch.0),
        };
        self.offer(next);
        Some(self.lane_of(next))
    }

    /// Starts the most urgent action that may run.
    fn start(&mut self, lane: LaneId, now: u64) {
        if self.lanes[lane.index()].free_at > now {
            return;
        }
        while let Some(Reverse(urgency)) = self.lanes[lane.index()].ready.pop() {
            let (class, Reverse(stage), micro_batch) = urgency;
            let is_forward = class == 1;
            let stage = StageId(if is_forward { stage } else { u32::MAX - stage });
            let most = (self.limits.in_flight)(stage);
            let flying = self.flying(stage, MicroBatch(micro_batch));
            if is_forward && *flying >= most {
                self.lanes[lane.index()].held.push(urgency);
                continue;
            }
            *flying = if is_forward { *flying + 1 } else { *flying - 1 };
            let (action, units) = match is_forward {
                true => (forward(stage.0, micro_batch), 1),
                false => (backward(stage.0, micro_batch), self.limits.backward),
            };
            let state = &mut self.lanes[lane.index()];
            state.actions.push(action);
            state.free_at = now + units;
            state.ready.extend(state.held.drain(..).map(Reverse));
            self.events.push(Reverse((now + units, lane.0, Some(action))));
            return;
        }
        // All full: a backward will come and free something.
        let state = &mut self.lanes[lane.index()];
        state.ready.extend(state.held.drain(..).map(Reverse));
    }
}
