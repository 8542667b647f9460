//! The text form: a line a lane, `0F0 0F1 0B0`; commas serve as well, as in PyTorch's CSV files.

use super::{Action, Schedule};
use crate::ids::LaneId;
use std::fmt;
use thiserror::Error;

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// A word that is no action.
    #[error("`{text}` is no action; an action is stage, F B I or W, micro-batch: `2F0`")]
    Action {
        /// The word.
        text: String,
    },
    /// The same, with its place.
    #[error("lane {lane}, action {position}: {source}")]
    At {
        /// The line, from 0.
        lane: LaneId,
        /// The word in the line, from 0.
        position: usize,
        /// What is wrong with it.
        source: Box<ParseError>,
    },
    /// A stage that two lanes execute.
    #[error("stage {stage} is on lane {first} and on lane {second}; a stage has one lane")]
    TwoLanes {
        /// The stage.
        stage: u32,
        /// One lane.
        first: LaneId,
        /// The other.
        second: LaneId,
    },
    /// A stage without actions.
    #[error("no lane executes stage {stage}, yet there is a stage {last}")]
    Gap {
        /// The missing stage.
        stage: u32,
        /// The largest one.
        last: u32,
    },
    /// Numbers far beyond any pipeline.
    #[error("{what} {number} is more than the {limit} that a schedule may have")]
    TooMany {
        /// Stage or micro-batch.
        what: &'static str,
        /// The number.
        number: u32,
        /// The limit.
        limit: u32,
    },
    /// No action at all.
    #[error("the schedule has no actions")]
    Empty,
}

/// Stages or micro-batches beyond this are refused: a slip of the keyboard, not a pipeline.
const LIMIT: u32 = 1 << 16;

impl Schedule {
    /// Reads one text per lane. Stages, their lanes and the number of micro-batches follow from
    /// the actions; whether the order works is for [`super::check`] to say.
    ///
    /// # Errors
    /// The first word or number that does not fit.
    pub fn parse<S: AsRef<str>>(lines: &[S]) -> Result<Self, ParseError> {
        let mut lanes = vec![];
        for (lane, line) in (0..).map(LaneId).zip(lines) {
            let words = line.as_ref().split([',', ' ', '\t']).filter(|word| !word.is_empty());
            let parse = |(position, word): (usize, &str)| {
                word.parse::<Action>().map_err(|source| {
                    let source = Box::new(source);
                    ParseError::At { lane, position, source }
                })
            };
            lanes.push(words.enumerate().map(parse).collect::<Result<Vec<_>, _>>()?);
        }
        let (placement, micro_batches) = place(&lanes)?;
        Ok(Schedule { lanes, placement, micro_batches })
    }

    /// One text per lane.
    pub fn lines(&self) -> Vec<String> {
        let line =
            |lane: &Vec<Action>| lane.iter().map(Action::to_string).collect::<Vec<_>>().join(" ");
        self.lanes.iter().map(line).collect()
    }
}

/// The lane of each stage and the number of micro-batches.
fn place(lanes: &[Vec<Action>]) -> Result<(Vec<LaneId>, u32), ParseError> {
    let mut placement: Vec<Option<LaneId>> = vec![];
    let mut micro_batches = 0;
    for (lane, actions) in (0..).map(LaneId).zip(lanes) {
        for action in actions {
            let (stage, micro_batch) = (action.stage.0, action.micro_batch.0);
            for (what, number) in [("stage", stage), ("micro-batch", micro_batch)] {
                if number >= LIMIT {
                    return Err(ParseError::TooMany { what, number, limit: LIMIT });
                }
            }
            if placement.len() <= action.stage.index() {
                placement.resize(action.stage.index() + 1, None);
            }
            let first = *placement[action.stage.index()].get_or_insert(lane);
            if first != lane {
                return Err(ParseError::TwoLanes { stage, first, second: lane });
            }
            micro_batches = micro_batches.max(micro_batch + 1);
        }
    }
    if placement.is_empty() {
        return Err(ParseError::Empty);
    }
    let last = placement.len() as u32 - 1;
    let placed = (0..).zip(placement);
    let placement = placed.map(|(stage, lane)| lane.ok_or(ParseError::Gap { stage, last }));
    Ok((placement.collect::<Result<_, _>>()?, micro_batches))
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.lines() {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::ScheduleKind;

    #[test]
    fn texts_round_trip() {
        let schedule = ScheduleKind::OneFOneB.generate(3, 5);
        assert_eq!(Schedule::parse(&schedule.lines()), Ok(schedule));
    }

    #[test]
    fn a_bad_word_is_named_with_its_place() {
        let error = Schedule::parse(&["0F0 0B0", "1F0, 1X0"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "lane 1, action 1: `1X0` is no action; \
             an action is stage, F B I or W, micro-batch: `2F0`"
        );
        for bad in ["F0", "0F", "0F+1", "-1F0", "0F99999999999", "0F0F0", "é"] {
            assert!(Schedule::parse(&[bad]).is_err(), "{bad}");
        }
        assert_eq!(Schedule::parse::<&str>(&[]), Err(ParseError::Empty));
        assert!(matches!(Schedule::parse(&["0F4000000000"]), Err(ParseError::TooMany { .. })));
        assert!(matches!(Schedule::parse(&["0F0", "0B0"]), Err(ParseError::TwoLanes { .. })));
        assert!(matches!(Schedule::parse(&["0F0 2F0"]), Err(ParseError::Gap { stage: 1, .. })));
    }
}
