//! Drift: why a measured step took another time than the predicted one.
//!
//! Nothing is guessed: the plan's programs are simulated again with the measured times of one
//! stage's passes in place of the predicted ones, all else as predicted. What the step becomes by
//! that is the part's share. Shares of single parts do not add up, as a lane that is late for two
//! reasons is late once; that of all work together, of what came before and after it, and the rest
//! (messages, sums, waiting) do: to the measured step.

use super::{Busy, Prediction};
use crate::ids::{LaneId, StageId};
use crate::plan::Plan;
use crate::simulate::{Stuck, replay};
use crate::timeline::{Lane, Timeline, Work};
use crate::units::Nanos;
use thiserror::Error;

/// Why a measured step cannot be compared with a plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DriftError {
    /// Other lanes.
    #[error("the trace has {measured} lanes, the plan {planned}")]
    Lanes {
        /// Of the trace.
        measured: usize,
        /// Of the plan, with all replicas.
        planned: usize,
    },
    /// Another order of work.
    #[error("lane {lane} ran {measured} as its work {number}, the plan has {planned} there")]
    Work {
        /// The lane of the trace.
        lane: LaneId,
        /// Counted from 1.
        number: usize,
        /// What the trace says; `nothing` at its end.
        measured: String,
        /// What the plan says.
        planned: String,
    },
    /// The plan's programs wait for each other.
    #[error(transparent)]
    Stuck(#[from] Stuck),
}

/// A kind of work of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The stage.
    pub stage: StageId,
    /// The kind.
    pub busy: Busy,
}

/// What one piece of such work takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartTimes {
    /// Whose.
    pub part: Part,
    /// Pieces in the step.
    pub count: usize,
    /// Median of the predicted times.
    pub predicted: Nanos,
    /// Median of the measured times.
    pub measured: Nanos,
}

/// What is not work, in nanoseconds by which the step is longer; with the work it adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// All work together, as it was measured.
    pub work: i64,
    /// Before the first work: samples that are waited for, ranks that begin late.
    pub before: i64,
    /// After the last work.
    pub after: i64,
    /// Between: messages, sums, waiting.
    pub between: i64,
}

/// A plan with the times of a measured step beside its own.
#[derive(Clone, Debug)]
pub struct Drift<'a> {
    plan: &'a Plan,
    prediction: &'a Prediction,
    /// By lane of the trace, in the order of the programs.
    work: Vec<Vec<Work>>,
    predicted: Vec<Vec<Nanos>>,
    measured: Vec<Vec<Nanos>>,
    /// The predicted step, as its own times give it.
    base: Nanos,
    step: Nanos,
    before: i64,
    after: i64,
}

impl<'a> Drift<'a> {
    /// Puts the times of `measured` beside those of `prediction`, which is that of `plan`.
    ///
    /// # Errors
    /// When the step was not measured with this plan.
    pub fn new(
        plan: &'a Plan,
        prediction: &'a Prediction,
        measured: &Timeline,
    ) -> Result<Self, DriftError> {
        let (lanes, programs) = (measured.lanes.len(), prediction.programs.len());
        let copies = plan.mesh().copies() as usize;
        if lanes != programs && lanes != programs * copies {
            return Err(DriftError::Lanes { measured: lanes, planned: programs * copies });
        }
        let planned = planned_lanes(&prediction.timeline, programs, lanes);
        for (lane, (ran, planned)) in (0..).map(LaneId).zip(measured.lanes.iter().zip(&planned)) {
            same_work(lane, ran, planned)?;
        }
        let times =
            |lane: &Lane| lane.spans.iter().map(|s| s.end.saturating_sub(s.start)).collect();
        let mut drift = Self {
            plan,
            prediction,
            work: planned.iter().map(|l| l.spans.iter().map(|s| s.work).collect()).collect(),
            predicted: planned.iter().map(|lane| times(lane)).collect(),
            measured: measured.lanes.iter().map(times).collect(),
            base: Nanos::ZERO,
            step: measured.step,
            before: signed(first(measured), first(&prediction.timeline)),
            after: signed(
                measured.step.saturating_sub(last(measured)),
                prediction.timeline.step.saturating_sub(last(&prediction.timeline)),
            ),
        };
        drift.base = drift.step_with(|_| false)?;
        Ok(drift)
    }

