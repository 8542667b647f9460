//! The messages that an order of actions implies, in the order in which PyTorch's runtime issues
//! them: every lane takes one action a round, a receive stands where its send was issued, and a
//! send is waited for after the backward that frees what it sent, or at the end.

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
        Self { schedule, heads: vec![Head::default(); lanes], cells: vec![vec![]; lanes], there }
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
            if next.is_empty() || !next.iter().all(|a| self.can(*a)) {
                continue;
            }
            moved = true;
            self.heads[lane.index()].advance(next.len());
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
