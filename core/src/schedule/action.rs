//! One thing that a lane does: the forward or backward pass of a stage for a micro-batch.

use super::ParseError;
use crate::ids::{MicroBatch, StageId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Which pass. One letter in texts, as in PyTorch's schedule files; the zero-bubble papers write
/// B for what is I here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ActionKind {
    /// F.
    Forward,
    /// B: input and weight gradients together.
    Backward,
    /// I: input gradients only.
    BackwardInput,
    /// W: weight gradients only.
    BackwardWeight,
}

impl ActionKind {
    /// F, B, I or W.
    pub fn letter(self) -> char {
        match self {
            ActionKind::Forward => 'F',
            ActionKind::Backward => 'B',
            ActionKind::BackwardInput => 'I',
            ActionKind::BackwardWeight => 'W',
        }
    }
}

/// A pass of a stage for a micro-batch. Prints and parses as `2F0`: stage, kind, micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    /// The stage.
    pub stage: StageId,
    /// The pass.
    pub kind: ActionKind,
    /// The micro-batch.
    pub micro_batch: MicroBatch,
}

impl Action {
    /// Shorthand.
    pub fn new(stage: u32, kind: ActionKind, micro_batch: u32) -> Self {
        Self { stage: StageId(stage), kind, micro_batch: MicroBatch(micro_batch) }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.stage, self.kind.letter(), self.micro_batch)
    }
}

impl FromStr for Action {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad = || ParseError::Action { text: text.into() };
        let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let kind = match &text[at..] {
            rest if rest.starts_with('F') => ActionKind::Forward,
            rest if rest.starts_with('B') => ActionKind::Backward,
            rest if rest.starts_with('I') => ActionKind::BackwardInput,
            rest if rest.starts_with('W') => ActionKind::BackwardWeight,
            _ => return Err(bad()),
        };
        let stage = text[..at].parse().map_err(|_| bad())?;
        let rest = &text[at + 1..];
        // `parse` would also take a sign.
        if !rest.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        Ok(Action::new(stage, kind, rest.parse().map_err(|_| bad())?))
    }
}
