//! A measured run: the steps of its trace, one of which is looked at.

use crate::base::shared::Shared;
use crate::base::texts::tr;
use pipewright_core::schedule::Action;
use pipewright_core::timeline::{Lane, Span, Timeline, Trace, Work};
use pipewright_core::units::Nanos;
use std::collections::BTreeSet;

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

    /// Why it is no run of a plan, as what its name begins; `None` where it is one.
    pub fn foreign(&self, model: &str, planned: &Timeline) -> Option<String> {
        let (ran, lanes) = (&self.timeline.lanes, planned.lanes.len());
        if self.trace.model != model {
            return Some(tr!(
                "is of {ran}, the plan of {planned}",
                ran = self.trace.model,
                planned = model
            ));
        }
        if ran.len() != lanes {
            return Some(tr!(
                "has {ran} lanes, the plan {planned}",
                ran = ran.len(),
                planned = lanes
            ));
        }
        for (lane, (ran, planned)) in ran.iter().zip(&planned.lanes).enumerate() {
            let [ran, planned] = [ran, planned].map(actions);
            if let Some(action) = ran.iter().find(|action| !planned.contains(action)) {
                return Some(tr!("has {action} on lane {lane}, the plan has not", action, lane));
            }
            if let Some(action) = planned.iter().find(|action| !ran.contains(action)) {
                return Some(tr!("lacks {action} on lane {lane}", action, lane));
            }
        }
        None
    }

    /// The same with updates as a plan has them: see [`Trace::with_updates_of`].
    pub fn with_updates_of(self, planned: &Timeline) -> Self {
        let trace = (*self.trace).clone().with_updates_of(planned);
        let timeline = Shared::new(trace.steps[self.at].timeline.clone());
        Self { trace: Shared::new(trace), timeline, ..self }
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

/// The actions of a lane.
fn actions(lane: &Lane) -> BTreeSet<Action> {
    let run = |span: &Span| match span.work {
        Work::Run(action) => Some(action),
        Work::Optimizer(_) => None,
    };
    lane.spans.iter().filter_map(run).collect()
}

fn median(trace: &Trace) -> Option<usize> {
    let number = trace.median()?.number;
    trace.steps.iter().position(|step| step.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::schedule::ActionKind;
    use pipewright_core::timeline::Step;

    /// A trace of that many lanes, each with a pass of stage `stage`.
    fn trace(model: &str, lanes: u32, stage: u32) -> Measured {
        let lane = |lane: u32| {
            let work = Work::Run(Action::new(lane + stage, ActionKind::Forward, 0));
            Lane { spans: vec![Span { start: Nanos(0), end: Nanos(9), work }], ..Lane::default() }
        };
        let lanes = (0..lanes).map(lane).collect();
        let timeline = Timeline { step: Nanos(9), lanes, ..Timeline::default() };
        let steps = vec![Step { timeline, ..Step::default() }];
        Measured::new(Trace { model: model.into(), steps }, "trace.json").unwrap()
    }

    #[test]
    fn runs_of_other_plans_are_told_apart() {
        let planned = trace("vgg16", 2, 0);
        let why = |other: Measured| other.foreign("vgg16", &planned.timeline);
        assert_eq!(why(trace("vgg16", 2, 0)), None);
        assert_eq!(why(trace("digits-cnn", 2, 0)).unwrap(), "is of digits-cnn, the plan of vgg16");
        assert_eq!(why(trace("vgg16", 3, 0)).unwrap(), "has 3 lanes, the plan 2");
        assert_eq!(why(trace("vgg16", 2, 1)).unwrap(), "has 1F0 on lane 0, the plan has not");
        let mut less = trace("vgg16", 2, 0);
        let mut timeline = (*less.timeline).clone();
        timeline.lanes[1].spans.clear();
        less.timeline = Shared::new(timeline);
        assert_eq!(why(less).unwrap(), "lacks 1F0 on lane 1");
    }

    #[test]
    fn the_warm_up_is_no_median() {
        let step = |(number, length): (u64, u64)| Step {
            number,
            timeline: Timeline { step: Nanos(length), ..Timeline::default() },
            ..Step::default()
        };
        let steps = [(0, 90), (1, 80), (2, 10), (3, 20)].map(step).into();
        let measured = Measured::new(Trace { model: "x".into(), steps }, "trace.json").unwrap();
        assert_eq!(measured.number(), 3);
        let only = Trace { model: "x".into(), steps: [(0, 5)].map(step).into() };
        assert_eq!(Measured::new(only, "x").unwrap().number(), 0, "better than none");
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
