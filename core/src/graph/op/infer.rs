//! The shape that each operation gives.

mod experts;
mod layout;

use super::{OPAQUE_FLOPS_MAX, Op, Window};
use crate::graph::tensor::{DType, TensorSpec};
use layout::{broadcast, concat, floats, matmul, scaled_dot_product};

impl Op {
    /// The output of one sample.
    ///
    /// # Errors
    /// A sentence on what the operation needs, when the inputs do not fit.
    pub fn infer(&self, inputs: &[&TensorSpec]) -> Result<TensorSpec, String> {
        let arity = match self {
            Op::Concat { axis } => return concat(inputs, *axis as usize),
            Op::Opaque { output, flops, kept, .. } => {
                if let Some(kept) = kept {
                    kept.check(inputs.len())?;
                }
                if *flops > OPAQUE_FLOPS_MAX {
                    return Err(format!("{flops} operations for a sample are more than 2^56"));
                }
                return Ok(TensorSpec::f32(vec![output.div_ceil(4).max(1)]));
            }
            Op::Input { .. }
            | Op::Target { .. }
            | Op::Tokens { .. }
            | Op::Targets { .. }
            | Op::TargetValues { .. }
            | Op::Parameter { .. } => 0,
            Op::Add
            | Op::Subtract
            | Op::Multiply
            | Op::Divide
            | Op::SwiGlu
            | Op::MatMul { .. }
            | Op::TokenPosition { .. }
            | Op::Dispatch { .. }
            | Op::Combine
            | Op::SoftmaxCrossEntropy { .. }
            | Op::SigmoidCrossEntropy
            | Op::MeanSquaredError => 2,
            Op::ScaledDotProduct { .. } => 3,
            _ => 1,
        };
        match *inputs {
            [] if arity == 0 => self.infer_source(),
            [input] if arity == 1 => self.infer_one(input),
            [a, b] if arity == 2 => self.infer_two(a, b),
            [q, k, v] if arity == 3 => scaled_dot_product(q, k, v),
            _ => Err(format!("{} needs {arity} inputs, got {}", self.name(), inputs.len())),
        }
    }

    fn infer_source(&self) -> Result<TensorSpec, String> {
        match self {
            Op::Input { shape } | Op::TargetValues { shape } | Op::Parameter { shape, .. } => {
                match shape.contains(&0) {
                    true => Err(format!("{} shape {shape:?} has an empty axis", self.name())),
                    false => Ok(TensorSpec::f32(shape.clone())),
                }
            }
            Op::Tokens { length: 0, .. } | Op::Targets { count: 0, .. } => {
                Err("needs at least one position".into())
            }
            Op::Tokens { length: n, .. } | Op::Targets { count: n, .. } => {
                Ok(TensorSpec { shape: vec![*n], dtype: DType::U32 })
            }
            _ => Ok(TensorSpec { shape: vec![], dtype: DType::U32 }),
        }
    }

