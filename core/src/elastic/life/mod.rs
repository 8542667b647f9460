//! The life of an elastic job: who was there, what ran, how far it came.
//!
//! One type for lives that are imagined ([`live`]) and lives that were recorded ([`Life::read`]), as
//! timelines are for steps: what eChainer's figures 5 to 7 show of a job follows from either.

mod line;
mod records;
mod run;
#[cfg(test)]
mod tests;

pub use line::{Event, Line};
pub use records::RecordError;
pub use run::{Incident, Job, Pauses, What, live};

use super::{Member, Occasion, Verdict};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// What became of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Life {
    /// Samples of an epoch.
    pub samples_epoch: u64,
    /// Samples of the whole training.
    pub samples_total: u64,
    /// Who was there, from each moment on.
    pub members: Vec<(Nanos, Vec<Member>)>,
    /// What the policy answered.
    pub asked: Vec<Asked>,
    /// What ran, in order.
    pub generations: Vec<Generation>,
    /// How it ended; none: it goes on.
    pub end: Option<End>,
    /// The last moment that is known.
    pub until: Nanos,
}

/// A question to the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When.
    pub at: Nanos,
    /// Why.
    pub occasion: Occasion,
    /// The answer.
    pub verdict: Verdict,
}

/// Ranks that trained together.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// From 1.
    pub number: u64,
    /// Who ran its ranks.
    pub members: Vec<Member>,
    /// How many there were.
    pub ranks: u32,
    /// Copies of the pipeline.
    pub replicas: u32,
    /// Samples of a step.
    pub mini_batch: u64,
    /// What the learning rate is multiplied by for that, where records say it.
    pub rate_factor: Option<f64>,
    /// When it was launched.
    pub launched: Nanos,
    /// When its first step began; none: it never came to that.
    pub training: Option<Nanos>,
    /// Steps that were committed before it.
    pub first_step: u64,
    /// Samples of those.
    pub first_sample: u64,
    /// Moments and the steps that were committed until then, ascending.
    pub points: Vec<(Nanos, u64)>,
    /// The newest step that it began or said to be trained, as far as is known; what is beyond its
    /// last committed one is lost.
    pub reached: u64,
    /// Time from the loss before until it trained; none: it began for another reason.
    pub recovered: Option<Nanos>,
    /// When and why it ended; none: it goes on.
    pub ended: Option<(Nanos, Cause)>,
    /// What it lost, where it ended by that.
    pub loss: Option<Loss>,
}

/// What a generation ended by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Whose end it began with, where it was one rank's.
    pub rank: Option<u32>,
    /// Time until it was known, where the moment is known.
    pub detected: Option<Nanos>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Training is done.
    Done,
    /// A rank ended.
    RankLost,
    /// A rank gave no sign of life.
    RankSilent,
    /// No step came to an end.
    Hung,
    /// A member is gone.
    MemberLost,
    /// Another size takes its place.
    Reconfigured,
    /// Somebody stopped it.
    Stopped,
    /// It failed by itself, or the policy ended the job.
    Failed,
    /// What a newer runner says.
    #[serde(other)]
    Unknown,
}

impl Cause {
    /// Whether somebody was lost by it.
    pub fn is_loss(self) -> bool {
        matches!(self, Cause::RankLost | Cause::RankSilent | Cause::Hung | Cause::MemberLost)
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Training is done.
    Done,
    /// The reason.
    Failed(String),
}

impl Generation {
    /// Steps that were committed when it ended, those before it included.
    pub fn last_step(&self) -> u64 {
        self.points.last().map_or(self.first_step, |(_, step)| *step)
    }

    /// Samples that were used when it ended.
    pub fn last_sample(&self) -> u64 {
        self.samples_at(self.last_step())
    }

    fn samples_at(&self, step: u64) -> u64 {
        let steps = step.saturating_sub(self.first_step);
        self.first_sample.saturating_add(steps.saturating_mul(self.mini_batch))
    }

    /// Time in which its committed steps were trained.
    pub fn trained(&self) -> Nanos {
        let last = self.points.last().map(|(at, _)| *at);
        last.zip(self.training).map_or(Nanos::ZERO, |(end, begin)| end.saturating_sub(begin))
    }

    /// Samples a second, of what was committed.
    pub fn throughput(&self) -> Option<f64> {
        let seconds = self.trained().secs();
        // Records know when the first step ended, not when it began.
        let first = self.points.first().filter(|(at, _)| Some(*at) == self.training);
        let first = first.map_or(self.first_sample, |(_, step)| self.samples_at(*step));
        (seconds > 0.0).then(|| self.last_sample().saturating_sub(first) as f64 / seconds)
    }
}

impl Life {
    /// Epochs over time, a line from point to point: level while nothing is trained.
    pub fn epochs(&self) -> Vec<(Nanos, f64)> {
        let epoch = |samples: u64| samples as f64 / self.samples_epoch.max(1) as f64;
        let mut line = vec![(Nanos::ZERO, 0.0)];
        for generation in &self.generations {
            line.extend(generation.training.map(|at| (at, epoch(generation.first_sample))));
            let points = generation.points.iter();
            line.extend(points.map(|(at, step)| (*at, epoch(generation.samples_at(*step)))));
        }
        line.push((self.until, epoch(self.samples())));
        line
    }

    /// Samples that were used.
    pub fn samples(&self) -> u64 {
        self.generations.last().map_or(0, Generation::last_sample)
    }

    /// Steps that were committed.
    pub fn steps(&self) -> u64 {
        self.generations.last().map_or(0, Generation::last_step)
    }

    /// Steps that were begun or trained and had to be trained again.
    pub fn steps_lost(&self) -> u64 {
        let next = self.generations.iter().skip(1).map(|generation| Some(generation.first_step));
        let lost = self.generations.iter().zip(next.chain([None])).map(|(generation, next)| {
            generation.reached.saturating_sub(next.unwrap_or(generation.last_step()))
        });
        lost.fold(0, u64::saturating_add)
    }

    /// Share of the time in which what counts was trained, 0 to 1.
    pub fn goodput(&self) -> f64 {
        let trained: Nanos = self.generations.iter().map(Generation::trained).sum();
        if self.until == Nanos::ZERO { 0.0 } else { trained.secs() / self.until.secs() }
    }

    /// When it ends if it goes on as now; none while nothing is trained.
    pub fn expected_end(&self) -> Option<Nanos> {
        if self.end == Some(End::Done) {
            return Some(self.until);
        }
        let running = self.generations.last().filter(|g| g.ended.is_none())?;
        let left = self.samples_total.saturating_sub(self.samples());
        let since = running.points.last().map_or(running.training?, |(at, _)| *at);
        Some(since + Nanos::from_secs(left as f64 / running.throughput()?))
    }
}
