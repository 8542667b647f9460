//! The messages that an order of actions implies, in the order in which PyTorch's runtime issues
//! them: every lane takes one action a round, a receive stands where its send was issued, and a
//! send is waited for after the backward that frees what it sent, or at the end. Rounds also pass
//! with sharding actions (FSDP), which are not written here but shift the receives.

use super::check::Head;
use super::{Action, ActionKind, Schedule};
use crate::ids::{LaneId, MicroBatch, StageId};
use std::fmt;

/// What a lane does besides computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transfer {
    Send,
    Recv,
    WaitSend,
}

/// A cell of a schedule with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cell {
    Run(Action),
    Pair(Action, Action),
    /// The stage is the one that sends or receives.
    Message {
        transfer: Transfer,
        gradient: bool,
        stage: StageId,
        micro_batch: MicroBatch,
    },
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Run(action) => action.fmt(f),
            Cell::Pair(a, b) => write!(f, "({a};{b})OVERLAP_F_B"),
            Cell::Message { transfer, gradient, stage, micro_batch } => {
                let name = match transfer {
                    Transfer::Send => "SEND",
                    Transfer::Recv => "RECV",
                    Transfer::WaitSend => "WAIT_SEND",
                };
                write!(f, "{stage}{name}_{}{micro_batch}", if *gradient { 'B' } else { 'F' })
            }
        }
    }
}

/// The cells of every lane, messages included. For a schedule that [`super::check`] accepts.
pub(super) fn with_messages(schedule: &Schedule) -> Vec<Vec<Cell>> {
    let mut issue = Issue::new(schedule);
    while issue.round() {}
    issue.cells.into_iter().map(wait_at_the_end).collect()
}

struct Issue<'a> {
    schedule: &'a Schedule,
    heads: Vec<Head>,
    /// By lane: rounds left before its next cell; and by lane and action, rounds before it.
    left: Vec<u32>,
    pauses: Vec<Vec<u32>>,
    cells: Vec<Vec<Cell>>,
    /// By stage and micro-batch: 1 when the F's input is there, 2 when the backward's is.
    there: Vec<u8>,
}

impl<'a> Issue<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let m = schedule.micro_batches as usize;
        let stages = schedule.stages() as usize;
        let mut there = vec![0; stages * m];
        there[..m].fill(1);
        let lanes = schedule.lanes.len();
        let pauses: Vec<Vec<u32>> = schedule.lanes.iter().map(|a| sharding_rounds(a)).collect();
        let left = pauses.iter().map(|p| p.first().copied().unwrap_or(0)).collect();
        let (heads, cells) = (vec![Head::default(); lanes], vec![vec![]; lanes]);
        Self { schedule, heads, left, pauses, cells, there }
    }

    fn at(&self, stage: StageId, micro_batch: MicroBatch) -> usize {
        stage.index() * self.schedule.micro_batches as usize + micro_batch.index()
    }

    /// One action of every lane that can; whether there was one.
    fn round(&mut self) -> bool {
        let schedule = self.schedule;
        let mut moved = false;
        for lane in (0..schedule.lanes.len() as u32).map(LaneId) {
            let next = self.heads[lane.index()].actions(schedule, lane);
            let left = self.left[lane.index()];
            if left > 0 {
                self.left[lane.index()] = left - 1;
                moved = true;
                continue;
            }
            if next.is_empty() || !next.iter().all(|a| self.can(*a)) {
                continue;
            }
            moved = true;
            let head = &mut self.heads[lane.index()];
            head.advance(next.len());
            let pause = self.pauses[lane.index()].get(head.position()).copied();
            self.left[lane.index()] = pause.unwrap_or(0);
            self.cells[lane.index()].push(match next {
                [a, b] => Cell::Pair(*a, *b),
                _ => Cell::Run(next[0]),
            });
            next.iter().for_each(|a| self.wait(lane, *a));
            next.iter().for_each(|a| self.send(lane, *a));
        }
        moved
    }

    fn can(&self, action: Action) -> bool {
        let there = self.there[self.at(action.stage, action.micro_batch)];
        let last = action.stage.0 + 1 == self.schedule.stages();
        match action.kind {
            ActionKind::Forward => there & 1 != 0,
            ActionKind::Backward | ActionKind::BackwardInput => last || there & 2 != 0,
            ActionKind::BackwardWeight => true,
        }
    }

    /// The lane of a neighbouring stage.
    fn peer(&self, stage: StageId, micro_batch: MicroBatch) -> Option<LaneId> {
        (stage.0 < self.schedule.stages()).then(|| self.schedule.lane_of(stage, micro_batch))
    }

    /// The backward that frees what the forward has sent waits for that send.
    fn wait(&mut self, lane: LaneId, Action { stage, kind, micro_batch }: Action) {
        let next = self.peer(StageId(stage.0 + 1), micro_batch);
        let sent = next.is_some_and(|peer| peer != lane);
        if sent && matches!(kind, ActionKind::Backward | ActionKind::BackwardInput) {
            let transfer = Transfer::WaitSend;
            let wait = Cell::Message { transfer, gradient: false, stage, micro_batch };
            self.cells[lane.index()].push(wait);
        }
    }

    fn send(&mut self, lane: LaneId, Action { stage, kind, micro_batch }: Action) {
        let (to, gradient) = match kind {
            ActionKind::Forward => (StageId(stage.0 + 1), false),
            ActionKind::BackwardWeight => return,
            _ if stage.0 == 0 => return,
            _ => (StageId(stage.0 - 1), true),
        };
        let Some(peer) = self.peer(to, micro_batch) else { return };
        let at = self.at(to, micro_batch);
        self.there[at] |= if gradient { 2 } else { 1 };
        if peer != lane {
            let message =
                |transfer, stage| Cell::Message { transfer, gradient, stage, micro_batch };
            self.cells[lane.index()].push(message(Transfer::Send, stage));
            self.cells[peer.index()].push(message(Transfer::Recv, to));
        }
    }
}

