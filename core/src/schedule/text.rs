//! The text form: a line a lane, `0F0 0F1 0B0`; commas serve as well, as in PyTorch's CSV files, and
//! so does that format's `(4F0;3B1)OVERLAP_F_B` for a forward and a backward that start together.

use super::{Action, ActionKind, Schedule, Updates};
use crate::ids::LaneId;
use std::collections::BTreeMap;
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
    /// A pair that is not a forward and a backward.
    #[error("`{text}` is no pair; a pair is a forward and a backward: `(4F0;3B1)OVERLAP_F_B`")]
    Pair {
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
    /// A micro-batch that visits a stage on two lanes.
    #[error(
        "stage {stage} has micro-batch {micro_batch} on lane {first} and on lane {second}; \
         it belongs on one lane"
    )]
    TwoLanes {
        /// The stage.
        stage: u32,
        /// The micro-batch.
        micro_batch: u32,
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

/// Most pairs of stage and micro-batch, so that a short text cannot ask for all memory.
const PAIRS: u64 = 1 << 26;

impl Schedule {
    /// Reads one text per lane. Stages, their lanes and the number of micro-batches follow from
    /// the actions; whether the order works is for [`super::check`] to say. Linear in actions and
    /// in pairs of stage and micro-batch.
    ///
    /// # Errors
    /// The first word or number that does not fit.
    pub fn parse<S: AsRef<str>>(lines: &[S]) -> Result<Self, ParseError> {
        let (mut lanes, mut overlaps) = (vec![], vec![]);
        for (lane, line) in (0..).map(LaneId).zip(lines) {
            let words = line.as_ref().split([',', ' ', '\t']).filter(|word| !word.is_empty());
            let (mut actions, mut pairs) = (vec![], vec![]);
            for (position, word) in words.enumerate() {
                let at = |source| ParseError::At { lane, position, source: Box::new(source) };
                match word.strip_prefix('(') {
                    None => actions.push(word.parse::<Action>().map_err(at)?),
                    Some(_) => {
                        pairs.push(actions.len() as u32);
                        actions.extend(pair(word).map_err(at)?);
                    }
                }
            }
            lanes.push(actions);
            overlaps.push(pairs);
        }
        Schedule::place(lanes, overlaps)
    }

    /// Finds the routes.
    pub(super) fn place(
        lanes: Vec<Vec<Action>>,
        overlaps: Vec<Vec<u32>>,
    ) -> Result<Self, ParseError> {
        let (stages, micro_batches) = extent(&lanes)?;
        let visits = Visits::new(&lanes, stages, micro_batches)?;
        let mut routes: Vec<Vec<LaneId>> = vec![];
        let mut known = BTreeMap::new();
        let mut route_of: Vec<u32> = Vec::with_capacity(micro_batches as usize);
        for micro_batch in 0..micro_batches {
            // The next micro-batch mostly takes the way of the one before.
            if let Some(&last) =
                route_of.last().filter(|r| visits.is(micro_batch, &routes[**r as usize]))
            {
                route_of.push(last);
                continue;
            }
            let route = visits.route(micro_batch);
            let number = *known.entry(route.clone()).or_insert_with(|| {
                routes.push(route);
                routes.len() as u32 - 1
            });
            route_of.push(number);
        }
        let updates = Updates::Synchronous;
        Ok(Schedule { lanes, overlaps, routes, route_of, micro_batches, updates })
    }

    /// One text per lane.
    pub fn lines(&self) -> Vec<String> {
        let line = |(actions, pairs): (&Vec<Action>, &Vec<u32>)| {
            let (mut words, mut pairs) = (vec![], pairs.iter().peekable());
            let mut at = 0;
            while at < actions.len() {
                let paired = pairs.next_if(|pair| **pair as usize == at).is_some();
                match actions.get(at + 1).filter(|_| paired) {
                    Some(second) => words.push(format!("({};{second})OVERLAP_F_B", actions[at])),
                    None => words.push(actions[at].to_string()),
                }
                at += if paired { 2 } else { 1 };
            }
            words.join(" ")
        };
        self.lanes.iter().zip(&self.overlaps).map(line).collect()
    }
}

/// The two actions of `(4F0;3B1)OVERLAP_F_B`.
fn pair(word: &str) -> Result<[Action; 2], ParseError> {
    let bad = || ParseError::Pair { text: word.into() };
    let inner = word.strip_prefix('(').and_then(|w| w.strip_suffix(")OVERLAP_F_B"));
    let (first, second) = inner.and_then(|w| w.split_once(';')).ok_or_else(bad)?;
    let (first, second): (Action, Action) = (first.parse()?, second.parse()?);
    let kinds = (first.kind, second.kind);
    let fits = matches!(kinds, (ActionKind::Forward, ActionKind::Backward));
    if fits { Ok([first, second]) } else { Err(bad()) }
}

/// Numbers of stages and micro-batches.
fn extent(lanes: &[Vec<Action>]) -> Result<(u32, u32), ParseError> {
    let (mut stages, mut micro_batches) = (0, 0);
    for action in lanes.iter().flatten() {
        for (what, number) in [("stage", action.stage.0), ("micro-batch", action.micro_batch.0)] {
            if number >= LIMIT {
                return Err(ParseError::TooMany { what, number, limit: LIMIT });
            }
        }
        stages = stages.max(action.stage.0 + 1);
        micro_batches = micro_batches.max(action.micro_batch.0 + 1);
    }
    if stages == 0 {
        return Err(ParseError::Empty);
    }
    let limit = (PAIRS / u64::from(stages)) as u32;
    if micro_batches > limit {
        return Err(ParseError::TooMany { what: "micro-batch", number: micro_batches - 1, limit });
    }
    Ok((stages, micro_batches))
}

/// On which lane each micro-batch visits each stage.
struct Visits {
    /// By micro-batch and stage; `NOWHERE` where the text lacks the actions.
    lanes: Vec<LaneId>,
    /// The first lane of each stage: where a missing action is reported.
    first: Vec<LaneId>,
}

const NOWHERE: LaneId = LaneId(u32::MAX);

impl Visits {
    fn new(lanes: &[Vec<Action>], stages: u32, micro_batches: u32) -> Result<Self, ParseError> {
        let width = stages as usize;
        let mut of = vec![NOWHERE; width * micro_batches as usize];
        let mut first = vec![NOWHERE; width];
        for (lane, actions) in (0..).map(LaneId).zip(lanes) {
            for action in actions {
                let (stage, micro_batch) = (action.stage.0, action.micro_batch.0);
                let visit = &mut of[action.micro_batch.index() * width + action.stage.index()];
                if *visit == NOWHERE {
                    *visit = lane;
                } else if *visit != lane {
                    let (first, second) = (*visit, lane);
                    return Err(ParseError::TwoLanes { stage, micro_batch, first, second });
                }
                if first[action.stage.index()] == NOWHERE {
                    first[action.stage.index()] = lane;
                }
            }
        }
        match first.iter().position(|lane| *lane == NOWHERE) {
            Some(stage) => Err(ParseError::Gap { stage: stage as u32, last: stages - 1 }),
            None => Ok(Self { lanes: of, first }),
        }
    }

    fn of(&self, micro_batch: u32) -> impl Iterator<Item = LaneId> + '_ {
        let start = micro_batch as usize * self.first.len();
        let visits = &self.lanes[start..start + self.first.len()];
        let lane =
            |(visit, first): (&LaneId, &LaneId)| if *visit == NOWHERE { *first } else { *visit };
        visits.iter().zip(&self.first).map(lane)
    }

    fn is(&self, micro_batch: u32, route: &[LaneId]) -> bool {
        self.of(micro_batch).eq(route.iter().copied())
    }

    fn route(&self, micro_batch: u32) -> Vec<LaneId> {
        self.of(micro_batch).collect()
    }
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
        for kind in ScheduleKind::ALL {
            let schedule = kind.generate(8, 16).unwrap();
            assert_eq!(Schedule::parse(&schedule.lines()), Ok(schedule), "{kind}");
        }
        let pair = Schedule::parse(&["0F0 (0F1;0B0)OVERLAP_F_B 0B1"]).unwrap();
        assert_eq!(pair.overlaps, [[1]]);
        assert_eq!(pair.lines(), ["0F0 (0F1;0B0)OVERLAP_F_B 0B1"]);
    }

    #[test]
    fn a_bad_word_is_named_with_its_place() {
        let error = Schedule::parse(&["0F0 0B0", "1F0, 1X0"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "lane 1, action 1: `1X0` is no action; \
             an action is stage, F B I or W, micro-batch: `2F0`"
        );
        let halves =
            ["(0F0;0F1)OVERLAP_F_B", "(0F0)OVERLAP_F_B", "(0F0;0B1)", "(0F0;0X1)OVERLAP_F_B"];
        for bad in
            halves.into_iter().chain(["F0", "0F", "0F+1", "-1F0", "0F99999999999", "0F0F0", "é"])
        {
            assert!(Schedule::parse(&[bad]).is_err(), "{bad}");
        }
        assert_eq!(Schedule::parse::<&str>(&[]), Err(ParseError::Empty));
        assert!(matches!(Schedule::parse(&["0F4000000000"]), Err(ParseError::TooMany { .. })));
        assert!(matches!(Schedule::parse(&["0F0", "0B0"]), Err(ParseError::TwoLanes { .. })));
        assert!(matches!(Schedule::parse(&["0F0 2F0"]), Err(ParseError::Gap { stage: 1, .. })));
    }
}
