//! Operations: what they compute, the shapes they give, the parameters they own, what they cost.

mod flops;
mod infer;
mod params;

use crate::ids::ParamId;
use serde::{Deserialize, Serialize};

/// The two spatial sizes of an image operation: rows, columns.
pub type Pair = [u64; 2];

/// An operation on tensors. Shapes are those of one sample: the batch axis is implicit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// The sample, loaded from the data set.
    Input {
        /// Shape of one sample.
        shape: Vec<u64>,
    },
    /// The class of the sample, loaded from the data set.
    Target {
        /// Number of classes.
        classes: u64,
    },
    /// `y = x Wᵀ + b` over the last axis; `W` is `[out_features, in_features]`.
    Linear {
        /// Size of the last axis of the output.
        out_features: u64,
        /// Whether `b` exists.
        bias: bool,
    },
    /// Convolution of `[C, H, W]`; the weight is `[out_channels, C / groups, kernel..]`.
    Conv2d {
        /// Channels of the output.
        out_channels: u64,
        /// Rows and columns of the kernel.
        kernel: Pair,
        /// Step of the window.
        stride: Pair,
        /// Zeros added on each side.
        padding: Pair,
        /// Distance between kernel elements.
        dilation: Pair,
        /// Independent groups of channels.
        groups: u64,
        /// Whether a bias per output channel exists.
        bias: bool,
    },
    /// Largest value of each window.
    MaxPool2d {
        /// The window.
        window: Window,
    },
    /// Mean of each window; padding counts as zeros.
    AvgPool2d {
        /// The window.
        window: Window,
    },
    /// Mean over the spatial axes: `[C, H, W]` to `[C, 1, 1]`.
    GlobalAvgPool,
    /// `max(x, 0)`.
    Relu,
    /// Normalisation per channel over the micro-batch, with running statistics for evaluation.
    BatchNorm2d {
        /// Added to the variance.
        eps: f32,
        /// Share of the new statistics in the running ones.
        momentum: f32,
    },
    /// To one axis.
    Flatten,
    /// Element-wise sum of two tensors of one shape.
    Add,
    /// Mean over the mini-batch of `-log softmax(logits)[target]`; inputs: logits, target. With
    /// several positions ([`Op::Targets`]) the mean over them as well.
    SoftmaxCrossEntropy,
    /// A sample of indexes, such as the tokens of a sentence, loaded from the data set.
    Tokens {
        /// Tokens of a sample.
        length: u64,
        /// Different tokens.
        vocabulary: u64,
    },
    /// A class for each of several positions of the sample: tokens, pixels.
    Targets {
        /// Positions.
        count: u64,
        /// Number of classes.
        classes: u64,
    },
    /// A learnt vector per token, plus one per position and one per kind of token where there
    /// are some: `[length]` to `[length, features]`.
    Embedding {
        /// Different tokens.
        entries: u64,
        /// Size of a vector.
        features: u64,
        /// Learnt positions; 0 where positions are told another way.
        positions: u64,
        /// Kinds of tokens (BERT's segments); 0 for none.
        kinds: u64,
    },
    /// Mean 0 and variance 1 over the last axis, then a learnt scale and shift (Ba et al. 2016).
    LayerNorm {
        /// Added to the variance.
        eps: f32,
    },
    /// Mean square 1 over the last axis, then a learnt scale (Zhang and Sennrich 2019).
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// Normalisation per channel of each sample; no parameters (Ulyanov et al. 2016).
    InstanceNorm2d {
        /// Added to the variance.
        eps: f32,
    },
    /// Division by a power of the squares' sum over neighbouring channels (Krizhevsky et al. 2012).
    LocalResponseNorm {
        /// Channels of the sum.
        size: u64,
    },
    /// Scaled dot-product attention of queries, keys and values that lie side by side in the last
    /// axis: `[length, (heads + 2 kv_heads) d]` to `[length, heads d]`. Keeps one number per head
    /// and query for the backward pass, not the probabilities (FlashAttention, Dao et al. 2022).
    Attention {
        /// Heads of the queries.
        heads: u64,
        /// Heads of keys and values; fewer than `heads` when groups of queries share them.
        kv_heads: u64,
        /// Whether a position sees only those before it. Shapes and work are the same.
        causal: bool,
    },
    /// An element-wise function.
    Activation {
        /// Which.
        function: Function,
    },
    /// Element-wise product of two tensors of one shape.
    Multiply,
    /// Joins tensors along the first axis: channels.
    Concat,
    /// Repeats every pixel: `[C, H, W]` to `[C, factor H, factor W]`.
    Upsample {
        /// How often in each direction.
        factor: u64,
    },
    /// The first position: `[length, features]` to `[features]`.
    FirstPosition,
    /// A linear operation without bias whose weight is another operation's table of vectors: the
    /// output layer of a language model with tied embeddings. It holds a copy of that parameter,
    /// because the two may stand on different devices; papers count the parameter once.
    TiedLinear {
        /// The parameter, `[out_features, in_features]`.
        weight: ParamId,
        /// Size of the last axis of the output.
        out_features: u64,
    },
    /// Mean over samples and positions of the binary cross entropy of logits; inputs: logits,
    /// targets of two classes.
    SigmoidCrossEntropy,
    /// Something measured elsewhere: sizes only. Planned, simulated, never executed.
    Opaque {
        /// Bytes of the value; rounded up to whole elements.
        output: u64,
        /// Bytes of the parameters; rounded up to whole elements.
        parameters: u64,
    },
}

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