    fn infer_one(&self, input: &TensorSpec) -> Result<TensorSpec, String> {
        match self {
            Op::Linear { out_features, .. } => {
                let mut shape = input.shape.clone();
                *shape.last_mut().ok_or("linear needs at least one axis")? = *out_features;
                Ok(TensorSpec::f32(shape))
            }
            Op::Relu
            | Op::Activation { .. }
            | Op::Clip { .. }
            | Op::Affine { .. }
            | Op::Dropout { .. }
            | Op::Softmax
            | Op::LogSoftmax => floats(input).cloned(),
            Op::GroupNorm { groups, .. } => match input.shape.first() {
                Some(c) if *groups > 0 && c.is_multiple_of(*groups) => Ok(input.clone()),
                _ => Err(format!("{input} has no channels that divide into {groups} groups")),
            },
            Op::Flatten => Ok(TensorSpec::f32(vec![input.elements()])),
            Op::TopKSoftmax { k, .. } => experts::top_k(input, *k),
            Op::GroupedLinear { out_features } => experts::grouped(input, *out_features),
            Op::Slice { .. } | Op::Permute { .. } | Op::Reshape { .. } | Op::ReduceMean { .. } => {
                self.infer_layout(input)
            }
            Op::Embedding { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::Attention { .. }
            | Op::FirstPosition
            | Op::Rope { .. }
            | Op::TiedLinear { .. } => self.infer_sequence(input),
            _ => self.infer_image(input).map(TensorSpec::f32),
        }
    }

    fn infer_two(&self, a: &TensorSpec, b: &TensorSpec) -> Result<TensorSpec, String> {
        match self {
            Op::SoftmaxCrossEntropy { .. } | Op::SigmoidCrossEntropy => self.infer_loss(a, b),
            Op::MeanSquaredError if a == b => floats(a).map(|_| TensorSpec::f32(vec![])),
            Op::MatMul { transpose_b } => matmul(a, b, *transpose_b),
            Op::Dispatch { experts, capacity } => experts::dispatch(a, b, [*experts, *capacity]),
            Op::Combine => experts::combine(a, b),
            Op::TokenPosition { .. } => match (&floats(a)?.shape[..], &b.shape[..], b.dtype) {
                ([length, rest @ ..], [tokens], DType::U32)
                    if length == tokens && !rest.is_empty() =>
                {
                    Ok(TensorSpec::f32(rest.to_vec()))
                }
                _ => Err(format!("needs [length, features] and tokens [length], got {a} and {b}")),
            },
            Op::Add | Op::Subtract | Op::Multiply | Op::Divide => broadcast(self.name(), a, b),
            _ if a != b => Err(format!("{} needs equal shapes, got {a} and {b}", self.name())),
            _ => Ok(a.clone()),
        }
    }

    /// Refuses windows that no image has: below the limit, sizes count in 64 bits. And shares that
    /// are none.
    pub(in crate::graph) fn check_window(&self) -> Result<(), String> {
        const LIMIT: u64 = 1 << 12;
        let numbers = match self {
            Op::Conv2d { kernel, stride, padding, dilation, .. } => {
                if dilation.contains(&0) {
                    return Err(format!("dilation {dilation:?} must be at least 1"));
                }
                [kernel, stride, padding, dilation]
            }
            Op::ConvTranspose2d { kernel, stride, padding, output_padding, .. } => {
                [kernel, stride, padding, output_padding]
            }
            Op::MaxPool2d { window: Window { kernel, stride, padding, .. } }
            | Op::AvgPool2d { window: Window { kernel, stride, padding, .. }, .. } => {
                [kernel, stride, padding, padding]
            }
            Op::Upsample { factor, .. } if *factor > LIMIT => {
                return Err(format!("a factor of {factor} is more than {LIMIT}"));
            }
            Op::Dropout { probability: share }
            | Op::SoftmaxCrossEntropy { label_smoothing: share }
                if !(0.0..1.0).contains(share) =>
            {
                return Err(format!("a share of {share} must be at least 0 and below 1"));
            }
            _ => return Ok(()),
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
                check_groups(c, *out_channels, *groups)?;
                let out = |i: usize, size: u64| {
                    let span = dilation[i] * (kernel[i].saturating_sub(1)) + 1;
                    slide(size, span, stride[i], padding[i], false)
                };
                Ok(vec![*out_channels, out(0, h)?, out(1, w)?])
            }
            Op::ConvTranspose2d {
                out_channels,
                kernel,
                stride,
                padding,
                output_padding,
                groups,
                ..
            } => {
                check_groups(c, *out_channels, *groups)?;
                let out = |i: usize, size: u64| {
                    enlarge(size, kernel[i], stride[i], padding[i], output_padding[i])
                };
                Ok(vec![*out_channels, out(0, h)?, out(1, w)?])
            }
            Op::MaxPool2d { window } | Op::AvgPool2d { window, .. } => {
                Ok(vec![c, window.out(0, h)?, window.out(1, w)?])
            }
            Op::GlobalAvgPool => Ok(vec![c, 1, 1]),
            Op::Upsample { factor, .. } => match (h.checked_mul(*factor), w.checked_mul(*factor)) {
                (Some(h), Some(w)) if *factor > 0 => Ok(vec![c, h, w]),
                _ => Err(format!("cannot repeat {h} x {w} pixels {factor} times")),
            },
            _ => Ok(input.shape.clone()),
        }
    }