/// Rounds that pass before each action of a lane: its runtime gathers the parameters of the next
/// three stages that compute (one round each), gives back those of others (one each), and reduces
/// a stage's gradients after its last backward (one). O(actions x stages of the lane).
fn sharding_rounds(actions: &[Action]) -> Vec<u32> {
    let gathers = |a: &Action| matches!(a.kind, ActionKind::Backward | ActionKind::BackwardWeight);
    let mut rounds = vec![0; actions.len()];
    // Backwards through the lane: stages by their next use. What is among the first three at one
    // action and was not before it is gathered or given back in between.
    let mut next_use: Vec<StageId> = vec![];
    let mut reduced: Vec<StageId> = vec![];
    let mut behind: Option<Vec<StageId>> = None;
    for (at, action) in actions.iter().enumerate().rev() {
        next_use.retain(|stage| *stage != action.stage);
        next_use.insert(0, action.stage);
        let here: Vec<StageId> = next_use.iter().take(GATHERED).copied().collect();
        if let Some(behind) = &behind {
            let given_back = here.iter().filter(|s| !behind.contains(s)).count();
            let gathered = behind.iter().filter(|s| !here.contains(s)).count();
            rounds[at + 1] += (given_back + gathered) as u32;
        }
        if gathers(action) && !reduced.contains(&action.stage) {
            reduced.push(action.stage);
            if let Some(next) = rounds.get_mut(at + 1) {
                *next += 1;
            }
        }
        behind = Some(here);
    }
    if let (Some(first), Some(behind)) = (rounds.first_mut(), behind) {
        *first += behind.len() as u32;
    }
    rounds
}

/// Stages whose parameters are gathered at a time.
const GATHERED: usize = 3;

/// Gradients that were sent are waited for in the order of the sends.
fn wait_at_the_end(mut cells: Vec<Cell>) -> Vec<Cell> {
    let waits: Vec<Cell> = cells
        .iter()
        .filter_map(|cell| match *cell {
            Cell::Message { transfer: Transfer::Send, gradient: true, stage, micro_batch } => {
                let transfer = Transfer::WaitSend;
                Some(Cell::Message { transfer, gradient: true, stage, micro_batch })
            }
            _ => None,
        })
        .collect();
    cells.extend(waits);
    cells
}
