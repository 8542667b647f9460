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
    /// Two flows in opposite directions, forwards overlapped with backwards (DeepSeek-AI 2024).
    DualPipe,
    /// The same with one copy of the weights, in a V.
    DualPipeV,
    /// Two 1F1B pipelines in opposite directions (Li and Hoefler, SC 2021).
    Chimera,
    /// Forth and back through the lanes (Liu et al., SC 2023).
    Hanayo {
        /// How often; a lane has two stages a wave.
        waves: u32,
    },
    /// 1F1B without a flush, weights stashed (Narayanan et al., SOSP 2019).
    PipeDream,
    /// 1F1B without a flush, two versions of the weights (Narayanan et al., ICML 2021).
    PipeDream2Bw,
    /// Zero bubble in 1F1B's memory (Qi et al. 2024).
    ZbH1,
    /// Zero bubble in twice that memory (Qi et al. 2024).
    ZbH2,
    /// Zero bubble with several stages a lane.
    InterleavedZb {
        /// Stages of a lane.
        chunks: u32,
    },
    /// Zero bubble on a V of stages, in 1F1B's memory (Qi et al. 2024).
    ZbV,
    /// The V in half of that memory (Qi et al. 2024, "Controllable Memory").
    VHalf,
    /// The V in a third of that memory (same).
    VMin,
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
    pub const ALL: [ScheduleKind; 17] = [
        ScheduleKind::OneFOneB,
        ScheduleKind::GPipe,
        ScheduleKind::Naive,
        ScheduleKind::Interleaved { chunks: 2 },
        ScheduleKind::LoopedBfs { chunks: 2 },
        ScheduleKind::DualPipe,
        ScheduleKind::DualPipeV,
        ScheduleKind::Chimera,
        ScheduleKind::Hanayo { waves: 2 },
        ScheduleKind::PipeDream,
        ScheduleKind::PipeDream2Bw,
        ScheduleKind::ZbH1,
        ScheduleKind::ZbH2,
        ScheduleKind::InterleavedZb { chunks: 2 },
        ScheduleKind::ZbV,
        ScheduleKind::VHalf,
        ScheduleKind::VMin,
    ];

    /// Those with one stage a lane, for any numbers of stages and micro-batches.
    pub const STRAIGHT: [ScheduleKind; 2] = [ScheduleKind::OneFOneB, ScheduleKind::GPipe];

    fn facts(self) -> Facts {
        let sync = |name, title, number, placement| {
            let updates = Updates::Synchronous;
            Facts { name, title, number, placement, updates }
        };
        let straight = Placement::Loop { chunks: 1 };
        let v = Placement::Wave { chunks: 2 };
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
            ScheduleKind::DualPipe => sync("dualpipe", "DualPipe", None, Placement::TwoWay),
            ScheduleKind::DualPipeV => {
                sync("dualpipev", "DualPipeV", None, Placement::Wave { chunks: 2 })
            }
            ScheduleKind::Chimera => sync("chimera", "Chimera", None, Placement::TwoWay),
            ScheduleKind::Hanayo { waves } => {
                let chunks = 2 * waves;
                sync("hanayo", "Hanayo", Some(waves), Placement::Wave { chunks })
            }
            ScheduleKind::PipeDream => Facts {
                updates: Updates::Stashed,
                ..sync("pipedream", "PipeDream", None, straight)
            },
            ScheduleKind::PipeDream2Bw => Facts {
                updates: Updates::DoubleBuffered,
                ..sync("pipedream-2bw", "PipeDream-2BW", None, straight)
            },
            ScheduleKind::ZbH1 => sync("zb-h1", "ZB-H1", None, straight),
            ScheduleKind::ZbH2 => sync("zb-h2", "ZB-H2", None, straight),
            ScheduleKind::InterleavedZb { chunks } => {
                let place = Placement::Loop { chunks };
                sync("interleaved-zb", "Interleaved zero bubble", Some(chunks), place)
            }
            ScheduleKind::ZbV => sync("zb-v", "ZB-V", None, v),
            ScheduleKind::VHalf => sync("v-half", "V-half", None, v),
            ScheduleKind::VMin => sync("v-min", "V-min", None, v),
        }
    }

    /// The kind with another number, if it has one.
    pub fn with_number(self, number: u32) -> Option<Self> {
        match self {
            ScheduleKind::Interleaved { .. } => Some(ScheduleKind::Interleaved { chunks: number }),
            ScheduleKind::LoopedBfs { .. } => Some(ScheduleKind::LoopedBfs { chunks: number }),
            ScheduleKind::Hanayo { .. } => Some(ScheduleKind::Hanayo { waves: number }),
            ScheduleKind::InterleavedZb { .. } => {
                Some(ScheduleKind::InterleavedZb { chunks: number })
            }
            _ => None,
        }
    }

    /// The number behind its name, if it has one: stages of a lane, or waves.
    pub fn number(self) -> Option<u32> {
        self.facts().number
    }

    /// Whether it is the same kind, with any number.
    pub fn is_like(self, other: ScheduleKind) -> bool {
        self.facts().name == other.facts().name
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
