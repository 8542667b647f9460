//! Checks that a schedule can run: everything there once, in an order that needs nothing from later,
//! and no circle of lanes that wait for each other.

use super::{Action, ActionKind, Schedule};
use crate::ids::{LaneId, MicroBatch, StageId};
use thiserror::Error;

/// Why a schedule cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CheckError {
    /// An action that no lane has.
    #[error("lane {lane} lacks {action}")]
    Missing {
        /// Where it belongs.
        lane: LaneId,
        /// What is missing.
        action: Action,
    },
    /// An action that stands twice, or a B beside an I or W of the same micro-batch.
    #[error("lane {lane}: {action} would run a second time")]
    Doubled {
        /// The lane.
        lane: LaneId,
        /// The second one.
        action: Action,
    },
    /// An action of a stage that is placed elsewhere, or of a micro-batch that does not exist.
    #[error("lane {lane}: {action} does not belong here ({why})")]
    Stray {
        /// The lane.
        lane: LaneId,
        /// The action.
        action: Action,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An action before the one on the same lane that it needs.
    #[error("lane {lane}: {action} stands before {needs}, which it needs")]
    Order {
        /// The lane.
        lane: LaneId,
        /// The action.
        action: Action,
        /// What has to come first.
        needs: Action,
    },
    /// Lanes that wait for each other.
    #[error("deadlock: {}", list(.blocked))]
    Deadlock {
        /// Every lane that cannot go on.
        blocked: Vec<Blocked>,
    },
}

/// A lane that cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The lane.
    pub lane: LaneId,
    /// What it would do next.
    pub action: Action,
    /// What it waits for.
    pub waits_for: Action,
}

