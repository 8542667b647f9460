//! A measured run: the steps of its trace, one of which is looked at.

use crate::base::shared::Shared;
use pipewright_core::timeline::causes::{self, Arrivals};
use pipewright_core::timeline::{Timeline, Trace};
use pipewright_core::units::Nanos;

/// A trace that was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub trace: Shared<Trace>,
    /// The index of the step that is looked at.
    pub at: usize,
    /// That step.
    pub timeline: Shared<Timeline>,
    pub name: String,
}

impl Measured {
    /// A trace at the step whose duration is the median; `None` where it has no step.
    pub fn new(trace: Trace, name: &str) -> Option<Self> {
        let at = median(&trace)?;
        let timeline = Shared::new(trace.steps[at].timeline.clone());
        Some(Self { trace: Shared::new(trace), at, timeline, name: name.into() })
    }

    /// The same at another of its steps.
    pub fn at_step(&self, at: usize) -> Self {
        let at = at.min(self.trace.steps.len() - 1);
        if at == self.at {
            return self.clone();
        }
        let timeline = Shared::new(self.trace.steps[at].timeline.clone());
        Self { at, timeline, ..self.clone() }
    }

    /// The index of the median step.
    pub fn median(&self) -> usize {
        median(&self.trace).unwrap_or(0)
    }

    /// The number of the step in its run.
    pub fn number(&self) -> u64 {
        self.trace.steps[self.at].number
    }

    /// What each step took.
    pub fn durations(&self) -> Vec<Nanos> {
        self.trace.steps.iter().map(|step| step.timeline.step).collect()
    }
}

/// The critical path of a measured step. A receiver that is busy takes a message when it is free, however
/// long it has been there: what was sent before that was not waited for.
pub fn critical_path(timeline: &Timeline) -> Vec<(usize, usize)> {
    let mut there = timeline.clone();
    for message in &mut there.messages {
        let Some(lane) = timeline.lanes.get(message.to.index()) else { continue };
        let next = lane.spans.partition_point(|span| span.start < message.received);
        let free = next.checked_sub(1).map_or(Nanos::ZERO, |before| lane.spans[before].end);
        if message.sent <= free {
            message.received = message.received.min(free);
        }
    }
    causes::critical_path(&there, &Arrivals::new(&there))
}

fn median(trace: &Trace) -> Option<usize> {
    let number = trace.median()?.number;
    trace.steps.iter().position(|step| step.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::first;
    use crate::planner::ready::Ready;
    use pipewright_core::timeline::Step;

    #[test]
    fn a_busy_receiver_has_not_waited_for_what_lay_there() {
        let mut taken = Ready::new(&first()).unwrap().prediction.timeline;
        let own = causes::critical_path(&taken, &Arrivals::new(&taken));
        let idle = |timeline: &Timeline, path: &[(usize, usize)]| {
            let span = |(lane, index): (usize, usize)| timeline.lanes[lane].spans[index];
            path.windows(2).map(|w| span(w[1]).start.saturating_sub(span(w[0]).end).0).sum::<u64>()
        };
        let before = idle(&taken, &own);
        // As a runner measures: a message is received when its receiver comes for it, and that takes
        // a moment of its own.
        for span in taken.lanes.iter_mut().flat_map(|lane| &mut lane.spans) {
            span.start += Nanos(((span.end - span.start).0 / 2).min(1000));
        }
        for message in &mut taken.messages {
            let spans = &taken.lanes[message.to.index()].spans;
            let next = spans.partition_point(|span| span.start < message.received);
            message.received = spans.get(next).map_or(message.received, |span| span.start);
        }
        let naive = idle(&taken, &causes::critical_path(&taken, &Arrivals::new(&taken)));
        let path = idle(&taken, &critical_path(&taken));
        assert!(naive * 2 > before * 3 && path * 100 < before * 101, "{before}, {naive}, {path}");
    }

    #[test]
    fn it_begins_at_the_median_and_goes_where_it_is_told() {
        let step = |(number, length): (u64, u64)| Step {
            number,
            timeline: Timeline { step: Nanos(length), ..Timeline::default() },
            ..Step::default()
        };
        let steps = [(7, 30), (8, 10), (9, 20)].map(step).into();
        let measured = Measured::new(Trace { model: "x".into(), steps }, "trace.json").unwrap();
        assert_eq!((measured.number(), measured.timeline.step), (9, Nanos(20)));
        let first = measured.at_step(0);
        assert_eq!((first.number(), first.timeline.step, first.median()), (7, Nanos(30), 2));
        assert_eq!(measured.at_step(99).at, 2);
        assert_eq!(measured.durations(), [Nanos(30), Nanos(10), Nanos(20)]);
        assert_eq!(Measured::new(Trace::default(), "x"), None);
    }
}
