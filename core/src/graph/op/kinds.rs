//! Classes of operations.

use super::Op;

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
            Op::SoftmaxCrossEntropy { .. } => "softmax_cross_entropy",
            Op::Subtract => "subtract",
            Op::Divide => "divide",
            Op::TargetValues { .. } => "target_values",
            Op::MeanSquaredError => "mean_squared_error",
            Op::Parameter { .. } => "parameter",
            Op::MatMul { .. } => "matmul",
            Op::ConvTranspose2d { .. } => "conv_transpose2d",
            Op::Clip { .. } => "clip",
            Op::Affine { .. } => "affine",
            Op::GroupNorm { .. } => "group_norm",
            Op::Softmax => "softmax",
            Op::LogSoftmax => "log_softmax",
            Op::Slice { .. } => "slice",
            Op::Permute { .. } => "permute",
            Op::Reshape { .. } => "reshape",
            Op::ReduceMean { .. } => "reduce_mean",
            Op::ScaledDotProduct { .. } => "scaled_dot_product",
            Op::Rope { .. } => "rope",
            Op::SwiGlu => "swiglu",
            Op::Dropout { .. } => "dropout",
            Op::TopKSoftmax { .. } => "top_k_softmax",
            Op::Dispatch { .. } => "dispatch",
            Op::GroupedLinear { .. } => "grouped_linear",
            Op::Combine => "combine",
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
            Op::Concat { .. } => "concat",
            Op::Upsample { .. } => "upsample",
            Op::FirstPosition => "first_position",
            Op::TokenPosition { .. } => "token_position",
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
        matches!(self, Op::Target { .. } | Op::Targets { .. } | Op::TargetValues { .. })
    }

    /// Whether it is what training makes small.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            Op::SoftmaxCrossEntropy { .. } | Op::SigmoidCrossEntropy | Op::MeanSquaredError
        )
    }

    /// Whether the output is the input's bytes under another shape: no work, no memory.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Flatten | Op::Reshape { .. })
    }

    /// Whether gradients flow to input `slot`, where something before it is trained.
    pub(in crate::graph) fn differentiates(&self, slot: u32) -> bool {
        !matches!((self, slot), (Op::Dispatch { .. }, 1))
    }

    /// Whether the gradient of input `slot` is the output's gradient as it stands, given that both
    /// have one shape.
    pub(in crate::graph) fn passes_gradient(&self, slot: u32) -> bool {
        self.is_view() || matches!((self, slot), (Op::Add, _) | (Op::Subtract, 0))
    }
}
