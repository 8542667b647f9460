//! The shape that each operation gives.

use super::{Op, Window};
use crate::graph::tensor::{DType, TensorSpec};

impl Op {
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
            | Op::InstanceNorm2d { .. }
            | Op::LocalResponseNorm { .. }
            | Op::Upsample { .. }
            | Op::BatchNorm2d { .. } => {
                count(1)?;
                self.infer_image(inputs[0]).map(TensorSpec::f32)
            }
            Op::Relu | Op::Activation { .. } => {
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
            Op::SoftmaxCrossEntropy | Op::SigmoidCrossEntropy => {
                count(2)?;
                self.infer_loss(inputs[0], inputs[1])
            }
            Op::Tokens { length: 0, .. } | Op::Targets { count: 0, .. } => {
                Err("needs at least one position".into())
            }
            Op::Tokens { length: n, .. } | Op::Targets { count: n, .. } => {
                count(0)?;
                Ok(TensorSpec { shape: vec![*n], dtype: DType::U32 })
            }
            Op::Embedding { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::Attention { .. }
            | Op::FirstPosition
            | Op::TiedLinear { .. } => {
                count(1)?;
                self.infer_sequence(inputs[0])
            }
            Op::Multiply => {
                count(2)?;
                if inputs[0] != inputs[1] {
                    let (a, b) = (inputs[0], inputs[1]);
                    return Err(format!("multiply needs equal shapes, got {a} and {b}"));
                }
                Ok(inputs[0].clone())
            }
            Op::Concat => concat(inputs),
            Op::Opaque { output, .. } => Ok(TensorSpec::f32(vec![output.div_ceil(4).max(1)])),
        }
    }

    /// Refuses windows that no image has: below the limit, sizes count in 64 bits.
    pub(in crate::graph) fn check_window(&self) -> Result<(), String> {
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
            Op::Upsample { factor } if *factor > LIMIT => {
                return Err(format!("a factor of {factor} is more than {LIMIT}"));
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
            Op::Upsample { factor } => match (h.checked_mul(*factor), w.checked_mul(*factor)) {
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

fn concat(inputs: &[&TensorSpec]) -> Result<TensorSpec, String> {
    let (first, rest) = inputs.split_first().ok_or("concat needs at least one input")?;
    let mut shape = first.shape.clone();
    for input in rest {
        let same = input.dtype == first.dtype && input.shape.get(1..) == first.shape.get(1..);
        match input.shape.first().and_then(|n| shape.first()?.checked_add(*n)) {
            Some(sum) if same => shape[0] = sum,
            _ => return Err(format!("concat cannot join {input} to {first}")),
        }
    }
    Ok(TensorSpec { shape, dtype: first.dtype })
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
