//! Operations: what they compute, the shapes they give, the parameters they own, what they cost.

mod defaults;
mod flops;
mod infer;
mod kinds;
mod params;
mod parts;
mod rope;

pub use parts::{Function, Init, Interpolation, Kept, ParamSpec, Window};
pub use rope::{RopeScaling, rope_frequency};

use crate::ids::ParamId;
use defaults::{is_false, is_first, is_none, is_one, is_true, is_zero, lrn, one, yes};
use serde::{Deserialize, Serialize};

/// More arithmetic is no single operation on a sample.
pub(crate) const OPAQUE_FLOPS_MAX: u64 = 1 << 56;

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
    /// Mean of each window.
    AvgPool2d {
        /// The window.
        window: Window,
        /// Whether the mean counts padding, as zeros; else it is over what lies in the image.
        #[serde(default = "yes", skip_serializing_if = "is_true")]
        count_padding: bool,
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
    /// Element-wise sum; shapes broadcast as in NumPy, aligned at the last axis.
    Add,
    /// Element-wise difference; shapes broadcast.
    Subtract,
    /// Element-wise quotient; shapes broadcast.
    Divide,
    /// Mean over the mini-batch of `-log softmax(logits)[target]`; inputs: logits, target. With
    /// several positions ([`Op::Targets`]) the mean over them as well.
    SoftmaxCrossEntropy {
        /// Share of the target's weight that is spread evenly over all classes.
        #[serde(default, skip_serializing_if = "is_zero")]
        label_smoothing: f32,
    },
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
    /// `x / (k + alpha / size · sum of x² over neighbouring channels)^beta` (Krizhevsky et al. 2012).
    LocalResponseNorm {
        /// Channels of the sum.
        size: u64,
        /// Weight of the sum.
        #[serde(default = "lrn::alpha")]
        alpha: f32,
        /// The power.
        #[serde(default = "lrn::beta")]
        beta: f32,
        /// What is added to the sum.
        #[serde(default = "lrn::k")]
        k: f32,
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
    /// Element-wise product; shapes broadcast.
    Multiply,
    /// Joins tensors along an axis.
    Concat {
        /// Which axis of a sample; 0 are an image's channels.
        #[serde(default, skip_serializing_if = "is_first")]
        axis: u64,
    },
    /// More pixels: `[C, H, W]` to `[C, factor H, factor W]`.
    Upsample {
        /// How often in each direction.
        factor: u64,
        /// Where the new ones come from.
        #[serde(default, skip_serializing_if = "Interpolation::is_nearest")]
        mode: Interpolation,
    },
    /// The first position: `[length, features]` to `[features]`.
    FirstPosition,
    /// The position of a token: `[length, features]` and the tokens `[length]` to `[features]`. The first
    /// one where there are several, position 0 where there is none. CLIP's end of text.
    TokenPosition {
        /// Which token; none for the largest of the sample.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<u32>,
    },
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
    /// Values that the sample should give, loaded from the data set.
    TargetValues {
        /// Shape of one sample.
        shape: Vec<u64>,
    },
    /// Mean over samples and elements of `(prediction - target)²`; inputs: prediction, target.
    MeanSquaredError,
    /// A learnt or constant tensor, the same for every sample: positions, class tokens, scales.
    Parameter {
        /// Shape.
        shape: Vec<u64>,
        /// Whether the optimizer changes it.
        trainable: bool,
    },
    /// Product of the last two axes: `a [.., m, k]`, `b [.., k, n]` to `[.., m, n]`. The axes
    /// before them are equal.
    MatMul {
        /// Whether `b` is `[.., n, k]`.
        #[serde(default, skip_serializing_if = "is_false")]
        transpose_b: bool,
    },
    /// The gradient of a convolution seen as an operation, which enlarges images: `[C, H, W]` to
    /// `[out_channels, (H - 1) stride - 2 padding + kernel + output_padding, ..]`; the weight is
    /// `[C, out_channels / groups, kernel..]`.
    ConvTranspose2d {
        /// Channels of the output.
        out_channels: u64,
        /// Rows and columns of the kernel.
        kernel: Pair,
        /// Step of the window in the output.
        stride: Pair,
        /// Rows and columns cut off on each side of the output.
        padding: Pair,
        /// Rows and columns added at the end of the output.
        output_padding: Pair,
        /// Independent groups of channels.
        groups: u64,
        /// Whether a bias per output channel exists.
        bias: bool,
    },
    /// `min(max(x, min), max)`; the gradient is zero outside.
    Clip {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
    /// `scale x + shift` with numbers.
    Affine {
        /// Factor.
        scale: f32,
        /// Summand.
        shift: f32,
    },
    /// Mean 0 and variance 1 over groups of channels of each sample, then a learnt scale and shift
    /// per channel (Wu and He 2018). Channels are the first axis.
    GroupNorm {
        /// Groups; they divide the channels.
        groups: u64,
        /// Added to the variance.
        eps: f32,
    },
    /// `exp(x) / sum exp(x)` over the last axis.
    Softmax,
    /// `x - log sum exp(x)` over the last axis.
    LogSoftmax,
    /// Every `step`-th element from `start` to before `end` along an axis.
    Slice {
        /// Which axis of a sample.
        axis: u64,
        /// First index.
        start: u64,
        /// One past the last possible index.
        end: u64,
        /// Distance of the indexes.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        step: u64,
    },
    /// Axis `i` of the output is axis `axes[i]` of the input.
    Permute {
        /// A permutation of the axes of a sample.
        axes: Vec<u64>,
    },
    /// Another shape for the same elements.
    Reshape {
        /// The shape of a sample.
        shape: Vec<u64>,
    },
    /// Mean over some axes.
    ReduceMean {
        /// Axes of a sample, ascending.
        axes: Vec<u64>,
        /// Whether they stay with size 1.
        keep: bool,
    },
    /// Attention of separate tensors: `softmax(scale q kᵀ) v` over the last two axes; inputs:
    /// `q [.., n, d]`, `k [.., s, d]`, `v [.., s, e]`, giving `[.., n, e]`. Keeps one number per
    /// query for the backward pass, as [`Op::Attention`] does.
    ScaledDotProduct {
        /// Factor of the scores, usually `1 / sqrt(d)`.
        scale: f32,
        /// Whether query `i` sees only keys `j <= i`.
        causal: bool,
    },
    /// Rotary position embedding of `[.., length, d]` (Su et al. 2021): element `i` of the first
    /// half and its partner in the second half turn by `position · base^(-2i/d)`, scaled where it says so.
    Rope {
        /// Base of the frequencies.
        base: f32,
        /// What longer texts change about them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scaling: Option<RopeScaling>,
    },
    /// `silu(gate) · up` (Shazeer 2020); inputs: gate, up, of one shape.
    SwiGlu,
    /// Zero with the given probability, else `x / (1 - probability)`; nothing in evaluation. Which
    /// elements follows from seed, step, node, sample and element alone.
    Dropout {
        /// Share of elements that become zero, below 1.
        probability: f32,
    },
    /// Shares of the `k` largest logits of a token, by the softmax over all of them, and zero for the others; of equal
    /// logits the first are taken. What a mixture of experts asks with whom a token goes (Shazeer et al. 2017).
    TopKSoftmax {
        /// How many are taken.
        k: u64,
        /// Whether the shares of those that are taken sum up to 1 (Mixtral), or are as they were (Switch).
        #[serde(default, skip_serializing_if = "is_false")]
        normalize: bool,
    },
    /// Tokens to their experts: `x [tokens, features]` and shares `[tokens, experts]` to `[experts, capacity, features]`.
    /// Each expert has a row for every token that has a share of it, in the order of tokens; tokens beyond its
    /// capacity are left out, rows without a token are zero (GShard, Lepikhin et al. 2020; its group is the sample).
    /// Shares have no gradient by it.
    Dispatch {
        /// Experts; on a rank of a tensor group its part of them.
        experts: u64,
        /// Rows of an expert.
        capacity: u64,
    },
    /// `y = x Wᵀ` over the last axis, with a weight for each index of the first axis: `[experts, rows, in_features]` to
    /// `[experts, rows, out_features]`; the weight is `[experts, out_features, in_features]`.
    GroupedLinear {
        /// Size of the last axis of the output.
        out_features: u64,
    },
    /// What experts gave, back to tokens: shares `[tokens, experts]` and rows `[experts, capacity, features]`, as
    /// [`Op::Dispatch`] placed them, to `[tokens, features]`: the sum of a token's rows times its shares.
    Combine,
    /// Something measured elsewhere, or without a kernel here: sizes only. Planned, simulated, never
    /// executed.
    Opaque {
        /// Bytes of the value; rounded up to whole elements.
        output: u64,
        /// Bytes of the parameters; rounded up to whole elements.
        parameters: u64,
        /// Operations of the forward pass of one sample, where they are known and not measured.
        #[serde(default, skip_serializing_if = "is_none")]
        flops: u64,
        /// Whether nothing tells what it takes: predictions are made without it.
        #[serde(default, skip_serializing_if = "is_false")]
        unpriced: bool,
        /// What its backward pass reads beside the gradient, where it is known; else all inputs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<Kept>,
    },
}
