//! Places for gradients of a stage while they travel: how many it has to have.
//!
//! A lane that has sent a gradient goes on without waiting for its receiver, as long as there is
//! an outbox entry for the next one. Two entries are enough to compute while the last gradient
//! travels. With several stages a lane they may be too few: all backwards of a stage can stand
//! before the first action that takes one of them, and lanes would wait for each other.
//!
//! Gradients that weights need as well lie in the micro-batch's slot instead, which the next
//! micro-batch takes only when they have been received: then spare slots do the same.

use super::check::Head;
use super::{Action, ActionKind, Schedule};
use crate::ids::{LaneId, MicroBatch, StageId};
use std::collections::{BTreeMap, VecDeque};

/// Entries that a stage has in any case.
const LEAST: u32 = 2;

impl Schedule {
    /// Outbox entries of each stage on each lane that holds it: two, or as many more as it takes
    /// that no lanes wait for each other. At most the number of micro-batches. For a schedule that
    /// [`super::check`] accepts. Linear in actions.
    ///
    /// Each stage hands its gradients to the one before it; [`Self::outboxes_to`] is for others.
    pub fn outboxes(&self) -> Outboxes {
        let hands: Vec<Hands> = (0..self.stages()).map(before).collect();
        self.outboxes_to(&hands)
    }

    /// The same with what each stage hands to whom.
    pub fn outboxes_to(&self, hands: &[Hands]) -> Outboxes {
        if self.is_straight(hands) {
            return Outboxes::new(self, LEAST.min(self.micro_batches));
        }
        let mut walk = Walk::new(self, hands);
        loop {
            walk.go();
            // The first lane that only lacks an entry gets one.
            let Some(((lane, stage), lacks)) = walk.full.pop_first() else { return walk.outboxes };
            let entry = walk.outboxes.index(lane, stage);
            match lacks {
                Lacks::Entry => walk.outboxes.entries[entry] += 1,
                Lacks::Slot => walk.outboxes.spare[entry] += 1,
            }
            walk.ready.push(lane);
        }
    }
}

impl Schedule {
    /// Whether every lane has the stage of its own number, hands gradients to its neighbour alone, and
    /// takes backward passes in the same order of micro-batches. Then one entry is enough:
    /// lanes that wait for each other are neighbours; the later one cannot wait for an entry, since the
    /// earlier one, waiting for its gradient, has had all it sent before; so they would wait without
    /// outboxes too.
    fn is_straight(&self, hands: &[Hands]) -> bool {
        let straight = self.placement().is_some_and(|lanes| {
            lanes.len() == self.lanes.len() && (0..).zip(lanes).all(|(at, lane)| lane.0 == at)
        });
        straight
            && self.overlaps.iter().all(Vec::is_empty)
            && (0..).zip(hands).all(|(stage, hands)| *hands == before(stage))
            && self.lanes.iter().all(|lane| backwards(lane).eq(backwards(&self.lanes[0])))
    }
}

/// What a stage of a chain hands to the one before it.
fn before(stage: u32) -> Hands {
    let receivers = stage.checked_sub(1).map(StageId).into_iter().collect();
    Hands { receivers, from_slot: false }
}

/// Micro-batches in the order in which a lane sends their gradients.
fn backwards(lane: &[Action]) -> impl Iterator<Item = MicroBatch> {
    let sends =
        |action: &&Action| matches!(action.kind, ActionKind::Backward | ActionKind::BackwardInput);
    lane.iter().filter(sends).map(|action| action.micro_batch)
}

/// What a stage hands to earlier ones after the input part of a backward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hands {
    /// Who gets gradients, all of them before it: a place is free again when the last of them has
    /// its part.
    pub receivers: Vec<StageId>,
    /// Whether some of them lie in the micro-batch's slot.
    pub from_slot: bool,
}

/// Outbox entries, and slots beyond the most that are in use at a time, by lane and stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outboxes {
    /// Stages of a row of `entries`; 0 where every stage is on one lane and one row is enough.
    row: usize,
    entries: Vec<u32>,
    spare: Vec<u32>,
}

impl Outboxes {
    fn new(schedule: &Schedule, entries: u32) -> Self {
        let stages = schedule.stages() as usize;
        let (row, count) = match schedule.placement() {
            Some(_) => (0, stages),
            None => (stages, stages * schedule.lanes.len()),
        };
        Self { row, entries: vec![entries; count], spare: vec![0; count] }
    }

    fn index(&self, lane: LaneId, stage: StageId) -> usize {
        lane.index() * self.row + stage.index()
    }

