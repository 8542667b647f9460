//! The parameters that each operation owns.

use super::{Init, Op, Pair, ParamSpec};
use crate::graph::tensor::TensorSpec;

impl Op {
    /// The parameters, in the order in which kernels receive them.
    pub fn params(&self, inputs: &[&TensorSpec]) -> Vec<ParamSpec> {
        match self {
            Op::Linear { out_features, bias } => {
                let fan_in = last(inputs);
                let init = Init::HeUniform { fan_in };
                let mut params = vec![param("weight", vec![*out_features, fan_in], init, true)];
                if *bias {
                    params.push(param("bias", vec![*out_features], Init::Zeros, true));
                }
                params
            }
            Op::Conv2d { out_channels, kernel, groups, bias, .. } => {
                let channels = inputs[0].shape[0] / groups;
                convolution([*out_channels, channels], *kernel, *out_channels, *bias)
            }
            Op::BatchNorm2d { .. } => {
                let shape = vec![inputs[0].shape[0]];
                vec![
                    param("weight", shape.clone(), Init::Ones, true),
                    param("bias", shape.clone(), Init::Zeros, true),
                    param("running_mean", shape.clone(), Init::Zeros, false),
                    param("running_var", shape, Init::Ones, false),
                ]
            }
            Op::Embedding { entries, features, positions, kinds } => {
                let tables = [
                    ("weight", *entries),
                    ("position_weight", *positions),
                    ("kind_weight", *kinds),
                ];
                let init = Init::HeUniform { fan_in: *features };
                let table = |(suffix, rows)| param(suffix, vec![rows, *features], init, true);
                tables.into_iter().filter(|(_, rows)| *rows > 0).map(table).collect()
            }
            Op::ConvTranspose2d { out_channels, kernel, groups, bias, .. } => {
                let channels = [inputs[0].shape[0], out_channels / groups];
                convolution(channels, *kernel, *out_channels, *bias)
            }
            Op::Parameter { shape, trainable } => {
                let init = Init::HeUniform { fan_in: shape.last().copied().unwrap_or(1) };
                vec![param("weight", shape.clone(), init, *trainable)]
            }
            Op::LayerNorm { .. } | Op::GroupNorm { .. } => {
                let shape = vec![match self {
                    Op::GroupNorm { .. } => inputs[0].shape[0],
                    _ => last(inputs),
                }];
                vec![
                    param("weight", shape.clone(), Init::Ones, true),
                    param("bias", shape, Init::Zeros, true),
                ]
            }
            Op::GroupedLinear { out_features } => {
                let fan_in = last(inputs);
                let shape = vec![inputs[0].shape[0], *out_features, fan_in];
                vec![param("weight", shape, Init::HeUniform { fan_in }, true)]
            }
            Op::RmsNorm { .. } => vec![param("weight", vec![last(inputs)], Init::Ones, true)],
            Op::TiedLinear { out_features, .. } => {
                let init = Init::HeUniform { fan_in: last(inputs) };
                vec![param("weight", vec![*out_features, last(inputs)], init, true)]
            }
            Op::Opaque { parameters, .. } if *parameters > 0 => {
                vec![param("weight", vec![parameters.div_ceil(4)], Init::Zeros, true)]
            }
            _ => vec![],
        }
    }
}

fn param(suffix: &'static str, shape: Vec<u64>, init: Init, trainable: bool) -> ParamSpec {
    ParamSpec { suffix, shape, init, trainable }
}

/// Weight and bias of a convolution, forth or back; the inputs that one output sums over are the
/// weight's second axis by the kernel.
fn convolution(channels: [u64; 2], kernel: Pair, outputs: u64, bias: bool) -> Vec<ParamSpec> {
    let init = Init::HeUniform { fan_in: channels[1] * kernel[0] * kernel[1] };
    let shape = vec![channels[0], channels[1], kernel[0], kernel[1]];
    let mut params = vec![param("weight", shape, init, true)];
    if bias {
        params.push(param("bias", vec![outputs], Init::Zeros, true));
    }
    params
}

/// Size of the last axis of the first input.
fn last(inputs: &[&TensorSpec]) -> u64 {
    inputs[0].shape.last().copied().unwrap_or(1)
}
