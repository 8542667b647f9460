//! Number formats of training.

use serde::{Deserialize, Serialize};

/// How activations, their gradients and messages are stored. Weights, gradients of weights and the
/// optimizer's state are always f32, and sums are always made in f32 or better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Four bytes.
    #[default]
    F32,
    /// As f32, but products of matrices on GPUs may round their factors to TF32: 10 bits of mantissa
    /// in place of 23. What PyTorch's `allow_tf32` and `set_float32_matmul_precision("high")` allow.
    Tf32,
    /// Two bytes: the upper half of an f32, rounded to nearest, ties to even.
    Bf16,
    /// Two bytes: IEEE half precision, rounded to nearest, ties to even; infinite from 65520 on.
    /// The loss is scaled, so that gradients do not vanish below 2^-24, by a factor that follows from
    /// what training shows: PyTorch's `GradScaler`. A step whose gradients are not finite is skipped.
    F16,
}

impl Precision {
    /// All, the widest first.
    pub const ALL: [Precision; 4] =
        [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16];

    /// The name in plans, links and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        }
    }

    /// That of a name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.word() == word)
    }

    /// Whether activations, their gradients and messages take two bytes an element.
    pub fn is_half(self) -> bool {
        matches!(self, Precision::Bf16 | Precision::F16)
    }

    /// Whether gradients are those of a loss times a factor.
    pub fn scales_loss(self) -> bool {
        self == Precision::F16
    }
}
