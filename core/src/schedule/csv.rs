//! PyTorch's schedule files (`torch.distributed.pipelining`): a row a rank, a cell an action, empty
//! cells for idle slots; with or without the messages.

use super::messages::{Cell, Transfer, with_messages};
use super::text::pair;
use super::{ActionKind, CheckError, ParseError, Schedule, check};
use crate::ids::{LaneId, MicroBatch, StageId};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a file is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CsvError {
    /// A cell that is neither action nor message.
    #[error(
        "row {row} (rank), column {column}: `{text}` is neither an action such as `2F0` nor a \
             message such as `2SEND_F0`: {why}"
    )]
    Cell {
        /// The row, from 0: the rank.
        row: usize,
        /// The column, from 0.
        column: usize,
        /// The cell.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A message that the actions do not imply, stands twice or on the wrong side of its action.
    #[error("row {row} (rank), column {column}: `{text}` {why}")]
    Message {
        /// The row, from 0: the rank.
        row: usize,
        /// The column, from 0.
        column: usize,
        /// The cell.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A message that the actions imply and the file lacks, though it has others.
    #[error("row {row} (rank) lacks the message `{text}`")]
    Lacking {
        /// The row, from 0: the rank.
        row: usize,
        /// What is missing.
        text: String,
    },
    /// The actions make no schedule.
    #[error(transparent)]
    Schedule(#[from] ParseError),
    /// The schedule cannot run.
    #[error(transparent)]
    Check(#[from] CheckError),
}

impl Schedule {
    /// The file with actions only: `0F0,0F1,0B0`. O(actions).
    pub fn to_csv(&self) -> String {
        self.lines().iter().map(|line| line.replace(' ', ",") + "\n").collect()
    }

    /// The file with sends, receives and waits for sends, as PyTorch's runtime derives them.
    /// O(actions).
    ///
    /// # Errors
    /// When the schedule cannot run.
    pub fn to_csv_with_messages(&self) -> Result<String, CheckError> {
        check(self)?;
        let row = |cells: Vec<Cell>| {
            let words: Vec<String> = cells.iter().map(Cell::to_string).collect();
            words.join(",") + "\n"
        };
        Ok(with_messages(self).into_iter().map(row).collect())
    }

    /// Reads a file of either form and checks it, messages too. Sharding cells (`0UNSHARD`) are
    /// skipped. O(actions log actions).
    ///
    /// # Errors
    /// The first cell, action or message that does not fit.
    pub fn from_csv(text: &str) -> Result<Self, CsvError> {
        let (mut lanes, mut overlaps, mut messages) = (vec![], vec![], vec![]);
        for (row, line) in text.lines().enumerate() {
            let (mut actions, mut pairs) = (vec![], vec![]);
            for (column, word) in line.split(',').map(str::trim).enumerate() {
                let at = actions.len();
                let bad = |why: String| CsvError::Cell { row, column, text: word.into(), why };
                match cell(word).map_err(bad)? {
                    None => {}
                    Some(Cell::Run(action)) => actions.push(action),
                    Some(Cell::Pair(a, b)) => {
                        pairs.push(at as u32);
                        actions.extend([a, b]);
                    }
                    Some(message) => messages.push(Found { row, column, at, message }),
                }
            }
            lanes.push(actions);
            overlaps.push(pairs);
        }
        let schedule = Schedule::place(lanes, overlaps)?;
        check(&schedule)?;
        if !messages.is_empty() {
            check_messages(&schedule, &messages)?;
        }
        Ok(schedule)
    }
}

/// A message, and how many actions stand before it.
struct Found {
    row: usize,
    column: usize,
    at: usize,
    message: Cell,
}

/// Reads one cell; empty and sharding cells give none.
fn cell(word: &str) -> Result<Option<Cell>, String> {
    if word.is_empty() {
        return Ok(None);
    }
    if word.starts_with('(') {
        return pair(word).map(|[a, b]| Some(Cell::Pair(a, b))).map_err(|e| e.to_string());
    }
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = word.split_at(digits);
    if digits > 0 && ["UNSHARD", "RESHARD", "REDUCE_GRAD"].contains(&rest) {
        return Ok(None);
    }
    let kinds = [
        ("SEND_F", Transfer::Send, false),
        ("RECV_F", Transfer::Recv, false),
        ("SEND_B", Transfer::Send, true),
        ("RECV_B", Transfer::Recv, true),
        ("WAIT_SEND_F", Transfer::WaitSend, false),
        ("WAIT_SEND_B", Transfer::WaitSend, true),
    ];
    for (name, transfer, gradient) in kinds {
        if let Some(last) = rest.strip_prefix(name) {
            let count = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
                true => text.parse::<u32>().map_err(|_| "a number is missing or too large".into()),
                false => Err(format!("`{text}` is no number")),
            };
            let stage = StageId(count(number)?);
            let micro_batch = MicroBatch(count(last)?);
            return Ok(Some(Cell::Message { transfer, gradient, stage, micro_batch }));
        }
    }
    word.parse().map(|action| Some(Cell::Run(action))).map_err(|e: ParseError| e.to_string())
}

/// Every message that the actions imply once, receives before and sends behind their actions.
fn check_messages(schedule: &Schedule, found: &[Found]) -> Result<(), CsvError> {
    // What is implied, with the row and the position of the action that sends or receives.
    let mut implied = BTreeMap::new();
    for (row, actions) in schedule.lanes.iter().enumerate() {
        for (position, action) in actions.iter().enumerate() {
            let lane = LaneId(row as u32);
            let (stage, micro_batch) = (action.stage, action.micro_batch);
            let gradient = match action.kind {
                ActionKind::Forward => false,
                ActionKind::Backward | ActionKind::BackwardInput => true,
                ActionKind::BackwardWeight => continue,
            };
            let (before, after) = (stage.0.checked_sub(1), Some(stage.0 + 1));
            let ends = [(Transfer::Recv, before), (Transfer::Send, after)];
            let ends =
                if gradient { [(Transfer::Recv, after), (Transfer::Send, before)] } else { ends };
            for (transfer, peer) in ends {
                let peer = peer.filter(|peer| *peer < schedule.stages());
                if peer.is_some_and(|p| schedule.lane_of(StageId(p), micro_batch) != lane) {
                    let message = Cell::Message { transfer, gradient, stage, micro_batch };
                    implied.insert(message, (row, position));
                }
            }
        }
    }
    for Found { row, column, at, message } in found {
        let Cell::Message { transfer, gradient, stage, micro_batch } = *message else { continue };
        let refuse = |why| {
            Err(CsvError::Message { row: *row, column: *column, text: message.to_string(), why })
        };
        let known = match transfer {
            Transfer::WaitSend => {
                let sent = Cell::Message { transfer: Transfer::Send, gradient, stage, micro_batch };
                match implied.get(&sent) {
                    Some((place, usize::MAX)) if place == row => continue,
                    Some(_) => return refuse("waits for something that was not sent yet"),
                    None => return refuse("waits for something that is never sent"),
                }
            }
            Transfer::Send | Transfer::Recv => implied.get_mut(message),
        };
        match known {
            Some((place, position)) if place == row && *position != usize::MAX => {
                let before = *at <= *position;
                if before != (transfer == Transfer::Recv) {
                    return refuse("stands on the wrong side of its action");
                }
                *position = usize::MAX;
            }
            Some((place, _)) if place == row => return refuse("stands there a second time"),
            _ => return refuse("is a message that no action of this rank sends or receives"),
        }
    }
    match implied.iter().find(|(_, (_, position))| *position != usize::MAX) {
        Some((message, (row, _))) => {
            Err(CsvError::Lacking { row: *row, text: message.to_string() })
        }
        None => Ok(()),
    }
}
