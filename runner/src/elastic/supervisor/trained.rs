//! Training progress, in steps and in samples: where mini-batches change with the size, one does not
//! follow from the other alone.

use super::{Failure, Supervisor};
use crate::checkpoint::{FOLDER, Manifest, name, newest};
use pipewright_core::elastic::Origin;

/// Which samples steps took, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples {
    /// A moment of which both are known.
    known: Origin,
    /// Samples of a step around then.
    mini_batch: u64,
}

impl Samples {
    /// Of a job that begins, by mini-batches of so many.
    pub fn new(mini_batch: u64) -> Self {
        Self { known: Origin::default(), mini_batch }
    }

    /// Samples of the first `step` steps.
    pub fn of(&self, step: u64) -> u64 {
        let Origin { step: known, samples } = self.known;
        let between = known.abs_diff(step).saturating_mul(self.mini_batch);
        if step < known { samples.saturating_sub(between) } else { samples.saturating_add(between) }
    }

    /// Both are known again.
    pub fn know(&mut self, trained: Origin) {
        self.known = trained;
    }

    /// After `step` steps go on those of `mini_batch` samples.
    pub fn go_on(&mut self, step: u64, mini_batch: u64) {
        *self = Self { known: Origin { step, samples: self.of(step) }, mini_batch };
    }
}

impl Supervisor<'_> {
    /// Steps whose state is kept, in memory or on the disk. What is new in it is remembered.
    pub(super) fn kept(&mut self) -> Result<u64, Failure> {
        let folders = [self.job.session.state(), self.job.out.join(FOLDER)];
        let mut most = None;
        for folder in folders {
            let found = newest(&folder).map_err(|e| Failure::usage(e.to_string()))?;
            most = most.max(found.map(|step| (step, folder)));
        }
        let Some((step, folder)) = most else { return Ok(0) };
        // One that is damaged is passed over by the ranks, who say where they begin.
        if step > self.committed
            && let Ok(manifest) = Manifest::read(&folder.join(name(step)))
        {
            self.samples.know(manifest.origin());
        }
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_other_sizes_do_not_add_up() {
        let mut samples = Samples::new(32);
        assert_eq!(samples.of(10), 320);
        samples.go_on(10, 16);
        assert_eq!((samples.of(10), samples.of(14)), (320, 384));
        samples.know(Origin { step: 20, samples: 480 });
        assert_eq!(samples.of(14), 384);
        // Ten steps were lost with their state.
        samples.know(Origin { step: 4, samples: 128 });
        assert_eq!((samples.of(4), samples.of(6)), (128, 160));
        samples.go_on(6, 64);
        assert_eq!(samples.of(7), 224);
    }
}
