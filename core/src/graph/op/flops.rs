//! The arithmetic of each operation.

use super::{Function, Op};
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
            | Op::Flatten
            | Op::Concat
            | Op::Upsample { .. }
            | Op::FirstPosition
            | Op::Opaque { .. } => 0,
            Op::Linear { .. } | Op::TiedLinear { .. } => {
                let inputs = inputs[0].shape.last().copied().unwrap_or(1);
                (2 * output.elements()).saturating_mul(inputs)
            }
            Op::Conv2d { kernel, groups, .. } => {
                let inputs = inputs[0].shape[0] / groups * kernel[0] * kernel[1];
                (2 * output.elements()).saturating_mul(inputs)
            }
            Op::MaxPool2d { window } | Op::AvgPool2d { window } => {
                output.elements() * window.kernel[0] * window.kernel[1]
            }
            Op::GlobalAvgPool => inputs[0].elements(),
            Op::Relu | Op::Add | Op::Multiply => output.elements(),
            Op::Embedding { positions, kinds, .. } => {
                output.elements() * (u64::from(*positions > 0) + u64::from(*kinds > 0))
            }
            Op::BatchNorm2d { .. } | Op::LayerNorm { .. } | Op::InstanceNorm2d { .. } => {
                8 * output.elements()
            }
            Op::RmsNorm { .. } => 4 * output.elements(),
            Op::LocalResponseNorm { size } => output.elements().saturating_mul(size + 3),
            // Scores and weighted values are products of 2 d operations each; softmax takes 5.
            Op::Attention { heads, .. } => {
                let length = output.shape.first().copied().unwrap_or(1);
                let scores = heads.saturating_mul(length).saturating_mul(length);
                (4 * output.elements()).saturating_mul(length).saturating_add(5 * scores)
            }
            Op::Activation { function } => output.elements() * function.flops(),
            Op::SoftmaxCrossEntropy | Op::SigmoidCrossEntropy => 5 * inputs[0].elements(),
        }
    }
}

impl Function {
    /// Operations for one element, a transcendental function counting as one.
    fn flops(self) -> u64 {
        match self {
            Function::Gelu => 8,
            Function::Silu => 4,
            Function::Tanh => 1,
            Function::LeakyRelu => 2,
        }
    }
}
