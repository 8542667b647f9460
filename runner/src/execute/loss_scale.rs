//! The factor of the loss in half precision, which is found while training.
//!
//! Gradients of activations below 2^-24 are zero in IEEE half precision, so the loss is multiplied before the
//! backward pass and the gradients of parameters, which are f32, divided by the same (Micikevicius et al.
//! 2018, section 3.2). The factor is as large as gradients allow: halved when they are not finite, by a step
//! that changes nothing, and doubled after some that were. The rule and its numbers are PyTorch's
//! `GradScaler`. All ranks see the same gradients judged and so have the same factor without a word.

use serde::{Deserialize, Serialize};

/// The factor, and how it came to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// A power of two.
    pub factor: f32,
    /// Steps in a row whose gradients were finite, since it changed.
    pub good: u32,
}

impl Default for LossScale {
    /// Where training begins.
    fn default() -> Self {
        Self { factor: 65536.0, good: 0 }
    }
}

/// Good steps after which the factor is doubled.
const GROWTH_INTERVAL: u32 = 2000;

impl LossScale {
    /// Counts a step.
    pub fn count(&mut self, skipped: bool) {
        if skipped {
            *self = Self { factor: self.factor * 0.5, good: 0 };
            return;
        }
        self.good += 1;
        if self.good == GROWTH_INTERVAL {
            let doubled = self.factor * 2.0;
            let factor = if doubled.is_finite() { doubled } else { self.factor };
            *self = Self { factor, good: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_slowly_and_falls_at_once() {
        let mut scale = LossScale::default();
        (1..GROWTH_INTERVAL).for_each(|_| scale.count(false));
        assert_eq!(scale, LossScale { factor: 65536.0, good: GROWTH_INTERVAL - 1 });
        scale.count(false);
        assert_eq!(scale, LossScale { factor: 131_072.0, good: 0 });
        scale.count(false);
        scale.count(true);
        scale.count(true);
        assert_eq!(scale, LossScale { factor: 32768.0, good: 0 });
        let mut largest = LossScale { factor: 2.0_f32.powi(127), good: GROWTH_INTERVAL - 1 };
        largest.count(false);
        assert_eq!(largest, LossScale { factor: 2.0_f32.powi(127), good: 0 });
    }
}
