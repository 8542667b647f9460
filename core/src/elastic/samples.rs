//! The samples of a step after steps with mini-batches of other sizes.
//!
//! Training reads one endless sequence of samples, a permutation of all of them after another
//! ("epoch"). As long as the mini-batch stays, step s begins at position s · b. When it changes,
//! a position follows from the number of samples before: each generation begins at an [`Origin`],
//! where the one before it ended, so that no position is left out and none is taken twice, whatever
//! the sizes were. Which replica takes which places of a mini-batch changes nothing of that.

use serde::{Deserialize, Serialize};

/// Where a generation begins: what a checkpoint knows of the sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Steps before it.
    pub step: u64,
    /// Samples that they took.
    pub samples: u64,
}

impl Origin {
    /// Position in the sequence of `place` of mini-batch `step`; none before the origin. In 128
    /// bits, so that nothing overflows.
    pub fn position(self, mini_batch: u64, step: u64, place: u64) -> Option<u128> {
        let steps = u128::from(step.checked_sub(self.step)?);
        Some(u128::from(self.samples) + steps * u128::from(mini_batch) + u128::from(place))
    }

    /// The origin of a generation that begins after `step` steps in all, this one's of
    /// `mini_batch` samples each. A step that was not committed is not counted: its samples are
    /// the next generation's first.
    pub fn after(self, mini_batch: u64, step: u64) -> Self {
        let samples = step.saturating_sub(self.step).saturating_mul(mini_batch);
        Self { step: step.max(self.step), samples: self.samples.saturating_add(samples) }
    }

    /// Steps in all when training ends after `samples_total` samples; the last one may take a few
    /// more.
    pub fn steps(self, mini_batch: u64, samples_total: u64) -> u64 {
        let left = samples_total.saturating_sub(self.samples);
        self.step.saturating_add(left.div_ceil(mini_batch.max(1)))
    }

    /// The step at which a training by mini-batches of `planned` samples alone would be now: courses
    /// of the learning rate are written in such steps.
    pub fn planned_step(self, mini_batch: u64, step: u64, planned: u64) -> u64 {
        self.after(mini_batch, step).samples / planned.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_changes_it_is_what_it_was() {
        assert_eq!(Origin::default().position(32, 7, 3), Some(7 * 32 + 3));
        let resumed = Origin { step: 5, samples: 160 };
        assert_eq!(resumed.position(32, 7, 3), Some(7 * 32 + 3));
        assert_eq!((resumed.position(32, 4, 0), resumed.planned_step(32, 7, 32)), (None, 7));
        let far = Origin { step: 0, samples: u64::MAX };
        assert!(far.position(u64::MAX, u64::MAX, u64::MAX).is_some());
        assert_eq!(far.after(u64::MAX, u64::MAX).samples, u64::MAX);
    }

    #[test]
    fn half_of_the_steps_by_twice_the_samples() {
        let grown = Origin::default().after(32, 10);
        assert_eq!(grown, Origin { step: 10, samples: 320 });
        assert_eq!((grown.steps(64, 640), grown.steps(48, 640)), (15, 17));
        assert_eq!(grown.planned_step(64, 12, 32), 14);
    }

    proptest! {
        /// Generations of any sizes, each with a step in flight that is thrown away.
        #[test]
        fn every_position_is_taken_once(
            generations in prop::collection::vec((1u64..40, 0u64..9), 1..9),
        ) {
            let mut origin = Origin::default();
            let mut taken = vec![];
            for (mini_batch, steps) in generations {
                let end = origin.step + steps;
                for step in origin.step..end {
                    let place = |place| origin.position(mini_batch, step, place).unwrap();
                    taken.extend((0..mini_batch).map(place));
                }
                origin = origin.after(mini_batch, end);
            }
            let all = u128::from(origin.samples);
            prop_assert!(taken.into_iter().eq(0..all));
        }
    }
}