    /// The output of an operation on positions with features.
    fn infer_sequence(&self, input: &TensorSpec) -> Result<TensorSpec, String> {
        let mut shape = input.shape.clone();
        match self {
            Op::Embedding { features, positions, .. } => {
                if input.dtype != DType::U32 || shape.len() != 1 {
                    return Err(format!("needs tokens [length], got {input}"));
                }
                if *positions > 0 && *positions < shape[0] {
                    return Err(format!("{positions} positions for {} tokens", shape[0]));
                }
                shape.push(*features);
                return Ok(TensorSpec::f32(shape));
            }
            Op::FirstPosition => {
                if shape.len() < 2 {
                    return Err(format!("needs [length, features], got {input}"));
                }
                shape.remove(0);
                return Ok(TensorSpec::f32(shape));
            }
            _ => {}
        }
        let last = shape.last_mut().ok_or("needs at least one axis")?;
        match self {
            Op::TiedLinear { out_features, .. } => *last = *out_features,
            Op::Rope { .. } if !last.is_multiple_of(2) => {
                return Err(format!("needs an even number of features, got {last}"));
            }
            Op::Attention { heads, kv_heads, .. } => {
                let parts = kv_heads.checked_mul(2).and_then(|kv| heads.checked_add(kv));
                let shared = *heads > 0 && *kv_heads > 0 && heads.is_multiple_of(*kv_heads);
                match parts.filter(|parts| shared && last.is_multiple_of(*parts)) {
                    Some(parts) => *last = *last / parts * heads,
                    None => {
                        return Err(format!(
                            "{heads} heads with {kv_heads} for keys and values do not divide \
                             {last} features"
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(TensorSpec::f32(shape))
    }

    /// One scalar per micro-batch, not per sample: see `autodiff`.
    fn infer_loss(&self, logits: &TensorSpec, target: &TensorSpec) -> Result<TensorSpec, String> {
        let fits = match self {
            Op::SigmoidCrossEntropy => logits.elements() == target.elements(),
            _ => logits.shape.split_last().is_some_and(|(_, at)| at == target.shape),
        };
        if !fits || target.dtype != DType::U32 {
            let what = match self {
                Op::SigmoidCrossEntropy => "a logit per target",
                _ => "logits [classes] and a target",
            };
            return Err(format!("{} needs {what}, got {logits} and {target}", self.name()));
        }
        Ok(TensorSpec::f32(vec![]))
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

fn check_groups(c: u64, out_channels: u64, groups: u64) -> Result<(), String> {
    match groups > 0 && c.is_multiple_of(groups) && out_channels.is_multiple_of(groups) {
        true => Ok(()),
        false => Err(format!(
            "{c} input and {out_channels} output channels do not divide into {groups} groups"
        )),
    }
}

/// Output size of a transposed convolution.
fn enlarge(size: u64, kernel: u64, stride: u64, padding: u64, extra: u64) -> Result<u64, String> {
    let whole = size.saturating_sub(1).checked_mul(stride).map(|n| n + kernel + extra);
    match whole.and_then(|n| n.checked_sub(2 * padding)) {
        Some(out) if out > 0 && kernel > 0 && stride > 0 && extra < stride => Ok(out),
        _ => Err(format!(
            "kernel {kernel}, stride {stride}, padding {padding} and output padding {extra} give \
             no image"
        )),
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
