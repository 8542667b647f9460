//! How many gradients of a stage have to have a place while they travel.
//!
//! A lane that has sent a gradient goes on without waiting for its receiver, as long as there is
//! an outbox entry for the next one. Two entries are enough to compute while the last gradient
//! travels. With several stages a lane they may be too few: all backwards of a stage can stand
//! before the first action that takes one of them, and lanes would wait for each other.

use super::check::Head;
use super::{Action, ActionKind, Schedule};
use crate::ids::{LaneId, MicroBatch, StageId};
use std::collections::BTreeSet;

/// Entries that a stage has in any case.
const LEAST: u32 = 2;

impl Schedule {
    /// Outbox entries of each stage on each lane that holds it: two, or as many more as it takes
    /// that no lanes wait for each other. At most the number of micro-batches. For a schedule that
    /// [`super::check`] accepts. Linear in actions.
    ///
    /// Each stage hands its gradients to the one before it; [`Self::outboxes_to`] is for others.
    pub fn outboxes(&self) -> Outboxes {
        let before = |stage: u32| stage.checked_sub(1).map(StageId).into_iter().collect();
        let receivers: Vec<Vec<StageId>> = (0..self.stages()).map(before).collect();
        self.outboxes_to(&receivers)
    }

    /// The same where the gradients of stage `s` go to the stages `receivers[s]`, all before it: an
    /// entry is free again when the last of them has its part.
    pub fn outboxes_to(&self, receivers: &[Vec<StageId>]) -> Outboxes {
        let mut walk = Walk::new(self, receivers);
        loop {
            walk.go();
            // The first lane that only lacks an entry gets one.
            let Some((lane, stage)) = walk.full.pop_first() else { return walk.outboxes };
            let entry = walk.outboxes.index(lane, stage);
            walk.outboxes.entries[entry] += 1;
            walk.ready.push(lane);
        }
    }
}

/// Outbox entries by lane and stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outboxes {
    /// Stages of a row of `entries`; 0 where every stage is on one lane and one row is enough.
    row: usize,
    entries: Vec<u32>,
}

impl Outboxes {
    fn new(schedule: &Schedule, entries: u32) -> Self {
        let stages = schedule.stages() as usize;
        match schedule.placement() {
            Some(_) => Self { row: 0, entries: vec![entries; stages] },
            None => Self { row: stages, entries: vec![entries; stages * schedule.lanes.len()] },
        }
    }

    fn index(&self, lane: LaneId, stage: StageId) -> usize {
        lane.index() * self.row + stage.index()
    }

    /// Those of `stage` on `lane`, which holds it.
    pub fn of(&self, lane: LaneId, stage: StageId) -> u32 {
        self.entries[self.index(lane, stage)]
    }

    /// By stage, when every stage is on one lane.
    pub fn by_stage(&self) -> Option<&[u32]> {
        (self.row == 0).then_some(&self.entries)
    }
}

/// Lanes that run without times.
struct Walk<'a> {
    schedule: &'a Schedule,
    receivers: &'a [Vec<StageId>],
    /// By stage: the stages that hand it gradients.
    senders: Vec<Vec<StageId>>,
    outboxes: Outboxes,
    heads: Vec<Head>,
    ready: Vec<LaneId>,
    /// Lanes whose next backward, of that stage, waits for an entry alone.
    full: BTreeSet<(LaneId, StageId)>,
    /// By lane and stage: micro-batches in the order of their backwards so far.
    sent: Vec<Vec<MicroBatch>>,
    /// By stage and micro-batch: 1 once F is done, 2 once B or I is.
    done: Vec<u8>,
}

enum Verdict {
    Runs,
    Waits,
    /// Only for an outbox entry of this stage.
    Full(StageId),
}

impl<'a> Walk<'a> {
    fn new(schedule: &'a Schedule, receivers: &'a [Vec<StageId>]) -> Self {
        let (stages, m) = (schedule.stages() as usize, schedule.micro_batches);
        let lanes = schedule.lanes.len();
        let outboxes = Outboxes::new(schedule, LEAST.min(m));
        let mut senders = vec![vec![]; stages];
        for (sender, receivers) in (0..).map(StageId).zip(receivers) {
            receivers.iter().for_each(|receiver| senders[receiver.index()].push(sender));
        }
        Self {
            schedule,
            receivers,
            senders,
            heads: vec![Head::default(); lanes],
            ready: (0..lanes as u32).rev().map(LaneId).collect(),
            full: BTreeSet::new(),
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
                    Verdict::Full(stage) => {
                        self.full.insert((lane, stage));
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
            let backward = matches!(kind, ActionKind::Backward | ActionKind::BackwardInput);
            let lane = self.schedule.lane_of(stage, micro_batch);
            let sent = &self.sent[self.outboxes.index(lane, stage)];
            let oldest = sent.len().checked_sub(self.outboxes.of(lane, stage) as usize);
            if let Some(oldest) = oldest.filter(|_| backward) {
                let has = |receiver: &StageId| self.done[self.at(*receiver, sent[oldest])] >= 2;
                if !self.receivers[stage.index()].iter().all(has) {
                    verdict = Verdict::Full(stage);
                }
            }
        }
        verdict
    }

    fn finish(&mut self, Action { stage, kind, micro_batch }: Action) {
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
                let lane = self.schedule.lane_of(stage, micro_batch);
                let sent = self.outboxes.index(lane, stage);
                self.sent[sent].push(micro_batch);
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
    use crate::schedule::{Schedule, ScheduleKind};

    fn by_stage(schedule: &Schedule) -> Vec<u32> {
        schedule.outboxes().by_stage().unwrap().to_vec()
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
