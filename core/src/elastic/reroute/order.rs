//! Orders of all ranks of a pipeline with several routes, found by running it once.
//!
//! Whenever a rank is free it takes the most urgent pass that is ready: backward passes first, since
//! others wait for them and they free memory; then forwards, as long as there is room for what they keep;
//! then weight gradients, for which nobody waits. Of equal ones the older micro-batch goes first.
//! O(actions · log actions).

use crate::ids::{LaneId, MicroBatch, StageId};
use crate::schedule::{Action, ActionKind};
use crate::simulate::{Hop, StageCost};
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is to be ordered.
pub(super) struct Pipes<'a> {
    /// By stage.
    pub costs: &'a [StageCost],
    /// By route and stage: the rank.
    pub routes: &'a [Vec<LaneId>],
    /// By micro-batch.
    pub route_of: &'a [u32],
    /// Of each replica: micro-batch n is number n mod this of its replica.
    pub micro_batches: u32,
    /// How many.
    pub ranks: usize,
    /// By rank: whether backward passes are split.
    pub split: Vec<bool>,
    /// By rank and stage: most micro-batches in flight.
    pub limits: Vec<Vec<u32>>,
}

/// The smallest goes first: class, then age, then the stage that is nearest to the turn.
type Urgency = (u8, u32, Reverse<u32>, u32);

#[derive(Default)]
struct Rank {
    ready: BinaryHeap<Reverse<(Urgency, Action)>>,
    /// Forwards for which there is no room.
    held: Vec<Reverse<(Urgency, Action)>>,
    free_at: Nanos,
    in_flight: Vec<u32>,
    actions: Vec<Action>,
}

struct ListScheduler<'a, H> {
    pipes: &'a Pipes<'a>,
    hop: H,
    ranks: Vec<Rank>,
    /// Moments at which something becomes ready, or a rank free.
    events: BinaryHeap<Reverse<(Nanos, LaneId, Option<Action>)>>,
}

impl Pipes<'_> {
    /// The actions of each rank.
    pub fn lanes(&self, hop: impl Fn(Hop) -> Nanos) -> Vec<Vec<Action>> {
        let rank = || Rank { in_flight: vec![0; self.costs.len()], ..Rank::default() };
        let ranks = (0..self.ranks).map(|_| rank()).collect();
        let mut run = ListScheduler { pipes: self, hop, ranks, events: BinaryHeap::new() };
        for micro_batch in 0..self.route_of.len() as u32 {
            let first = Action::new(0, ActionKind::Forward, micro_batch);
            run.events.push(Reverse((Nanos::ZERO, self.rank_of(first), Some(first))));
        }
        run.all();
        run.ranks.into_iter().map(|rank| rank.actions).collect()
    }

    fn rank_of(&self, action: Action) -> LaneId {
        self.routes[self.route_of[action.micro_batch.index()] as usize][action.stage.index()]
    }

    fn urgency(&self, action: Action) -> Urgency {
        let age = action.micro_batch.0 % self.micro_batches;
        let class = match action.kind {
            ActionKind::Backward | ActionKind::BackwardInput => 0,
            ActionKind::Forward => 1,
            ActionKind::BackwardWeight => 2,
        };
        (class, age, Reverse(action.stage.0), action.micro_batch.0)
    }
}

