//! Reason of a step's length: why its lanes are idle, in parts that add up.
//!
//! No lane can be done before the busiest one, so what a lane works less than that is idle whatever the
//! order: its *imbalance*. The rest is what the busiest lane itself is idle for ([`idle`]). For the idlest lane
//! of a step both together are its whole idle time, and a sentence of them holds for any timeline, predicted or
//! measured.

use super::causes::Arrivals;
use super::{Idle, Timeline, idle};
use crate::ids::LaneId;
use crate::order::{descending, sort_by_numbers};
use crate::units::Nanos;
use std::fmt;

/// Why a step takes longer than its lanes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The step.
    pub step: Nanos,
    /// How many lanes there are.
    pub lanes: usize,
    /// The lane that works least; of equal ones the first.
    pub idlest: LaneId,
    /// The lane that works most; of equal ones the first.
    pub busiest: LaneId,
    /// What the idlest lane works.
    pub least: Nanos,
    /// What the busiest lane works.
    pub most: Nanos,
    /// What the busiest lane is idle for.
    pub idle: Idle,
}

/// Something that keeps a lane idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The pipeline fills and drains.
    Ramps,
    /// The lane has less work than the busiest one.
    Imbalance,
    /// Messages between stages.
    Messages,
    /// Sums of gradients over replicas.
    Sums,
    /// Others' work in the steady state.
    Stalls,
    /// Samples.
    Input,
    /// What a trace does not tell.
    Other,
}

/// A part of the idlest lane's idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePart {
    /// What for.
    pub why: Why,
    /// How long.
    pub time: Nanos,
    /// In hundredths of the step, rounded so that all parts add up to [`Reason::percent`].
    pub percent: u32,
}

/// The reason of a step's length; none without lanes. Linear in the spans of the busiest lane and their causes.
pub fn reason(timeline: &Timeline, arrivals: &Arrivals) -> Option<Reason> {
    let work = || timeline.lanes.iter().map(super::Lane::busy).enumerate();
    let (idlest, least) = work().min_by_key(|(_, busy)| *busy)?;
    let (busiest, most) = work().max_by_key(|(lane, busy)| (*busy, usize::MAX - lane))?;
    Some(Reason {
        step: timeline.step,
        lanes: timeline.lanes.len(),
        idlest: LaneId(idlest as u32),
        busiest: LaneId(busiest as u32),
        least,
        most,
        idle: idle(timeline, arrivals, busiest),
    })
}

impl Reason {
    /// Idle time of the idlest lane.
    pub fn total(&self) -> Nanos {
        self.step.saturating_sub(self.least)
    }

    /// The same in hundredths of the step, rounded.
    pub fn percent(&self) -> u32 {
        ((200 * self.total().0 + self.step.0) / (2 * self.step.0).max(1)) as u32
    }

    /// What the idlest lane is idle for, the longest first, without what takes no time.
    pub fn parts(&self) -> Vec<IdlePart> {
        let Idle { stall, messages, sums, input, other, .. } = self.idle;
        let times = [
            (Why::Ramps, self.idle.ramps()),
            (Why::Imbalance, self.most.saturating_sub(self.least)),
            (Why::Messages, messages),
            (Why::Sums, sums),
            (Why::Stalls, stall),
            (Why::Input, input),
            (Why::Other, other),
        ];
        let mut parts: Vec<IdlePart> = times
            .into_iter()
            .filter(|(_, time)| *time > Nanos::ZERO)
            .map(|(why, time)| IdlePart { why, time, percent: (100 * time.0 / self.step.0) as u32 })
            .collect();
        // The largest remainders are rounded up, as many as are missing.
        let floors: u32 = parts.iter().map(|part| part.percent).sum();
        let missing = self.percent().saturating_sub(floors) as usize;
        let over = |part: &IdlePart| (100 * part.time.0) % self.step.0;
        sort_by_numbers(&mut parts, |part| [descending(over(part)), 0]);
        parts.iter_mut().take(missing).for_each(|part| part.percent += 1);
        sort_by_numbers(&mut parts, |part| [descending(part.time.0), part.why as u64]);
        parts
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.percent() == 0 {
            return f.write_str("every lane works all the time");
        }
        write!(f, "lane {} is idle {} % of the step", self.idlest, self.percent())?;
        let parts = self.parts().into_iter().filter(|part| part.percent > 0);
        for (at, part) in parts.enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}{} % ", part.percent)?;
            match part.why {
                Why::Imbalance => write!(f, "less work than lane {}", self.busiest)?,
                why => write!(f, "{why}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Ramps => "fill and drain",
            Why::Imbalance => "less work",
            Why::Messages => "messages",
            Why::Sums => "gradient sums",
            Why::Stalls => "waits for other lanes",
            Why::Input => "input",
            Why::Other => "not in the trace",
        })
    }
}