fn list(blocked: &[Blocked]) -> String {
    let one = |b: &Blocked| format!("lane {} at {} waits for {}", b.lane, b.action, b.waits_for);
    blocked.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Checks `schedule` as a chain of stages: F needs the F of the stage before, B and I need the B
/// or I of the stage after. Linear in the number of actions.
///
/// # Errors
/// The first thing that is wrong, with lane and action.
pub fn check(schedule: &Schedule) -> Result<(), CheckError> {
    let mut table = Table::new(schedule);
    for (lane, actions) in (0..).map(LaneId).zip(&schedule.lanes) {
        for action in actions {
            table.place(lane, *action)?;
        }
    }
    table.complete()?;
    table.run()
}

/// What is known of a (stage, micro-batch): one bit a kind, four for what is placed, four for what
/// is done.
#[derive(Clone, Copy, Default)]
struct Cell(u8);

impl Cell {
    fn placed(self, kind: ActionKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    fn done(self, kind: ActionKind) -> bool {
        self.0 & (16 << kind as u8) != 0
    }
}

struct Table<'a> {
    schedule: &'a Schedule,
    /// By stage and micro-batch.
    cells: Vec<Cell>,
    stages: u32,
    /// Cells of a stage.
    width: usize,
}

use ActionKind::{Backward, BackwardInput, BackwardWeight, Forward};

impl<'a> Table<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let stages = schedule.stages();
        // A cache line more than micro-batches: lanes, which are at much the same micro-batch, do
        // not meet in one cache set.
        let width = schedule.micro_batches as usize + 64;
        Self { schedule, cells: vec![Cell::default(); stages as usize * width], stages, width }
    }

    fn cell(&mut self, stage: StageId, micro_batch: MicroBatch) -> &mut Cell {
        &mut self.cells[stage.index() * self.width + micro_batch.index()]
    }

    fn place(&mut self, lane: LaneId, action: Action) -> Result<(), CheckError> {
        if action.micro_batch.0 >= self.schedule.micro_batches {
            return Err(CheckError::Stray { lane, action, why: "there is no such micro-batch" });
        }
        let here = action.stage.0 < self.stages
            && self.schedule.lane_of(action.stage, action.micro_batch) == lane;
        if !here {
            return Err(CheckError::Stray { lane, action, why: "its stage is on another lane" });
        }
        let cell = self.cell(action.stage, action.micro_batch);
        let has = |kind| cell.placed(kind);
        let doubled = has(action.kind)
            || match action.kind {
                Forward => false,
                Backward => has(BackwardInput) || has(BackwardWeight),
                BackwardInput | BackwardWeight => has(Backward),
            };
        if doubled {
            return Err(CheckError::Doubled { lane, action });
        }
        let first = match action.kind {
            Forward => None,
            Backward | BackwardInput => Some(Forward),
            BackwardWeight => Some(BackwardInput),
        };
        if let Some(kind) = first.filter(|kind| !has(*kind)) {
            // Only an order problem if it comes later; otherwise it is missing.
            let needs = Action { kind, ..action };
            let later = self.schedule.lanes[lane.index()].contains(&needs);
            return Err(match later {
                true => CheckError::Order { lane, action, needs },
                false => CheckError::Missing { lane, action: needs },
            });
        }
        cell.0 |= 1 << action.kind as u8;
        Ok(())
    }

    fn complete(&mut self) -> Result<(), CheckError> {
        for stage in (0..self.stages).map(StageId) {
            for micro_batch in (0..self.schedule.micro_batches).map(MicroBatch) {
                let cell = *self.cell(stage, micro_batch);
                let missing = match [Forward, Backward, BackwardInput, BackwardWeight]
                    .map(|kind| cell.placed(kind))
                {
                    [false, ..] => Forward,
                    [_, false, false, _] => Backward,
                    [_, false, true, false] => BackwardWeight,
                    _ => continue,
                };
                let action = Action { stage, kind: missing, micro_batch };
                let lane = self.schedule.lane_of(stage, micro_batch);
                return Err(CheckError::Missing { lane, action });
            }
        }
        Ok(())
    }

    /// What `action` needs and does not have yet.
    fn waits_for(&mut self, action: Action) -> Option<Action> {
        let Action { stage, kind, micro_batch } = action;
        match kind {
            Forward if stage.0 > 0 => {
                let stage = StageId(stage.0 - 1);
                let done = self.cell(stage, micro_batch).done(Forward);
                (!done).then_some(Action { stage, kind, micro_batch })
            }
            // Its own forward is before it, but may be the other half of a pair.
            Backward | BackwardInput if !self.cell(stage, micro_batch).done(Forward) => {
                Some(Action { stage, kind: Forward, micro_batch })
            }
            Backward | BackwardInput if stage.0 + 1 < self.stages => {
                let stage = StageId(stage.0 + 1);
                let cell = *self.cell(stage, micro_batch);
                let kind = if cell.placed(Backward) { Backward } else { BackwardInput };
                (!cell.done(kind)).then_some(Action { stage, kind, micro_batch })
            }
            Forward | Backward | BackwardInput | BackwardWeight => None,
        }
    }

    /// The first of `lane`'s next action, or pair of them, that cannot start, and what it waits
    /// for.
    fn blocked(&mut self, lane: LaneId, next: &[Action]) -> Option<Blocked> {
        next.iter().find_map(|action| {
            let waits_for = self.waits_for(*action)?;
            Some(Blocked { lane, action: *action, waits_for })
        })
    }

    /// Runs the lanes without times until nothing moves.
    fn run(&mut self) -> Result<(), CheckError> {
        let schedule = self.schedule;
        let lanes = schedule.lanes.len();
        let mut heads: Vec<Head> = (0..lanes).map(|_| Head::default()).collect();
        let mut ready: Vec<LaneId> = (0..lanes as u32).map(LaneId).collect();
        while let Some(lane) = ready.pop() {
            loop {
                let head = &mut heads[lane.index()];
                let next = head.actions(schedule, lane);
                if next.is_empty() || self.blocked(lane, next).is_some() {
                    break;
                }
                head.advance(next.len());
                for action in next {
                    self.cell(action.stage, action.micro_batch).0 |= 16 << action.kind as u8;
                    ready.extend(self.woken_by(*action).filter(|other| *other != lane));
                }
            }
        }
        let mut blocked = vec![];
        for (lane, head) in (0..).map(LaneId).zip(&heads) {
            blocked.extend(self.blocked(lane, head.actions(schedule, lane)));
        }
        if blocked.is_empty() { Ok(()) } else { Err(CheckError::Deadlock { blocked }) }
    }

    /// The lane that may go on once `action` is done.
    fn woken_by(&self, action: Action) -> Option<LaneId> {
        let stage = match action.kind {
            Forward => Some(action.stage.0 + 1).filter(|next| *next < self.stages),
            Backward | BackwardInput => action.stage.0.checked_sub(1),
            BackwardWeight => None,
        };
        stage.map(|stage| self.schedule.lane_of(StageId(stage), action.micro_batch))
    }
}

