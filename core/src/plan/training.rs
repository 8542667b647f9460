//! Settings of training beyond the optimizer: the learning-rate schedule, clipping, batch
//! normalisation's statistics, number formats.

use super::optimizer::Range;
use crate::graph::Precision;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a plan file may leave out; then everything is as plain training has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Training {
    /// How the learning rate changes from step to step.
    #[serde(skip_serializing_if = "is_default")]
    pub rate: RateSchedule,
    /// Largest length of the gradient of all parameters together; a longer one is shortened to it.
    #[serde(skip_serializing_if = "is_default")]
    pub clip_norm: Option<f32>,
    /// When running statistics change.
    #[serde(skip_serializing_if = "is_default")]
    pub batch_norm: BatchNorm,
    /// How activations and their gradients are stored.
    #[serde(skip_serializing_if = "is_default")]
    pub precision: Precision,
    /// A step whose gradients are not finite changes nothing; so many in a row end the run. Without it
    /// they are applied, and training ends by its loss.
    #[serde(skip_serializing_if = "is_default")]
    pub skip_nonfinite: Option<u32>,
}

/// Whether a field need not be written.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The learning rate of each step, from the optimizer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RateSchedule {
    /// How it falls after the warm-up.
    #[serde(skip_serializing_if = "is_default")]
    pub decay: Decay,
    /// Steps in which it rises linearly to its full value; step i has (i + 1) / warmup of it.
    #[serde(skip_serializing_if = "is_default")]
    pub warmup: u64,
    /// The linear scaling rule (Goyal et al. 2017): the optimizer's rate is for mini-batches of so
    /// many samples and is multiplied by `mini_batch / base_batch`.
    #[serde(skip_serializing_if = "is_default")]
    pub base_batch: Option<u64>,
}

/// How the learning rate falls; steps count from the end of the warm-up. Prints and parses as
/// `constant`, `step:every=30,factor=0.1`, `cosine:floor=0.0001`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Decay {
    /// Not at all.
    #[default]
    Constant,
    /// Multiplied by `factor` every so many steps, PyTorch's `StepLR`.
    Step {
        /// Steps at one rate.
        every: u64,
        /// Ratio of a rate to the one before it.
        factor: f32,
    },
    /// Along half a cosine, down to `floor` where the plan ends, PyTorch's
    /// `CosineAnnealingLR` (Loshchilov and Hutter 2017).
    Cosine {
        /// The last rate.
        floor: f32,
    },
}

/// When batch normalisation's running statistics change. Each micro-batch is always normalised by
/// its own statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BatchNorm {
    /// With every micro-batch, by its statistics.
    #[default]
    PerMicroBatch,
    /// Once a step, by the statistics of the whole mini-batch, as in torchgpipe's
    /// `DeferredBatchNorm`: what training without micro-batches would give.
    Deferred,
}

/// Steps in a row after which no smaller factor of the loss helps: from 2^16 down to 2^-16.
const HALVINGS: u32 = 32;

impl Training {
    /// The first number out of range: its field, its value, what may stand there.
    pub(super) fn wrong_number(&self) -> Option<(&'static str, String, &'static str)> {
        let check = |field, value: f32, range: Range| {
            (!range.holds(value)).then(|| (field, value.to_string(), range.must()))
        };
        let decay = match self.rate.decay {
            Decay::Constant => None,
            Decay::Step { every: 0, .. } => {
                Some(("training.rate.decay.every", "0".into(), "at least 1"))
            }
            Decay::Step { factor, .. } => {
                check("training.rate.decay.factor", factor, Range::NotNegative)
            }
            Decay::Cosine { floor } => {
                check("training.rate.decay.floor", floor, Range::NotNegative)
            }
        };
        let base = (self.rate.base_batch == Some(0))
            .then(|| ("training.rate.base_batch", "0".into(), "at least 1"));
        let clip = self.clip_norm.and_then(|n| check("training.clip_norm", n, Range::Positive));
        let skip = (self.skip_nonfinite == Some(0))
            .then(|| ("training.skip_nonfinite", "0".into(), "at least 1"));
        decay.or(base).or(clip).or(skip)
    }

    /// Whether all ranks look at the whole gradient together before they apply it.
    pub fn judges_gradients(&self) -> bool {
        self.clip_norm.is_some() || self.skips().is_some()
    }

    /// A step whose gradients are not finite changes nothing, and so many in a row end the run; none
    /// where they are applied. Where the loss is scaled its factor finds its size by such steps.
    pub fn skips(&self) -> Option<u32> {
        let tried = self.precision.scales_loss().then_some(HALVINGS);
        self.skip_nonfinite.or(tried)
    }
}

impl fmt::Display for Decay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decay::Constant => write!(f, "constant"),
            Decay::Step { every, factor } => write!(f, "step:every={every},factor={factor}"),
            Decay::Cosine { floor } if *floor == 0.0 => write!(f, "cosine"),
            Decay::Cosine { floor } => write!(f, "cosine:floor={floor}"),
        }
    }
}

impl FromStr for Decay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || {
            format!(
                "`{text}` is no course of the learning rate; use constant, \
                 step:every=STEPS,factor=RATIO or cosine:floor=RATE"
            )
        };
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut decay = match name {
            "constant" => Decay::Constant,
            "step" => Decay::Step { every: 0, factor: 0.1 },
            "cosine" => Decay::Cosine { floor: 0.0 },
            _ => return Err(usage()),
        };
        for setting in settings.split(',').filter(|s| !s.is_empty()) {
            let (key, value) = setting.split_once('=').ok_or_else(usage)?;
            match (&mut decay, key) {
                (Decay::Step { every, .. }, "every") => {
                    *every = value.parse().map_err(|_| usage())?;
                }
                (Decay::Step { factor, .. }, "factor") => {
                    *factor = value.parse().map_err(|_| usage())?;
                }
                (Decay::Cosine { floor }, "floor") => {
                    *floor = value.parse().map_err(|_| usage())?;
                }
                _ => return Err(usage()),
            }
        }
        match decay {
            Decay::Step { every: 0, .. } => Err(format!("`{text}` needs every=STEPS")),
            _ => Ok(decay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_there_and_back() {
        for text in ["constant", "step:every=30,factor=0.5", "cosine", "cosine:floor=0.01"] {
            assert_eq!(text.parse::<Decay>().expect(text).to_string(), text);
        }
        for text in ["linear", "step", "step:every=x", "cosine:every=3", "constant:floor=1"] {
            assert!(text.parse::<Decay>().is_err(), "{text}");
        }
    }

    #[test]
    fn plain_training_writes_nothing() {
        assert_eq!(serde_json::to_string(&Training::default()).expect("plain data"), "{}");
        let training = Training { clip_norm: Some(0.0), ..Training::default() };
        assert_eq!(training.wrong_number().expect("refused").0, "training.clip_norm");
        assert_eq!(Training::default().wrong_number(), None);
        let training = Training { skip_nonfinite: Some(0), ..Training::default() };
        assert_eq!(training.wrong_number().expect("refused").0, "training.skip_nonfinite");
    }

    #[test]
    fn a_scaled_loss_needs_steps_that_may_be_skipped() {
        let of = |precision, skip_nonfinite| {
            let training = Training { precision, skip_nonfinite, ..Training::default() };
            (training.skips(), training.judges_gradients())
        };
        assert_eq!(of(Precision::Bf16, None), (None, false));
        assert_eq!(of(Precision::F16, None), (Some(32), true));
        assert_eq!(of(Precision::F16, Some(3)), (Some(3), true));
        assert_eq!(of(Precision::F32, Some(3)), (Some(3), true));
    }
}
