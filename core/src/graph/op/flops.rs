//! The arithmetic of each operation.

use super::{Function, Interpolation, Op};
use crate::graph::tensor::TensorSpec;

impl Op {
    /// Floating-point operations of the forward pass of one sample; a multiply-add counts two.
    /// Attention counts every query with every key, seen or masked.
    pub fn forward_flops(&self, inputs: &[&TensorSpec], output: &TensorSpec) -> u64 {
        match self {
            Op::Input { .. }
            | Op::Target { .. }
            | Op::Tokens { .. }
            | Op::Targets { .. }
            | Op::TargetValues { .. }
            | Op::Parameter { .. }
            | Op::Flatten
            | Op::Reshape { .. }
            | Op::Permute { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Upsample { mode: Interpolation::Nearest, .. }
            | Op::FirstPosition
            | Op::TokenPosition { .. }
            | Op::Dispatch { .. } => 0,
            Op::Opaque { flops, .. } => *flops,
            Op::MatMul { .. } => {
                let inner = inputs[0].shape.last().copied().unwrap_or(1);
                (2 * output.elements()).saturating_mul(inner)
            }
            Op::ConvTranspose2d { out_channels, kernel, groups, .. } => {
                let outputs = out_channels / groups * kernel[0] * kernel[1];
                (2 * inputs[0].elements()).saturating_mul(outputs)
            }
            Op::ScaledDotProduct { .. } => scaled_dot_product(inputs, output),
            Op::Linear { .. } | Op::TiedLinear { .. } | Op::GroupedLinear { .. } => {
                let inputs = inputs[0].shape.last().copied().unwrap_or(1);
                (2 * output.elements()).saturating_mul(inputs)
            }
            Op::Conv2d { kernel, groups, .. } => {
                let inputs = inputs[0].shape[0] / groups * kernel[0] * kernel[1];
                (2 * output.elements()).saturating_mul(inputs)
            }
            Op::MaxPool2d { window } | Op::AvgPool2d { window, .. } => {
                output.elements() * window.kernel[0] * window.kernel[1]
            }
            Op::GlobalAvgPool | Op::ReduceMean { .. } => inputs[0].elements(),
            Op::Relu
            | Op::Add
            | Op::Subtract
            | Op::Divide
            | Op::Multiply
            | Op::Clip { .. }
            | Op::Dropout { .. } => output.elements(),
            Op::Affine { .. } => 2 * output.elements(),
            Op::Rope { .. } => 3 * output.elements(),
            Op::SwiGlu => 5 * output.elements(),
            Op::Softmax | Op::LogSoftmax => 5 * output.elements(),
            Op::TopKSoftmax { k, .. } => (5 + k) * output.elements(),
            // Every row is of one token at most.
            Op::Combine => 2 * inputs[1].elements(),
            Op::Upsample { mode: Interpolation::Bilinear, .. } => 8 * output.elements(),
            Op::Embedding { positions, kinds, .. } => {
                output.elements() * (u64::from(*positions > 0) + u64::from(*kinds > 0))
            }
            Op::BatchNorm2d { .. }
            | Op::LayerNorm { .. }
            | Op::GroupNorm { .. }
            | Op::InstanceNorm2d { .. } => 8 * output.elements(),
            Op::RmsNorm { .. } => 4 * output.elements(),
            Op::LocalResponseNorm { size, .. } => output.elements().saturating_mul(size + 3),
            Op::Attention { heads, .. } => attention(*heads, output),
            Op::Activation { function } => output.elements() * function.flops(),
            Op::SoftmaxCrossEntropy { .. } | Op::SigmoidCrossEntropy => 5 * inputs[0].elements(),
            Op::MeanSquaredError => 3 * inputs[0].elements(),
        }
    }
}

/// Scores and weighted values are products of 2 d operations each; softmax takes 5.
fn attention(heads: u64, output: &TensorSpec) -> u64 {
    let length = output.shape.first().copied().unwrap_or(1);
    let scores = heads.saturating_mul(length).saturating_mul(length);
    (4 * output.elements()).saturating_mul(length).saturating_add(5 * scores)
}

/// Scores and weighted values of every query with every key.
fn scaled_dot_product(inputs: &[&TensorSpec], output: &TensorSpec) -> u64 {
    let depth = inputs[0].shape.last().copied().unwrap_or(1);
    let heads = inputs[0].shape.iter().rev().skip(2).product::<u64>().max(1);
    let keys_of_head = inputs[1].elements() / (depth * heads).max(1);
    (2 * (inputs[0].elements() + output.elements())).saturating_mul(keys_of_head)
}

impl Function {
    /// Operations for one element, a transcendental function counting as one.
    fn flops(self) -> u64 {
        match self {
            Function::Gelu | Function::GeluTanh => 8,
            Function::Silu | Function::HardSwish => 4,
            Function::Sigmoid | Function::HardSigmoid => 3,
            Function::LeakyRelu => 2,
            Function::Tanh
            | Function::Exp
            | Function::Log
            | Function::Erf
            | Function::Square
            | Function::Sqrt
            | Function::Reciprocal => 1,
        }
    }
}