impl<H: Fn(Hop) -> Nanos> ListScheduler<'_, H> {
    /// Takes one moment after the other: all that becomes ready then, then what starts.
    fn all(&mut self) {
        let mut woken: Vec<LaneId> = vec![];
        while let Some(Reverse((now, rank, ready))) = self.events.pop() {
            if let Some(action) = ready {
                let urgency = self.pipes.urgency(action);
                self.ranks[rank.index()].ready.push(Reverse((urgency, action)));
            }
            woken.push(rank);
            if self.events.peek().is_some_and(|Reverse((next, ..))| *next == now) {
                continue;
            }
            woken.sort_unstable();
            woken.dedup();
            for rank in woken.drain(..) {
                self.start(rank, now);
            }
        }
    }

    /// Starts the most urgent pass that a free rank may run.
    fn start(&mut self, at: LaneId, now: Nanos) {
        let limits = &self.pipes.limits[at.index()];
        let rank = &mut self.ranks[at.index()];
        if rank.free_at > now {
            return;
        }
        let mut chosen = None;
        while let Some(ready) = rank.ready.pop() {
            let Reverse((_, action)) = ready;
            let stage = action.stage.index();
            if action.kind == ActionKind::Forward && rank.in_flight[stage] >= limits[stage] {
                rank.held.push(ready);
                continue;
            }
            chosen = Some(action);
            break;
        }
        rank.ready.extend(rank.held.drain(..));
        let Some(action) = chosen else { return };
        let end = now + self.pipes.costs[action.stage.index()].of(action.kind);
        match action.kind {
            ActionKind::Forward => rank.in_flight[action.stage.index()] += 1,
            ActionKind::BackwardInput => {}
            ActionKind::Backward | ActionKind::BackwardWeight => {
                rank.in_flight[action.stage.index()] -= 1;
            }
        }
        rank.actions.push(action);
        rank.free_at = end;
        self.events.push(Reverse((end, at, None)));
        self.follow(at, action, end);
    }

    /// What becomes ready after `action`, and when its message is there.
    fn follow(&mut self, at: LaneId, action: Action, end: Nanos) {
        let Action { stage: StageId(stage), micro_batch, kind } = action;
        let last = self.pipes.costs.len() as u32 - 1;
        match kind {
            ActionKind::Forward if stage < last => {
                let next = Action::new(stage + 1, ActionKind::Forward, micro_batch.0);
                self.offer(at, next, StageId(stage), end);
            }
            ActionKind::Forward => self.offer_backward(at, stage, micro_batch, end),
            ActionKind::Backward | ActionKind::BackwardInput => {
                if let Some(before) = stage.checked_sub(1) {
                    self.offer_backward(at, before, micro_batch, end);
                }
                if kind == ActionKind::BackwardInput {
                    let rest = Action { kind: ActionKind::BackwardWeight, ..action };
                    self.events.push(Reverse((end, at, Some(rest))));
                }
            }
            ActionKind::BackwardWeight => {}
        }
    }

    fn offer_backward(&mut self, at: LaneId, stage: u32, micro_batch: MicroBatch, end: Nanos) {
        let whole = Action::new(stage, ActionKind::Backward, micro_batch.0);
        let kind = match self.pipes.split[self.pipes.rank_of(whole).index()] {
            true => ActionKind::BackwardInput,
            false => ActionKind::Backward,
        };
        self.offer(at, Action { kind, ..whole }, StageId(stage), end);
    }

    fn offer(&mut self, at: LaneId, next: Action, boundary: StageId, end: Nanos) {
        let to = self.pipes.rank_of(next);
        let gradient = next.kind != ActionKind::Forward;
        let way = match to == at {
            true => Nanos::ZERO,
            false => (self.hop)(Hop { boundary, gradient, from: at, to }),
        };
        self.events.push(Reverse((end + way, to, Some(next))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `stages` x `replicas`, `micro_batches` each, all passes of time 1; rank 0 of stage `lost` is gone
    /// and its work dealt out to the others. The makespan and the work of a guest's host.
    fn makespan(
        stages: u32,
        replicas: u32,
        micro_batches: u32,
        lost: u32,
        split: bool,
    ) -> [u64; 2] {
        let one = Nanos(1);
        let cost = StageCost {
            forward: one,
            backward_input: one,
            backward_weight: one,
            update: Nanos::ZERO,
        };
        let rank = |stage: u32, replica: u32, micro_batch: u32| {
            let guest = stage == lost && replica == 0;
            let replica = if guest { 1 + micro_batch % (replicas - 1) } else { replica };
            LaneId(stage * replicas + replica)
        };
        let all = (0..replicas).flat_map(|r| (0..micro_batches).map(move |m| (r, m)));
        let routes: Vec<Vec<LaneId>> =
            all.map(|(r, m)| (0..stages).map(|s| rank(s, r, m)).collect()).collect();
        let route_of: Vec<u32> = (0..routes.len() as u32).collect();
        let ranks = (stages * replicas) as usize;
        let limit = |rank: usize| {
            let stage = rank as u32 / replicas;
            let own = stages - stage;
            vec![if stage == lost { 2 * own } else { own }; stages as usize]
        };
        let pipes = Pipes {
            costs: &vec![cost; stages as usize],
            routes: &routes,
            route_of: &route_of,
            micro_batches,
            ranks,
            split: vec![split; ranks],
            limits: (0..ranks).map(limit).collect(),
        };
        let lanes = pipes.lanes(|_| Nanos::ZERO);
        assert_eq!(lanes[(lost * replicas) as usize], [], "the lost rank does nothing");
        let schedule = crate::schedule::Schedule {
            overlaps: vec![vec![]; ranks],
            routes: routes.clone(),
            route_of: route_of.clone(),
            micro_batches: route_of.len() as u32,
            updates: crate::schedule::Updates::Synchronous,
            lanes,
        };
        crate::schedule::check(&schedule).unwrap();
        let footprints = vec![crate::simulate::Footprint::default(); stages as usize];
        let sends = crate::simulate::Sends::Free;
        let costs = vec![cost; stages as usize];
        let found =
            crate::simulate::estimate(&schedule, &costs, &footprints, sends, |_| Nanos::ZERO)
                .unwrap();
        let busy = found.lanes.iter().map(|lane| lane.busy.0).max().unwrap_or(0);
        [found.makespan.0, busy]
    }

    #[test]
    fn guests_go_into_bubbles() {
        for (stages, replicas, micro_batches) in [(2, 2, 4), (4, 3, 6), (4, 4, 12), (8, 4, 16)] {
            for lost in 0..stages {
                let [whole, busy] = makespan(stages, replicas, micro_batches, lost, false);
                let [split, same] = makespan(stages, replicas, micro_batches, lost, true);
                assert_eq!(busy, same);
                // Nobody is faster than its work; the way to the host and back is all that is added
                // where backward passes are split.
                let way = 2 * u64::from(stages);
                assert!(split <= whole && split >= busy, "{whole} {split} {busy}");
                assert!(split <= busy + way, "{stages} x {replicas}, {lost}: {split}, {busy}");
            }
        }
    }

    /// Six micro-batches of each replica, a B as long as two F: with all ranks 1F1B takes 27 units.
    /// Without one, whole backward passes take a third more; split ones hide what they can of it.
    #[test]
    fn three_replicas_of_four_stages() {
        let times = |split| [0, 1, 2, 3].map(|lost| makespan(4, 3, 6, lost, split)[0]);
        assert_eq!(times(false), [38, 36, 37, 36]);
        assert_eq!(times(true), [27, 28, 30, 32]);
    }

    #[test]
    fn two_stages_by_hand() {
        // Rank (0, 1) runs four micro-batches, of 3 units each. The first gradient is back at 3, after
        // F here and F and I of stage 1: three F fill the time until then, so it never waits.
        assert_eq!(makespan(2, 2, 2, 0, true), [12, 12]);
        // The last stage cannot begin before the first forward is there.
        assert_eq!(makespan(2, 2, 2, 1, true)[1], 12);
    }
}