impl Op {
    /// The operation's name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input { .. } => "input",
            Op::Target { .. } => "target",
            Op::Linear { .. } => "linear",
            Op::Conv2d { .. } => "conv2d",
            Op::MaxPool2d { .. } => "max_pool2d",
            Op::AvgPool2d { .. } => "avg_pool2d",
            Op::GlobalAvgPool => "global_avg_pool",
            Op::Relu => "relu",
            Op::BatchNorm2d { .. } => "batch_norm2d",
            Op::Flatten => "flatten",
            Op::Add => "add",
            Op::SoftmaxCrossEntropy => "softmax_cross_entropy",
            Op::Tokens { .. } => "tokens",
            Op::Targets { .. } => "targets",
            Op::Embedding { .. } => "embedding",
            Op::LayerNorm { .. } => "layer_norm",
            Op::RmsNorm { .. } => "rms_norm",
            Op::InstanceNorm2d { .. } => "instance_norm2d",
            Op::LocalResponseNorm { .. } => "local_response_norm",
            Op::Attention { .. } => "attention",
            Op::Activation { .. } => "activation",
            Op::Multiply => "multiply",
            Op::Concat => "concat",
            Op::Upsample { .. } => "upsample",
            Op::FirstPosition => "first_position",
            Op::TiedLinear { .. } => "tied_linear",
            Op::SigmoidCrossEntropy => "sigmoid_cross_entropy",
            Op::Opaque { .. } => "opaque",
        }
    }

    /// Whether the value comes from the data set.
    pub fn is_source(&self) -> bool {
        self.is_sample() || self.is_target()
    }

    /// Whether it is the sample.
    pub fn is_sample(&self) -> bool {
        matches!(self, Op::Input { .. } | Op::Tokens { .. })
    }

    /// Whether it is what the sample should give.
    pub fn is_target(&self) -> bool {
        matches!(self, Op::Target { .. } | Op::Targets { .. })
    }

    /// Whether it is what training makes small.
    pub fn is_loss(&self) -> bool {
        matches!(self, Op::SoftmaxCrossEntropy | Op::SigmoidCrossEntropy)
    }

    /// Whether the output is the input's bytes under another shape: no work, no memory.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Flatten)
    }
}
