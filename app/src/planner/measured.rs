//! A measured run: the steps of its trace, one of which is looked at.

use crate::base::shared::Shared;
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

fn median(trace: &Trace) -> Option<usize> {
    let number = trace.median()?.number;
    trace.steps.iter().position(|step| step.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::timeline::Step;

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
