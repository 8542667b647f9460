//! Reductions: the algorithm and codec by which a group of ranks sums gradients.

use super::{CodecKind, Method, Rounding, Scale, Threshold};
use serde::{Deserialize, Serialize};

/// The way of encoded values through the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Everybody sends its part of the values to each rank, which sums its part in single precision,
    /// encodes the sum and sends it to all: two roundings, however many ranks (DeepSpeed, torchft).
    #[default]
    TwoShot,
    /// MPI's all-reduce of bytes with an operation that adds two codes (Oyama): a rounding with every
    /// addition. For E5M2 alone.
    Operator,
}

/// How a bucket of gradients is summed. JSON: `{"codec": "fp8-e5m2", "algorithm": "operator"}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reduction {
    /// How values are encoded.
    #[serde(flatten)]
    pub method: Method,
    /// The way they take; single precision goes by the transport's own all-reduce.
    #[serde(default, skip_serializing_if = "is_two_shot")]
    pub algorithm: Algorithm,
}

/// What is offered where nothing is asked for, from the safest to the smallest; the coarsest with
/// feedback, without which they spoil the training.
pub const USUAL: [Reduction; 4] = [
    Reduction::of(CodecKind::Bf16),
    Reduction::of(CodecKind::Fp8E5m2 { rounding: Rounding::NearestEven, scale: Scale::PowerOfTwo }),
    Reduction::of(CodecKind::TableMean { bits: 2 }).with_feedback(),
    Reduction::of(CodecKind::OneBit { threshold: Threshold::Zero }).with_feedback(),
];

fn is_two_shot(algorithm: &Algorithm) -> bool {
    *algorithm == Algorithm::TwoShot
}

impl Reduction {
    /// Two-shot, without feedback.
    pub const fn of(codec: CodecKind) -> Self {
        Self { method: Method { codec, feedback: false }, algorithm: Algorithm::TwoShot }
    }

    /// The same with error feedback.
    pub const fn with_feedback(self) -> Self {
        let method = Method { codec: self.method.codec, feedback: true };
        Self { method, algorithm: self.algorithm }
    }

    /// Whether it is the transport's own all-reduce in single precision.
    pub fn is_plain(&self) -> bool {
        self.method.codec.is_lossless()
    }

    /// What is wrong with it, and what is possible; checked where plans are read.
    pub fn fault(&self) -> Option<&'static str> {
        let operator = self.algorithm == Algorithm::Operator;
        match self.method.codec {
            CodecKind::Fp32 if self.method.feedback => {
                Some("single precision loses nothing: leave out feedback")
            }
            CodecKind::Fp8E5m2 { rounding: Rounding::Saturating, .. } if operator => {
                Some("sums of codes are truncated or rounded to nearest: choose one of these")
            }
            CodecKind::Fp8E5m2 { scale: Scale::Percentile | Scale::Block(_), .. } if operator => {
                Some("codes are summed under one scale: choose `none` or `power-of-two`")
            }
            CodecKind::Fp8E5m2 { .. } => None,
            _ if operator => {
                Some("the MPI operation adds fp8-e5m2 codes: choose that, or two-shot")
            }
            CodecKind::TopK { momentum: Some(_), .. } | CodecKind::PowerSgd { .. } => Some(
                "it keeps a state for each tensor, and sums are made piece by piece: use top-k \
                      without momentum and with feedback, or another codec",
            ),
            codec => (!codec.has_sound_settings()).then_some("the codec has no such setting"),
        }
    }
}
