//! The schedules that have a name.

use super::{Placement, Updates};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A schedule by name. Prints and parses as `1f1b` or, with a number, `interleaved:2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ScheduleKind {
    /// One forward, one backward, flushed every step (Narayanan et al. 2021, "PipeDream-Flush").
    OneFOneB,
    /// All forwards, then all backwards (Huang et al. 2019).
    GPipe,
    /// Model parallelism without a pipeline: one lane at a time.
    Naive,
    /// 1F1B with several stages a lane (Narayanan et al., SC 2021).
    Interleaved {
        /// Stages of a lane.
        chunks: u32,
    },
    /// GPipe with several stages a lane, breadth first (Lamy-Poirier 2023).
    LoopedBfs {
        /// Stages of a lane.
        chunks: u32,
    },
}

/// Stages of a lane beyond this are refused: a slip of the keyboard, not a pipeline.
const NUMBER_MAX: u32 = 1024;

/// What is fixed about a kind.
struct Facts {
    name: &'static str,
    title: &'static str,
    /// What stands behind the colon.
    number: Option<u32>,
    placement: Placement,
    updates: Updates,
}

impl ScheduleKind {
    /// All of them with usual numbers, in the order in which they are offered.
    pub const ALL: [ScheduleKind; 5] = [
        ScheduleKind::OneFOneB,
        ScheduleKind::GPipe,
        ScheduleKind::Naive,
        ScheduleKind::Interleaved { chunks: 2 },
        ScheduleKind::LoopedBfs { chunks: 2 },
    ];

    /// Those with one stage a lane, for any numbers of stages and micro-batches.
    pub const STRAIGHT: [ScheduleKind; 2] = [ScheduleKind::OneFOneB, ScheduleKind::GPipe];

    fn facts(self) -> Facts {
        let sync = |name, title, number, placement| {
            let updates = Updates::Synchronous;
            Facts { name, title, number, placement, updates }
        };
        let straight = Placement::Loop { chunks: 1 };
        match self {
            ScheduleKind::OneFOneB => sync("1f1b", "1F1B", None, straight),
            ScheduleKind::GPipe => sync("gpipe", "GPipe", None, straight),
            ScheduleKind::Naive => sync("naive", "Naive", None, straight),
            ScheduleKind::Interleaved { chunks } => {
                sync("interleaved", "Interleaved 1F1B", Some(chunks), Placement::Loop { chunks })
            }
            ScheduleKind::LoopedBfs { chunks } => {
                sync("looped-bfs", "Looped BFS", Some(chunks), Placement::Loop { chunks })
            }
        }
    }

    /// The kind with another number, if it has one.
    fn with_number(self, number: u32) -> Option<Self> {
        match self {
            ScheduleKind::Interleaved { .. } => Some(ScheduleKind::Interleaved { chunks: number }),
            ScheduleKind::LoopedBfs { .. } => Some(ScheduleKind::LoopedBfs { chunks: number }),
            _ => None,
        }
    }

    /// The name for people.
    pub fn title(self) -> &'static str {
        self.facts().title
    }

    /// Which stages a lane holds.
    pub fn placement(self) -> Placement {
        self.facts().placement
    }

    /// When parameters change.
    pub fn updates(self) -> Updates {
        self.facts().updates
    }
}

/// A name that no schedule has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no schedule is called `{given}`; known: {}", known())]
pub struct UnknownSchedule {
    /// The name.
    pub given: String,
}

fn known() -> String {
    let pattern = |kind: ScheduleKind| match kind.facts() {
        Facts { name, number: Some(_), .. } => format!("{name}:N"),
        Facts { name, number: None, .. } => name.into(),
    };
    ScheduleKind::ALL.map(pattern).join(", ")
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.facts() {
            Facts { name, number: Some(number), .. } => write!(f, "{name}:{number}"),
            Facts { name, number: None, .. } => f.write_str(name),
        }
    }
}

impl FromStr for ScheduleKind {
    type Err = UnknownSchedule;

    fn from_str(text: &str) -> Result<Self, UnknownSchedule> {
        let unknown = || UnknownSchedule { given: text.into() };
        let (name, number) = match text.split_once(':') {
            None => (text, None),
            Some((name, number)) => (name, Some(number.parse::<u32>().map_err(|_| unknown())?)),
        };
        let mut kinds = ScheduleKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.facts().name == name).ok_or_else(unknown)?;
        match number {
            None => Ok(kind),
            Some(number @ 1..=NUMBER_MAX) => kind.with_number(number).ok_or_else(unknown),
            Some(_) => Err(unknown()),
        }
    }
}

impl TryFrom<String> for ScheduleKind {
    type Error = UnknownSchedule;

    fn try_from(text: String) -> Result<Self, UnknownSchedule> {
        text.parse()
    }
}

impl From<ScheduleKind> for String {
    fn from(kind: ScheduleKind) -> Self {
        kind.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for kind in ScheduleKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
            assert_eq!(serde_json::from_str::<ScheduleKind>(&json).unwrap(), kind);
        }
        assert_eq!("interleaved:4".parse(), Ok(ScheduleKind::Interleaved { chunks: 4 }));
        assert_eq!("looped-bfs".parse(), Ok(ScheduleKind::LoopedBfs { chunks: 2 }));
        for bad in ["", "1F1B", "gpipe:2", "interleaved:", "interleaved:0", "interleaved:4096"] {
            let error = bad.parse::<ScheduleKind>().unwrap_err().to_string();
            assert!(error.contains("1f1b, gpipe") && error.contains("interleaved:N"), "{error}");
        }
    }
}