    /// The step when the parts that `measured` says take their measured times, the others the
    /// predicted ones. One simulation.
    ///
    /// # Errors
    /// Never, where the plan itself could be predicted.
    pub fn step_with(&self, measured: impl Fn(Part) -> bool) -> Result<Nanos, DriftError> {
        let time = |((work, predicted), real): ((&Work, &Nanos), &Nanos)| {
            if measured(part(*work)) { *real } else { *predicted }
        };
        let lane = |((work, predicted), real): ((&Vec<Work>, &Vec<Nanos>), &Vec<Nanos>)| {
            work.iter().zip(predicted).zip(real).map(time).collect()
        };
        let times: Vec<Vec<Nanos>> =
            self.work.iter().zip(&self.predicted).zip(&self.measured).map(lane).collect();
        let copies = self.plan.copies(&self.prediction.groups);
        let replayed = replay(&self.prediction.programs, &times, &self.plan.cluster, copies)?;
        Ok(replayed.step)
    }

    /// By how many nanoseconds the step is longer because this part's work took what it took.
    ///
    /// # Errors
    /// As [`Self::step_with`].
    pub fn share(&self, part: Part) -> Result<i64, DriftError> {
        Ok(signed(self.step_with(|other| other == part)?, self.base))
    }

    /// What the measured step is made of besides the predicted one.
    ///
    /// # Errors
    /// As [`Self::step_with`].
    pub fn rest(&self) -> Result<Rest, DriftError> {
        let work = signed(self.step_with(|_| true)?, self.base);
        let all = signed(self.step, self.prediction.timeline.step);
        let (before, after) = (self.before, self.after);
        Ok(Rest { work, before, after, between: all - work - before - after })
    }

    /// All parts, ascending.
    pub fn parts(&self) -> Vec<PartTimes> {
        let mut all: Vec<(Part, Nanos, Nanos)> = vec![];
        for ((work, predicted), measured) in
            self.work.iter().zip(&self.predicted).zip(&self.measured)
        {
            let times = predicted.iter().zip(measured);
            all.extend(work.iter().zip(times).map(|(work, (p, m))| (part(*work), *p, *m)));
        }
        all.sort_unstable();
        let times = |of: &[(Part, Nanos, Nanos)]| PartTimes {
            part: of[0].0,
            count: of.len(),
            predicted: median(of.iter().map(|piece| piece.1)),
            measured: median(of.iter().map(|piece| piece.2)),
        };
        all.chunk_by(|a, b| a.0 == b.0).map(times).collect()
    }
}

fn part(work: Work) -> Part {
    let (stage, busy) = Busy::of(work);
    Part { stage, busy }
}

fn signed(new: Nanos, old: Nanos) -> i64 {
    new.0 as i64 - old.0 as i64
}

fn median(times: impl Iterator<Item = Nanos>) -> Nanos {
    let mut times: Vec<Nanos> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn first(timeline: &Timeline) -> Nanos {
    let starts = timeline.lanes.iter().filter_map(|lane| lane.spans.first());
    starts.map(|span| span.start).min().unwrap_or_default()
}

fn last(timeline: &Timeline) -> Nanos {
    let ends = timeline.lanes.iter().flat_map(|lane| &lane.spans).map(|span| span.end);
    ends.max().unwrap_or_default()
}

/// The predicted lane of each of `lanes` of a trace: either may have one replica or all.
fn planned_lanes(predicted: &Timeline, programs: usize, lanes: usize) -> Vec<&Lane> {
    let (shown, ran) = (predicted.lanes.len() / programs.max(1), lanes / programs.max(1));
    (0..lanes).map(|at| &predicted.lanes[at / ran * shown + at % ran % shown]).collect()
}

fn same_work(lane: LaneId, ran: &Lane, planned: &Lane) -> Result<(), DriftError> {
    let longest = ran.spans.len().max(planned.spans.len());
    let work = |lane: &Lane, at: usize| lane.spans.get(at).map(|span| span.work);
    match (0..longest).find(|at| work(ran, *at) != work(planned, *at)) {
        None => Ok(()),
        Some(at) => Err(DriftError::Work {
            lane,
            number: at + 1,
            measured: name(work(ran, at)),
            planned: name(work(planned, at)),
        }),
    }
}

fn name(work: Option<Work>) -> String {
    match work {
        None => "nothing".into(),
        Some(Work::Run(action)) => action.to_string(),
        Some(Work::Optimizer(stage)) => format!("the update of stage {stage}"),
    }
}
