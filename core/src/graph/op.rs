//! Operations: what they compute, the shapes they give, the parameters they own, what they cost.

use super::tensor::{DType, TensorSpec};
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
    /// Mean over the mini-batch of `-log softmax(logits)[target]`; inputs: logits, target.
    SoftmaxCrossEntropy,
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
        }
    }

    /// Whether the value comes from the data set.
    pub fn is_source(&self) -> bool {
        matches!(self, Op::Input { .. } | Op::Target { .. })
    }

    /// Whether the output is the input's bytes under another shape: no work, no memory.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Flatten)
    }

    /// The output of one sample.
    ///
    /// # Errors
    /// A sentence on what the operation needs, when the inputs do not fit.
    pub fn infer(&self, inputs: &[&TensorSpec]) -> Result<TensorSpec, String> {
        let count = |n: usize| {
            (inputs.len() == n)
                .then_some(())
                .ok_or_else(|| format!("{} needs {n} inputs, got {}", self.name(), inputs.len()))
        };
        match self {
            Op::Input { shape } => {
                count(0)?;
                if shape.contains(&0) {
                    return Err(format!("input shape {shape:?} has an empty axis"));
                }
                Ok(TensorSpec::f32(shape.clone()))
            }
            Op::Target { .. } => {
                count(0)?;
                Ok(TensorSpec { shape: vec![], dtype: DType::U32 })
            }
            Op::Linear { out_features, .. } => {
                count(1)?;
                let mut shape = inputs[0].shape.clone();
                *shape.last_mut().ok_or("linear needs at least one axis")? = *out_features;
                Ok(TensorSpec::f32(shape))
            }
            Op::Conv2d { .. }
            | Op::MaxPool2d { .. }
            | Op::AvgPool2d { .. }
            | Op::GlobalAvgPool
            | Op::BatchNorm2d { .. } => {
                count(1)?;
                self.infer_image(inputs[0]).map(TensorSpec::f32)
            }
            Op::Relu => {
                count(1)?;
                Ok(inputs[0].clone())
            }
            Op::Flatten => {
                count(1)?;
                Ok(TensorSpec::f32(vec![inputs[0].elements()]))
            }
            Op::Add => {
                count(2)?;
                if inputs[0] != inputs[1] {
                    return Err(format!(
                        "add needs equal shapes, got {} and {}",
                        inputs[0], inputs[1]
                    ));
                }
                Ok(inputs[0].clone())
            }
            Op::SoftmaxCrossEntropy => {
                count(2)?;
                if inputs[0].shape.len() != 1 || inputs[1].dtype != DType::U32 {
                    return Err(format!(
                        "softmax_cross_entropy needs logits [classes] and a target, got {} and {}",
                        inputs[0], inputs[1]
                    ));
                }
                // One scalar per micro-batch, not per sample: see `autodiff`.
                Ok(TensorSpec::f32(vec![]))
            }
        }
    }

    /// Refuses windows that no image has: below the limit, sizes count in 64 bits.
    pub(super) fn check_window(&self) -> Result<(), String> {
        const LIMIT: u64 = 1 << 12;
        let numbers = match self {
            Op::Conv2d { kernel, stride, padding, dilation, .. } => {
                if dilation.contains(&0) {
                    return Err(format!("dilation {dilation:?} must be at least 1"));
                }
                [kernel, stride, padding, dilation]
            }
            Op::MaxPool2d { window: Window { kernel, stride, padding, .. } }
            | Op::AvgPool2d { window: Window { kernel, stride, padding, .. } } => {
                [kernel, stride, padding, padding]
            }
            Op::Input { .. }
            | Op::Target { .. }
            | Op::Linear { .. }
            | Op::GlobalAvgPool
            | Op::Relu
            | Op::BatchNorm2d { .. }
            | Op::Flatten
            | Op::Add
            | Op::SoftmaxCrossEntropy => return Ok(()),
        };
        match numbers.into_iter().flatten().find(|n| **n > LIMIT) {
            Some(n) => Err(format!("{n} is more than the {LIMIT} that a window may have")),
            None => Ok(()),
        }
    }

    /// The output shape of an operation on one image.
    fn infer_image(&self, input: &TensorSpec) -> Result<Vec<u64>, String> {
        let [c, h, w] = image(input)?;
        match self {
            Op::Conv2d { out_channels, kernel, stride, padding, dilation, groups, .. } => {
                if *groups == 0 || c % groups != 0 || out_channels % groups != 0 {
                    return Err(format!(
                        "{c} input and {out_channels} output channels do not divide into \
                         {groups} groups"
                    ));
                }
                let out = |i: usize, size: u64| {
                    let span = dilation[i] * (kernel[i].saturating_sub(1)) + 1;
                    slide(size, span, stride[i], padding[i], false)
                };
                Ok(vec![*out_channels, out(0, h)?, out(1, w)?])
            }
            Op::MaxPool2d { window } | Op::AvgPool2d { window } => {
                Ok(vec![c, window.out(0, h)?, window.out(1, w)?])
            }
            Op::GlobalAvgPool => Ok(vec![c, 1, 1]),
            Op::Input { .. }
            | Op::Target { .. }
            | Op::Linear { .. }
            | Op::BatchNorm2d { .. }
            | Op::Relu
            | Op::Flatten
            | Op::Add
            | Op::SoftmaxCrossEntropy => Ok(input.shape.clone()),
        }
    }

    /// The parameters, in the order in which kernels receive them.
    pub fn params(&self, inputs: &[&TensorSpec]) -> Vec<ParamSpec> {
        let param = |suffix, shape, init, trainable| ParamSpec { suffix, shape, init, trainable };
        match self {
            Op::Linear { out_features, bias } => {
                let fan_in = inputs[0].shape.last().copied().unwrap_or(1);
                let init = Init::HeUniform { fan_in };
                let mut params = vec![param("weight", vec![*out_features, fan_in], init, true)];
                if *bias {
                    params.push(param("bias", vec![*out_features], Init::Zeros, true));
                }
                params
            }
            Op::Conv2d { out_channels, kernel, groups, bias, .. } => {
                let channels = inputs[0].shape[0] / groups;
                let init = Init::HeUniform { fan_in: channels * kernel[0] * kernel[1] };
                let shape = vec![*out_channels, channels, kernel[0], kernel[1]];
                let mut params = vec![param("weight", shape, init, true)];
                if *bias {
                    params.push(param("bias", vec![*out_channels], Init::Zeros, true));
                }
                params
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
            Op::Input { .. }
            | Op::Target { .. }
            | Op::MaxPool2d { .. }
            | Op::AvgPool2d { .. }
            | Op::GlobalAvgPool
            | Op::Relu
            | Op::Flatten
            | Op::Add
            | Op::SoftmaxCrossEntropy => vec![],
        }
    }

    /// Floating-point operations of the forward pass of one sample; a multiply-add counts two.
    pub fn forward_flops(&self, inputs: &[&TensorSpec], output: &TensorSpec) -> u64 {
        match self {
            Op::Input { .. } | Op::Target { .. } | Op::Flatten => 0,
            Op::Linear { .. } => {
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
            Op::Relu | Op::Add => output.elements(),
            Op::BatchNorm2d { .. } => 8 * output.elements(),
            Op::SoftmaxCrossEntropy => 5 * inputs[0].elements(),
        }
    }
}

impl Window {
    /// Output size along spatial axis `axis` of `size` elements.
    ///
    /// # Errors
    /// When no window fits.
    pub fn out(&self, axis: usize, size: u64) -> Result<u64, String> {
        slide(size, self.kernel[axis], self.stride[axis], self.padding[axis], self.ceil_mode)
    }
}

fn image(spec: &TensorSpec) -> Result<[u64; 3], String> {
    <[u64; 3]>::try_from(spec.shape.as_slice())
        .map_err(|_| format!("needs [channels, rows, columns], got {spec}"))
}

/// Number of windows of `span` elements, `stride` apart, over `size` elements with `padding`.
fn slide(size: u64, span: u64, stride: u64, padding: u64, ceil: bool) -> Result<u64, String> {
    let padded = size + 2 * padding;
    if span == 0 || stride == 0 || padded < span {
        return Err(format!("a window of {span} by step {stride} does not fit {padded} elements"));
    }
    let room = padded - span;
    let mut count = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
    // As in PyTorch, a window that would begin in the right padding is dropped.
    if ceil && (count - 1) * stride >= size + padding {
        count -= 1;
    }
    Ok(count)
}