/// Where a lane stands.
#[derive(Clone, Copy, Default)]
pub(super) struct Head {
    action: usize,
    /// Pairs behind it.
    pairs: usize,
}

impl Head {
    /// The next action, or both of a pair; empty at the end.
    pub fn actions(self, schedule: &Schedule, lane: LaneId) -> &[Action] {
        let (lane, overlaps) = (&schedule.lanes[lane.index()], &schedule.overlaps[lane.index()]);
        let paired = overlaps.get(self.pairs).is_some_and(|at| *at as usize == self.action);
        let end = (self.action + if paired { 2 } else { 1 }).min(lane.len());
        &lane[self.action..end]
    }

    /// Actions behind it.
    pub fn position(self) -> usize {
        self.action
    }

    pub fn advance(&mut self, actions: usize) {
        self.action += actions;
        self.pairs += usize::from(actions == 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::ScheduleKind;

    fn verdict(lines: &[&str]) -> String {
        match check(&Schedule::parse(lines).unwrap()) {
            Ok(()) => "ok".into(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn named_schedules_pass() {
        for kind in ScheduleKind::ALL {
            let mut generated = 0;
            for (s, m) in [(1, 1), (1, 8), (4, 1), (4, 3), (4, 8), (8, 32), (64, 16), (64, 128)] {
                if let Ok(schedule) = kind.generate(s, m) {
                    assert_eq!(check(&schedule), Ok(()), "{kind} {s} {m}");
                    generated += 1;
                }
            }
            assert!(generated >= 3, "{kind}");
        }
        assert_eq!(verdict(&["0F0 0I0 0W0", "1F0 1I0 1W0"]), "ok");
        assert_eq!(verdict(&["0F0 0B0", "1F0 1I0 1W0"]), "ok");
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(verdict(&["0F0 0F1 0B0"]), "lane 0 lacks 0B1");
        assert_eq!(verdict(&["0F0 0F0 0B0"]), "lane 0: 0F0 would run a second time");
        assert_eq!(verdict(&["0F0 0B0 0W0"]), "lane 0: 0W0 would run a second time");
        assert_eq!(verdict(&["0B0 0F0"]), "lane 0: 0B0 stands before 0F0, which it needs");
        assert_eq!(verdict(&["0F0 0W0 0I0"]), "lane 0: 0W0 stands before 0I0, which it needs");
        assert_eq!(verdict(&["0F0 0I0"]), "lane 0 lacks 0W0");
        assert_eq!(verdict(&["0B0"]), "lane 0 lacks 0F0");
    }

    #[test]
    fn lanes_that_wait_for_each_other_are_listed() {
        // Lane 0 wants the gradient of micro-batch 1 first, lane 1 works on 0 first and then
        // waits for the forward of 1 that lane 0 has not come to.
        assert_eq!(
            verdict(&["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"]),
            "deadlock: lane 0 at 0B0 waits for 1B0; lane 1 at 1F1 waits for 0F1"
        );
        // Both of a pair start together, so neither can wait for the other.
        assert_eq!(verdict(&["(0F0;0B0)OVERLAP_F_B"]), "deadlock: lane 0 at 0B0 waits for 0F0");
    }
}
