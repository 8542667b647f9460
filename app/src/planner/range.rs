//! A stretch of a step: what each lane does in it.

use pipewright_core::timeline::{Lane, Timeline};
use pipewright_core::units::Nanos;
use std::ops::Range;

/// From one moment to another, and how long each lane works between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub from: Nanos,
    pub to: Nanos,
    pub lanes: Vec<Nanos>,
}

impl TimeRange {
    /// What is inside of the step of a stretch in nanoseconds.
    pub fn new(timeline: &Timeline, range: Range<f64>) -> Self {
        let inside = |moment: f64| Nanos((moment.max(0.0) as u64).min(timeline.step.0));
        let (from, to) = (inside(range.start), inside(range.end));
        let lanes = timeline.lanes.iter().map(|lane| busy(lane, from, to)).collect();
        Self { from, to, lanes }
    }

    pub fn length(&self) -> Nanos {
        self.to - self.from
    }

    /// What all lanes work together.
    pub fn busy(&self) -> Nanos {
        Nanos(self.lanes.iter().map(|busy| busy.0).sum())
    }

    /// What all lanes wait together.
    pub fn idle(&self) -> Nanos {
        Nanos(self.length().0 * self.lanes.len() as u64 - self.busy().0)
    }

    /// The share of the stretch that a lane's work is.
    pub fn share(&self, busy: Nanos) -> f64 {
        busy.0 as f64 / self.length().0.max(1) as f64
    }

    /// The same of all lanes.
    pub fn mean(&self) -> f64 {
        self.share(self.busy()) / self.lanes.len().max(1) as f64
    }
}

fn busy(lane: &Lane, from: Nanos, to: Nanos) -> Nanos {
    let first = lane.spans.partition_point(|span| span.end <= from);
    let inside = lane.spans[first..].iter().take_while(|span| span.start < to);
    Nanos(inside.map(|span| span.end.min(to).0 - span.start.max(from).0).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::presets::first;

    #[test]
    fn the_whole_step_has_the_lanes_work_and_halves_add_up_to_it() {
        let inputs = first();
        let timeline = solve(&inputs, &Ground::of(&inputs)).unwrap().timeline;
        let all = TimeRange::new(&timeline, -5.0..1e18);
        assert_eq!((all.from, all.to), (Nanos::ZERO, timeline.step));
        for (lane, busy) in timeline.lanes.iter().zip(&all.lanes) {
            assert_eq!(lane.busy(), *busy);
        }
        assert_eq!(all.busy().0 + all.idle().0, timeline.step.0 * timeline.lanes.len() as u64);
        assert!((all.mean() - (1.0 - timeline.bubble())).abs() < 1e-9);
        let middle = timeline.step.0 as f64 * 0.437;
        let halves = [0.0..middle, middle..1e18].map(|half| TimeRange::new(&timeline, half));
        assert_eq!(halves[0].busy().0 + halves[1].busy().0, all.busy().0);
        assert_eq!(TimeRange::new(&timeline, middle..middle).busy(), Nanos::ZERO);
    }
}
