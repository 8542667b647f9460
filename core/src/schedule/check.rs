//! Whether a schedule can run: everything there once, in an order that needs nothing from later,
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

/// What is known of each (stage, micro-batch).
#[derive(Clone, Copy, Default)]
struct Cell {
    placed: [bool; 4],
    done: [bool; 4],
}

struct Table<'a> {
    schedule: &'a Schedule,
    cells: Vec<Cell>,
}

use ActionKind::{Backward, BackwardInput, BackwardWeight, Forward};

impl<'a> Table<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let count = schedule.placement.len() * schedule.micro_batches as usize;
        Self { schedule, cells: vec![Cell::default(); count] }
    }

    fn cell(&mut self, stage: StageId, micro_batch: MicroBatch) -> &mut Cell {
        let width = self.schedule.micro_batches as usize;
        &mut self.cells[stage.index() * width + micro_batch.index()]
    }

    fn place(&mut self, lane: LaneId, action: Action) -> Result<(), CheckError> {
        if action.micro_batch.0 >= self.schedule.micro_batches {
            return Err(CheckError::Stray { lane, action, why: "there is no such micro-batch" });
        }
        if self.schedule.placement.get(action.stage.index()) != Some(&lane) {
            return Err(CheckError::Stray { lane, action, why: "its stage is on another lane" });
        }
        let cell = self.cell(action.stage, action.micro_batch);
        let has = |kind: ActionKind| cell.placed[kind as usize];
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
        cell.placed[action.kind as usize] = true;
        Ok(())
    }

    fn complete(&mut self) -> Result<(), CheckError> {
        for stage in (0..self.schedule.stages()).map(StageId) {
            for micro_batch in (0..self.schedule.micro_batches).map(MicroBatch) {
                let placed = self.cell(stage, micro_batch).placed;
                let missing = match placed {
                    [false, ..] => Forward,
                    [_, false, false, _] => Backward,
                    [_, false, true, false] => BackwardWeight,
                    _ => continue,
                };
                let action = Action { stage, kind: missing, micro_batch };
                return Err(CheckError::Missing { lane: self.schedule.lane_of(stage), action });
            }
        }
        Ok(())
    }

    /// What of another stage `action` needs and does not have yet.
    fn waits_for(&mut self, action: Action) -> Option<Action> {
        let Action { stage, kind, micro_batch } = action;
        let last = StageId(self.schedule.stages() - 1);
        match kind {
            Forward if stage.0 > 0 => {
                let stage = StageId(stage.0 - 1);
                let done = self.cell(stage, micro_batch).done[Forward as usize];
                (!done).then_some(Action { stage, kind, micro_batch })
            }
            Backward | BackwardInput if stage < last => {
                let stage = StageId(stage.0 + 1);
                let cell = self.cell(stage, micro_batch);
                let kind = if cell.placed[Backward as usize] { Backward } else { BackwardInput };
                (!cell.done[kind as usize]).then_some(Action { stage, kind, micro_batch })
            }
            Forward | Backward | BackwardInput | BackwardWeight => None,
        }
    }

    /// Runs the lanes without times until nothing moves.
    fn run(&mut self) -> Result<(), CheckError> {
        let schedule = self.schedule;
        let mut next = vec![0; schedule.lanes.len()];
        let mut ready: Vec<LaneId> = (0..schedule.lanes.len() as u32).map(LaneId).collect();
        while let Some(lane) = ready.pop() {
            while let Some(action) = schedule.lanes[lane.index()].get(next[lane.index()]) {
                if self.waits_for(*action).is_some() {
                    break;
                }
                next[lane.index()] += 1;
                self.cell(action.stage, action.micro_batch).done[action.kind as usize] = true;
                ready.extend(self.woken_by(*action).filter(|other| *other != lane));
            }
        }
        let mut blocked = vec![];
        for (lane, position) in (0..).map(LaneId).zip(next) {
            if let Some(action) = schedule.lanes[lane.index()].get(position).copied() {
                let waits_for = self.waits_for(action).expect("only a wait stops a lane");
                blocked.push(Blocked { lane, action, waits_for });
            }
        }
        if blocked.is_empty() { Ok(()) } else { Err(CheckError::Deadlock { blocked }) }
    }

    /// The lane that may go on once `action` is done.
    fn woken_by(&self, action: Action) -> impl Iterator<Item = LaneId> + use<> {
        let stage = match action.kind {
            Forward => Some(action.stage.0 + 1),
            Backward | BackwardInput => action.stage.0.checked_sub(1),
            BackwardWeight => None,
        };
        let lane = stage.and_then(|s| self.schedule.placement.get(s as usize).copied());
        lane.into_iter()
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
            for (p, m) in [(1, 1), (1, 8), (4, 1), (4, 3), (8, 32), (64, 16)] {
                assert_eq!(check(&kind.generate(p, m)), Ok(()), "{kind} {p} {m}");
            }
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
    }
}
