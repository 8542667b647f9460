//! All that a policy is told, as plain data.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// A node, or a part of one, that offers to run ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Unique among the members of a job.
    pub name: String,
    /// Ranks that it can run at a time.
    pub slots: u32,
}

impl Member {
    /// A member with so many slots.
    pub fn new(name: impl Into<String>, slots: u32) -> Self {
        Self { name: name.into(), slots }
    }
}

/// Why a policy is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// The job begins.
    #[default]
    Started,
    /// A member came.
    Joined,
    /// A member said that it goes.
    Left,
    /// A member is gone without a word.
    Lost,
    /// Nothing happened, time went by.
    Timer,
}

/// What the plan's author wants, in ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Fewest that the plan can be divided over.
    pub least: u32,
    /// Most that it can use.
    pub most: u32,
    /// As many as the plan was made for.
    pub asked: u32,
}

/// How far training is. Counted in samples, because steps of different sizes do not add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Optimizer steps that were committed.
    pub step: u64,
    /// Samples that they used.
    pub samples: u64,
    /// Samples of the whole training.
    pub samples_total: u64,
    /// Samples of an epoch.
    pub samples_epoch: u64,
}

impl Progress {
    /// Share of the work that is done, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.samples >= self.samples_total {
            return 1.0;
        }
        self.samples as f64 / self.samples_total as f64
    }

    /// Epochs that are complete.
    pub fn epoch(&self) -> u64 {
        self.samples.checked_div(self.samples_epoch).unwrap_or(0)
    }

    /// Steps that remain, of `mini_batch` samples each.
    pub fn steps_left(&self, mini_batch: u64) -> u64 {
        self.samples_total.saturating_sub(self.samples).div_ceil(mini_batch.max(1))
    }
}

/// One way to run on members that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Ranks that it takes.
    pub ranks: u32,
    /// Copies of the pipeline.
    pub replicas: u32,
    /// Samples of an optimizer step.
    pub mini_batch: u64,
    /// Predicted time of a step, where there is a prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ns: Option<Nanos>,
}

impl Size {
    /// Replicas of one rank each, without a prediction.
    pub fn ranks(ranks: u32, mini_batch: u64) -> Self {
        Self { ranks, replicas: ranks, mini_batch, step_ns: None }
    }
}

/// All that a policy is told. The same facts give the same verdict, whenever and however often
/// it is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Why it is asked.
    pub occasion: Occasion,
    /// Whether no generation has run yet.
    pub initial: bool,
    /// Who is there, ascending by name.
    pub members: Vec<Member>,
    /// Who is or was in the generation that runs or ran last; none at first.
    pub running: Vec<Member>,
    /// Ranks of that generation; 0 at first.
    pub running_ranks: u32,
    /// Ways to run on the members, ascending by ranks; the last is what the planner would take.
    pub sizes: Vec<Size>,
    /// What the plan's author wants.
    pub limits: Limits,
    /// How far training is.
    pub progress: Progress,
    /// Measured time of a step of the generation that runs or ran last.
    pub step_ns: Option<Nanos>,
    /// Time since the job began, waiting included.
    pub elapsed_ns: Nanos,
    /// Time until somebody else ends the job, such as the limit of a batch queue; none: no limit.
    pub left_ns: Option<Nanos>,
    /// Number of the generation that runs or ran last; 0 at first.
    pub generation: u64,
    /// Generations that ended by a loss.
    pub restarts: u32,
}

impl Facts {
    /// A job that begins, without members: `asked` ranks, `steps` steps of `mini_batch` samples in
    /// one epoch.
    pub fn initial(asked: u32, steps: u64, mini_batch: u64) -> Self {
        let samples = steps.saturating_mul(mini_batch);
        Self {
            occasion: Occasion::Started,
            initial: true,
            members: vec![],
            running: vec![],
            running_ranks: 0,
            sizes: vec![],
            limits: Limits { least: 1, most: asked, asked },
            progress: Progress {
                samples_total: samples,
                samples_epoch: samples,
                step: 0,
                samples: 0,
            },
            step_ns: None,
            elapsed_ns: Nanos::ZERO,
            left_ns: None,
            generation: 0,
            restarts: 0,
        }
    }

    /// Ranks that the members can run together.
    pub fn slots(&self) -> u32 {
        self.members.iter().fold(0, |sum: u32, member| sum.saturating_add(member.slots))
    }

    /// The largest size of at most so many ranks.
    pub fn largest(&self, ranks: u32) -> Option<&Size> {
        self.sizes.iter().rev().find(|size| size.ranks <= ranks)
    }

    /// Time that the rest of the training takes in this size: predicted, or measured where the
    /// size is the one that ran. None: nobody knows.
    pub fn time_left(&self, size: &Size) -> Option<Nanos> {
        let measured = self.step_ns.filter(|_| size.ranks == self.running_ranks);
        let step = measured.or(size.step_ns)?;
        Some(step * self.progress.steps_left(size.mini_batch))
    }

    /// The same facts, as if no size had more ranks than this.
    pub(super) fn within(&self, ranks: u32) -> Self {
        let sizes = self.sizes.iter().filter(|size| size.ranks <= ranks).copied().collect();
        Self { sizes, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_samples() {
        let progress = Progress { step: 3, samples: 96, samples_total: 320, samples_epoch: 40 };
        assert_eq!((progress.share(), progress.epoch()), (0.3, 2));
        assert_eq!((progress.steps_left(32), progress.steps_left(64)), (7, 4));
        let nothing = Progress::default();
        assert_eq!((nothing.share(), nothing.epoch(), nothing.steps_left(0)), (1.0, 0, 0));
    }

    #[test]
    fn what_was_measured_counts_more_than_what_was_predicted() {
        let mut facts = Facts::initial(4, 100, 8);
        facts.sizes = vec![Size { step_ns: Some(Nanos(5)), ..Size::ranks(2, 8) }];
        assert_eq!(facts.time_left(&facts.sizes[0]), Some(Nanos(500)));
        (facts.step_ns, facts.running_ranks) = (Some(Nanos(7)), 2);
        assert_eq!(facts.time_left(&facts.sizes[0]), Some(Nanos(700)));
        assert_eq!(facts.time_left(&Size::ranks(4, 8)), None);
        assert_eq!((facts.largest(1), facts.largest(9)), (None, Some(&facts.sizes[0])));
    }

    #[test]
    fn facts_are_plain_data() {
        let mut facts = Facts::initial(4, 100, 8);
        facts.members = vec![Member::new("a", 2), Member::new("b", u32::MAX)];
        facts.sizes = vec![Size::ranks(2, 8)];
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), facts);
        assert_eq!(facts.slots(), u32::MAX, "no overflow");
    }
}
