//! Samples and targets that a network trains on. Both come from a data set, in words of 32 bits:
//! single precision, or unsigned indexes.

use super::{Graph, Op};
use std::fmt;

/// One sample and its target, as a network takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleSpec {
    /// The sample.
    pub input: InputSpec,
    /// What it should give.
    pub target: TargetSpec,
}

/// A sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputSpec {
    /// Single-precision values: pixels, features.
    Values {
        /// Shape of one sample.
        shape: Vec<u64>,
    },
    /// Indexes: the tokens of a text.
    Tokens {
        /// Tokens of one sample.
        length: u64,
        /// Tokens lie below.
        vocabulary: u64,
    },
}

/// What a sample should give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// A class for each of its positions: one for an image's class, one a token in a language
    /// model, one a pixel in segmentation.
    Classes {
        /// Positions of one sample.
        count: u64,
        /// Classes lie below.
        classes: u64,
    },
    /// Single-precision values: regression.
    Values {
        /// Shape of one sample's.
        shape: Vec<u64>,
    },
}

impl InputSpec {
    /// Words of one sample.
    pub fn words(&self) -> u64 {
        match self {
            InputSpec::Values { shape } => shape.iter().product(),
            InputSpec::Tokens { length, .. } => *length,
        }
    }
}

impl TargetSpec {
    /// Words of one sample's target.
    pub fn words(&self) -> u64 {
        match self {
            TargetSpec::Classes { count, .. } => *count,
            TargetSpec::Values { shape } => shape.iter().product(),
        }
    }
}

impl Graph {
    /// What the graph trains on, when it has both sources.
    pub fn sample(&self) -> Option<SampleSpec> {
        let input = self.nodes().iter().find_map(|node| match &node.op {
            Op::Input { shape } => Some(InputSpec::Values { shape: shape.clone() }),
            Op::Tokens { length, vocabulary } => {
                Some(InputSpec::Tokens { length: *length, vocabulary: *vocabulary })
            }
            _ => None,
        })?;
        let target = self.nodes().iter().find_map(|node| match &node.op {
            Op::Target { classes } => Some(TargetSpec::Classes { count: 1, classes: *classes }),
            Op::Targets { count, classes } => {
                Some(TargetSpec::Classes { count: *count, classes: *classes })
            }
            Op::TargetValues { shape } => Some(TargetSpec::Values { shape: shape.clone() }),
            _ => None,
        })?;
        Some(SampleSpec { input, target })
    }
}

impl fmt::Display for InputSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputSpec::Values { shape } => write!(f, "values of shape {shape:?}"),
            InputSpec::Tokens { length, vocabulary } => {
                write!(f, "{length} tokens below {vocabulary}")
            }
        }
    }
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetSpec::Classes { count: 1, classes } => write!(f, "one of {classes} classes"),
            TargetSpec::Classes { count, classes } => {
                write!(f, "one of {classes} classes for each of {count} positions")
            }
            TargetSpec::Values { shape } => write!(f, "target values of shape {shape:?}"),
        }
    }
}

impl fmt::Display for SampleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.input, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::presets::Preset;

    fn sample(preset: &str) -> SampleSpec {
        preset.parse::<Preset>().unwrap().graph().unwrap().sample().unwrap()
    }

    #[test]
    fn images_texts_and_pixels() {
        let resnet = sample("resnet18");
        assert_eq!(resnet.input.words(), 3 * 224 * 224);
        assert_eq!(resnet.target, TargetSpec::Classes { count: 1, classes: 1000 });
        let gpt = sample("gpt2");
        assert_eq!(gpt.input, InputSpec::Tokens { length: 1024, vocabulary: 50257 });
        assert_eq!(gpt.target, TargetSpec::Classes { count: 1024, classes: 50257 });
        assert_eq!(
            gpt.to_string(),
            "1024 tokens below 50257 and one of 50257 classes for each of 1024 positions"
        );
        assert_eq!(sample("mlp4").input.words(), 3072);
    }
}