    /// Those of `stage` on `lane`, which holds it.
    pub fn of(&self, lane: LaneId, stage: StageId) -> u32 {
        self.entries[self.index(lane, stage)]
    }

    /// Slots of `stage` on `lane` that stay free when another one is: a forward pass takes the one
    /// that has been free for longest, if more than these are.
    pub fn spare_slots(&self, lane: LaneId, stage: StageId) -> u32 {
        self.spare[self.index(lane, stage)]
    }

    /// By stage, when every stage is on one lane.
    pub fn by_stage(&self) -> Option<&[u32]> {
        (self.row == 0).then_some(&self.entries)
    }
}

/// Lanes that run without times.
struct Walk<'a> {
    schedule: &'a Schedule,
    hands: &'a [Hands],
    /// By stage: the stages that hand it gradients.
    senders: Vec<Vec<StageId>>,
    outboxes: Outboxes,
    heads: Vec<Head>,
    ready: Vec<LaneId>,
    /// Lanes whose next action, of that stage, waits for a place alone.
    full: BTreeMap<(LaneId, StageId), Lacks>,
    /// By lane and stage: the micro-batches that had the free slots, for longest free first.
    free: Vec<VecDeque<MicroBatch>>,
    /// By lane and stage: micro-batches in the order of their backwards so far.
    sent: Vec<Vec<MicroBatch>>,
    /// By stage and micro-batch: 1 once F is done, 2 once B or I is.
    done: Vec<u8>,
}

/// What a gradient, or a micro-batch, has no place in.
#[derive(Clone, Copy)]
enum Lacks {
    Entry,
    Slot,
}

enum Verdict {
    Runs,
    Waits,
    /// Only for a place of this stage.
    Full(StageId, Lacks),
}

impl<'a> Walk<'a> {
    fn new(schedule: &'a Schedule, hands: &'a [Hands]) -> Self {
        let (stages, m) = (schedule.stages() as usize, schedule.micro_batches);
        let lanes = schedule.lanes.len();
        let outboxes = Outboxes::new(schedule, LEAST.min(m));
        let mut senders = vec![vec![]; stages];
        for (sender, hands) in (0..).map(StageId).zip(hands) {
            hands.receivers.iter().for_each(|receiver| senders[receiver.index()].push(sender));
        }
        Self {
            schedule,
            hands,
            senders,
            heads: vec![Head::default(); lanes],
            ready: (0..lanes as u32).rev().map(LaneId).collect(),
            full: BTreeMap::new(),
            free: vec![VecDeque::new(); outboxes.entries.len()],
            sent: vec![vec![]; outboxes.entries.len()],
            outboxes,
            done: vec![0; stages * m as usize],
        }
    }

    fn at(&self, stage: StageId, micro_batch: MicroBatch) -> usize {
        stage.index() * self.schedule.micro_batches as usize + micro_batch.index()
    }

    fn go(&mut self) {
        let schedule = self.schedule;
        while let Some(lane) = self.ready.pop() {
            loop {
                let next = self.heads[lane.index()].actions(schedule, lane);
                if next.is_empty() {
                    break;
                }
                match self.verdict(next) {
                    Verdict::Runs => {}
                    Verdict::Waits => break,
                    Verdict::Full(stage, lacks) => {
                        self.full.insert((lane, stage), lacks);
                        break;
                    }
                }
                self.heads[lane.index()].advance(next.len());
                next.iter().for_each(|action| self.finish(*action));
            }
        }
    }

    fn verdict(&self, next: &[Action]) -> Verdict {
        let mut verdict = Verdict::Runs;
        for Action { stage, kind, micro_batch } in next.iter().copied() {
            let last = stage.0 + 1 == self.schedule.stages();
            let has = match kind {
                ActionKind::Forward if stage.0 > 0 => {
                    self.done[self.at(StageId(stage.0 - 1), micro_batch)] >= 1
                }
                ActionKind::Backward | ActionKind::BackwardInput if !last => {
                    self.done[self.at(StageId(stage.0 + 1), micro_batch)] >= 2
                }
                _ => true,
            };
            if !has {
                return Verdict::Waits;
            }
            let lane = self.schedule.lane_of(stage, micro_batch);
            let at = self.outboxes.index(lane, stage);
            let (taken, lacks) = match kind {
                ActionKind::Forward => (self.slot_before(at, stage), Lacks::Slot),
                ActionKind::BackwardWeight => (None, Lacks::Slot),
                ActionKind::Backward | ActionKind::BackwardInput => {
                    let sent = &self.sent[at];
                    let oldest = sent.len().checked_sub(self.outboxes.entries[at] as usize);
                    (oldest.map(|oldest| sent[oldest]), Lacks::Entry)
                }
            };
            let has = |receiver: &StageId, oldest| self.done[self.at(*receiver, oldest)] >= 2;
            if let Some(oldest) = taken
                && !self.hands[stage.index()].receivers.iter().all(|r| has(r, oldest))
            {
                verdict = Verdict::Full(stage, lacks);
            }
        }
        verdict
    }

