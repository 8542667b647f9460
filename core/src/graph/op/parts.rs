//! Attributes of operations.

use super::Pair;
use super::defaults::{is_false, is_none};
use serde::{Deserialize, Serialize};

/// What the backward pass of an opaque operation reads beside the gradient of its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Inputs, by their place; ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<u32>,
    /// Its own value.
    #[serde(default, skip_serializing_if = "is_false")]
    pub output: bool,
    /// Bytes of one sample of what the forward pass makes for it: a mask, statistics.
    #[serde(default, skip_serializing_if = "is_none")]
    pub saved: u64,
}

impl Kept {
    /// Whether it can be of an operation with so many inputs.
    pub(super) fn check(&self, inputs: usize) -> Result<(), String> {
        if !self.inputs.is_sorted_by(|a, b| a < b) || self.inputs.last() >= Some(&(inputs as u32)) {
            return Err(format!("keeps inputs {:?} of {inputs}", self.inputs));
        }
        if self.saved > SAVED_MAX {
            return Err(format!("keeps {} bytes of a sample, more than 2^38", self.saved));
        }
        Ok(())
    }
}

/// More is kept of no sample; below it, sizes count in 64 bits.
const SAVED_MAX: u64 = 1 << 38;

/// An element-wise function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// `x Φ(x)` (Hendrycks and Gimpel 2016).
    Gelu,
    /// `x sigmoid(x)`.
    Silu,
    /// Hyperbolic tangent.
    Tanh,
    /// `max(x, x / 100)`.
    LeakyRelu,
    /// Gelu by its approximation with tanh.
    GeluTanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `exp(x)`.
    Exp,
    /// Natural logarithm.
    Log,
    /// `x · clip(x + 3, 0, 6) / 6`.
    HardSwish,
    /// `clip(x / 6 + 1/2, 0, 1)`.
    HardSigmoid,
    /// Gauss error function.
    Erf,
    /// `x²`.
    Square,
    /// Square root.
    Sqrt,
    /// `1 / x`.
    Reciprocal,
}

impl Function {
    /// Whether the gradient follows from the output alone; else it needs the input.
    pub fn gradient_from_output(self) -> bool {
        match self {
            Function::Tanh
            | Function::LeakyRelu
            | Function::Sigmoid
            | Function::Exp
            | Function::Sqrt
            | Function::Reciprocal => true,
            Function::Gelu
            | Function::Silu
            | Function::GeluTanh
            | Function::Log
            | Function::HardSwish
            | Function::HardSigmoid
            | Function::Erf
            | Function::Square => false,
        }
    }
}

/// Where the pixels of an enlarged image come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// Every pixel is repeated.
    #[default]
    Nearest,
    /// Between the four nearest, pixels being areas (PyTorch's `align_corners=False`).
    Bilinear,
}

impl Interpolation {
    pub(super) fn is_nearest(&self) -> bool {
        *self == Interpolation::Nearest
    }
}

/// The window of a pooling operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Rows and columns.
    pub kernel: Pair,
    /// Step of the window.
    pub stride: Pair,
    /// Border on each side.
    pub padding: Pair,
    /// Whether a last window may begin inside the tensor and end outside of it.
    pub ceil_mode: bool,
}

/// How a parameter gets its first values. All bounds come from square roots: equal everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Uniform in ±sqrt(6 / fan_in) (He et al. 2015).
    HeUniform {
        /// Inputs that one output sums over.
        fan_in: u64,
    },
    /// All zero.
    Zeros,
    /// All one.
    Ones,
}

/// A parameter that an operation owns.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Last part of the name, as torchvision has it: `weight`, `bias`, `running_mean`, ..
    pub suffix: &'static str,
    /// Shape.
    pub shape: Vec<u64>,
    /// First values.
    pub init: Init,
    /// Whether the optimizer changes it; running statistics are not trained.
    pub trainable: bool,
}