    /// The micro-batch whose gradients lie in the slot that the next forward pass takes.
    fn slot_before(&self, at: usize, stage: StageId) -> Option<MicroBatch> {
        let free = &self.free[at];
        let reused = free.len() > self.outboxes.spare[at] as usize;
        free.front().copied().filter(|_| reused && self.hands[stage.index()].from_slot)
    }

    fn finish(&mut self, Action { stage, kind, micro_batch }: Action) {
        let lane = self.schedule.lane_of(stage, micro_batch);
        let held = self.outboxes.index(lane, stage);
        match kind {
            ActionKind::Forward if self.free[held].len() > self.outboxes.spare[held] as usize => {
                self.free[held].pop_front();
            }
            ActionKind::Backward | ActionKind::BackwardWeight => {
                self.free[held].push_back(micro_batch);
            }
            ActionKind::Forward | ActionKind::BackwardInput => {}
        }
        let at = self.at(stage, micro_batch);
        let mut wake = |stage: StageId| {
            let lane = self.schedule.lane_of(stage, micro_batch);
            self.full.remove(&(lane, stage));
            self.ready.push(lane);
        };
        let next = stage.0 + 1;
        let inner = next < self.schedule.stages();
        match kind {
            ActionKind::Forward => {
                self.done[at] = 1;
                if inner {
                    wake(StageId(next));
                }
            }
            ActionKind::Backward | ActionKind::BackwardInput => {
                self.done[at] = 2;
                self.sent[held].push(micro_batch);
                // Those before it may go on, those that sent to it have an entry again.
                if stage.0 > 0 {
                    wake(StageId(stage.0 - 1));
                }
                self.senders[stage.index()].iter().for_each(|sender| wake(*sender));
            }
            ActionKind::BackwardWeight => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::ScheduleKind;

    fn by_stage(schedule: &Schedule) -> Vec<u32> {
        schedule.outboxes().by_stage().unwrap().to_vec()
    }

    #[test]
    fn straight_pipelines_need_no_walk() {
        for kind in ScheduleKind::STRAIGHT {
            for (stages, m) in [(1, 5), (2, 3), (4, 1), (4, 16), (8, 20)] {
                let Ok(schedule) = kind.generate(stages, m) else { continue };
                let hands: Vec<Hands> = (0..stages).map(before).collect();
                let mut walk = Walk::new(&schedule, &hands);
                walk.go();
                assert!(walk.full.is_empty(), "{kind}");
                let done = |(lane, head): (usize, &Head)| {
                    head.actions(&schedule, LaneId(lane as u32)).is_empty()
                };
                assert!(walk.heads.iter().enumerate().all(done), "{kind}: {stages} x {m}");
                if schedule.is_straight(&hands) {
                    assert_eq!(schedule.outboxes_to(&hands), walk.outboxes, "{kind}");
                }
            }
        }
        let one = ScheduleKind::OneFOneB.generate(4, 16).unwrap();
        let hands: Vec<Hands> = (0..4).map(before).collect();
        assert!(one.is_straight(&hands));
    }

    #[test]
    fn straight_pipelines_need_two_and_loops_more() {
        for kind in ScheduleKind::STRAIGHT {
            assert_eq!(by_stage(&kind.generate(4, 16).unwrap()), [2; 4], "{kind}");
            assert_eq!(by_stage(&kind.generate(4, 1).unwrap()), [1; 4], "{kind}");
        }
        // One lane, two stages, all backwards of the second one first.
        let alone = Schedule::parse(&["0F0 0F1 0F2 1F0 1F1 1F2 1B0 1B1 1B2 0B0 0B1 0B2"]).unwrap();
        assert_eq!(by_stage(&alone), [2, 3]);
        let looped = by_stage(&ScheduleKind::LoopedBfs { chunks: 2 }.generate(8, 64).unwrap());
        assert!(looped.iter().any(|n| *n > 2) && looped.iter().all(|n| *n <= 64), "{looped:?}");
    }
}
