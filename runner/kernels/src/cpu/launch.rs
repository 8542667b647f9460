//! Dispatch of computations to kernels.

use super::{
    activation, attention, broadcast, conv, dropout, elementwise, embedding, experts, grouped,
    layout, linear,
};
use super::{
    batch_norm, group_norm, layer_norm, local_response, loss, pool, product, rope, softmax,
    upsample,
};
use crate::{Call, Operands};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Graph, Interpolation, Node, Op, TensorSpec};

/// The first node of a network that this device cannot compute.
pub fn without_kernel(graph: &Graph) -> Option<&Node> {
    graph.nodes().iter().find(|node| !has_kernel(&node.op))
}

/// The list is complete, so that whoever adds an operation decides here.
fn has_kernel(op: &Op) -> bool {
    match op {
        Op::Input { .. }
        | Op::Target { .. }
        | Op::Tokens { .. }
        | Op::Targets { .. }
        | Op::Linear { .. }
        | Op::TiedLinear { .. }
        | Op::Conv2d { .. }
        | Op::ConvTranspose2d { .. }
        | Op::MaxPool2d { .. }
        | Op::AvgPool2d { .. }
        | Op::GlobalAvgPool
        | Op::Upsample { .. }
        | Op::Relu
        | Op::Activation { .. }
        | Op::Clip { .. }
        | Op::Affine { .. }
        | Op::SwiGlu
        | Op::BatchNorm2d { .. }
        | Op::LayerNorm { .. }
        | Op::RmsNorm { .. }
        | Op::GroupNorm { .. }
        | Op::InstanceNorm2d { .. }
        | Op::LocalResponseNorm { .. }
        | Op::Flatten
        | Op::Reshape { .. }
        | Op::Slice { .. }
        | Op::Permute { .. }
        | Op::Concat { .. }
        | Op::FirstPosition
        | Op::TokenPosition { .. }
        | Op::Add
        | Op::Subtract
        | Op::Multiply
        | Op::Divide
        | Op::ReduceMean { .. }
        | Op::MatMul { .. }
        | Op::Softmax
        | Op::LogSoftmax
        | Op::TopKSoftmax { .. }
        | Op::Dispatch { .. }
        | Op::GroupedLinear { .. }
        | Op::Combine
        | Op::Attention { .. }
        | Op::ScaledDotProduct { .. }
        | Op::Rope { .. }
        | Op::Embedding { .. }
        | Op::Parameter { .. }
        | Op::Dropout { .. }
        | Op::TargetValues { .. }
        | Op::SoftmaxCrossEntropy { .. }
        | Op::SigmoidCrossEntropy
        | Op::MeanSquaredError => true,
        Op::Opaque { .. } => false,
    }
}

/// Runs one computation.
///
/// Nothing can fail: shapes were checked when the graph was made, sizes when memory was planned.
///
/// # Panics
/// On a computation that autodiff never makes, or operands of the wrong size.
pub fn launch(call: &Call, operands: Operands) {
    check_sizes(call, &operands);
    match call.kind {
        ComputationKind::Forward => forward(call, operands),
        ComputationKind::InputGradient => input_gradient(call, operands),
        ComputationKind::WeightGradient => weight_gradient(call, operands),
        ComputationKind::SumGradients => elementwise::sum(call, operands),
        ComputationKind::PartialLoss => loss::vocabulary::partial(call, operands),
        ComputationKind::AllGather
        | ComputationKind::ReduceScatter
        | ComputationKind::Scatter
        | ComputationKind::RowsToExperts
        | ComputationKind::RowsToTokens => never(call),
    }
}

fn forward(call: &Call, operands: Operands) {
    match call.op {
        Op::Linear { .. } | Op::TiedLinear { .. } => linear::forward(call, operands),
        Op::Conv2d { .. } => conv::forward(call, operands),
        Op::ConvTranspose2d { .. } => conv::transposed_forward(call, operands),
        Op::MaxPool2d { window } => pool::max_forward(call, window, operands),
        Op::AvgPool2d { window, count_padding } => {
            pool::avg_forward(call, window, *count_padding, operands);
        }
        Op::GlobalAvgPool => pool::global_avg_forward(call, operands),
        Op::Upsample { factor, mode: Interpolation::Nearest } => {
            upsample::nearest_forward(call, *factor, operands);
        }
        Op::Upsample { factor, mode: Interpolation::Bilinear } => {
            upsample::bilinear_forward(call, *factor, operands);
        }
        Op::Relu => elementwise::relu_forward(call, operands),
        Op::Activation { function } => activation::forward(call, *function, operands),
        Op::Clip { min, max } => activation::clip_forward(call, *min, *max, operands),
        Op::Affine { scale, shift } => {
            activation::affine_forward(call, *scale, *shift, operands);
        }
        Op::SwiGlu => activation::swiglu_forward(call, operands),
        Op::BatchNorm2d { eps, momentum } => batch_norm::forward(call, *eps, *momentum, operands),
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => layer_norm::forward(call, operands),
        Op::GroupNorm { .. } | Op::InstanceNorm2d { .. } => group_norm::forward(call, operands),
        Op::LocalResponseNorm { .. } => local_response::forward(call, operands),
        Op::Slice { axis, start, step, .. } => {
            layout::slice_forward(call, *axis as usize, *start, *step, operands);
        }
        Op::Permute { axes } => layout::permute_forward(call, axes, operands),
        Op::Concat { axis } => layout::concat_forward(call, *axis as usize, operands),
        Op::FirstPosition => layout::first_forward(call, operands),
        Op::TokenPosition { token } => layout::token_forward(call, *token, operands),
        Op::Add | Op::Subtract | Op::Multiply | Op::Divide => {
            broadcast::binary_forward(call, operands);
        }
        Op::ReduceMean { axes, .. } => broadcast::mean_forward(call, axes, operands),
        Op::MatMul { .. } => product::forward(call, operands),
        Op::Softmax => softmax::forward(call, operands),
        Op::LogSoftmax => softmax::log_forward(call, operands),
        Op::TopKSoftmax { k, normalize } => softmax::top_k_forward(call, *k, *normalize, operands),
        Op::Dispatch { .. } => experts::dispatch_forward(call, operands),
        Op::GroupedLinear { .. } => grouped::forward(call, operands),
        Op::Combine => experts::combine_forward(call, operands),
        Op::Attention { .. } => attention::packed_forward(call, operands),
        Op::ScaledDotProduct { .. } => attention::separate_forward(call, operands),
        Op::Rope { base, scaling } => rope::rotate(call, *base, *scaling, 1.0, operands),
        Op::Embedding { .. } => embedding::forward(call, operands),
        Op::Parameter { .. } => broadcast::parameter_forward(call, operands),
        Op::Dropout { probability } => dropout::apply(call, *probability, operands),
        Op::SoftmaxCrossEntropy { label_smoothing } => match call.shard.degree {
            1 => loss::softmax::forward(call, *label_smoothing, operands),
            _ => loss::vocabulary::forward(call, *label_smoothing, operands),
        },
        Op::SigmoidCrossEntropy => loss::sigmoid::forward(call, operands),
        Op::MeanSquaredError => loss::squared::forward(call, operands),
        _ => never(call),
    }
}

fn input_gradient(call: &Call, operands: Operands) {
    match call.op {
        Op::Linear { .. } | Op::TiedLinear { .. } => linear::input_gradient(call, operands),
        Op::Conv2d { .. } => conv::input_gradient(call, operands),
        Op::ConvTranspose2d { .. } => conv::transposed_input_gradient(call, operands),
        Op::MaxPool2d { .. } => pool::max_input_gradient(call, operands),
        Op::AvgPool2d { window, count_padding } => {
            pool::avg_input_gradient(call, window, *count_padding, operands);
        }
        Op::GlobalAvgPool => pool::global_avg_input_gradient(call, operands),
        Op::Upsample { factor, mode: Interpolation::Nearest } => {
            upsample::nearest_input_gradient(call, *factor, operands);
        }
        Op::Upsample { factor, mode: Interpolation::Bilinear } => {
            upsample::bilinear_input_gradient(call, *factor, operands);
        }
        Op::Relu => elementwise::relu_input_gradient(call, operands),
        Op::Activation { function } => activation::input_gradient(call, *function, operands),
        Op::Clip { min, max } => activation::clip_input_gradient(call, *min, *max, operands),
        Op::Affine { scale, .. } => activation::affine_input_gradient(call, *scale, operands),
        Op::SwiGlu => activation::swiglu_input_gradient(call, operands),
        Op::BatchNorm2d { .. } => batch_norm::input_gradient(call, operands),
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => layer_norm::input_gradient(call, operands),
        Op::GroupNorm { .. } | Op::InstanceNorm2d { .. } => {
            group_norm::input_gradient(call, operands)
        }
        Op::LocalResponseNorm { .. } => local_response::input_gradient(call, operands),
        Op::Slice { axis, start, step, .. } => {
            layout::slice_input_gradient(call, *axis as usize, *start, *step, operands);
        }
        Op::Permute { axes } => layout::permute_input_gradient(call, axes, operands),
        Op::Concat { axis } => layout::concat_input_gradient(call, *axis as usize, operands),
        Op::FirstPosition => layout::first_input_gradient(call, operands),
        Op::TokenPosition { token } => layout::token_input_gradient(call, *token, operands),
        Op::Add | Op::Subtract | Op::Multiply | Op::Divide => {
            broadcast::binary_input_gradient(call, operands);
        }
        Op::ReduceMean { axes, .. } => broadcast::mean_input_gradient(call, axes, operands),
        Op::MatMul { .. } => product::input_gradient(call, operands),
        Op::Softmax => softmax::input_gradient(call, operands),
        Op::LogSoftmax => softmax::log_input_gradient(call, operands),
        Op::TopKSoftmax { normalize, .. } => {
            softmax::top_k_input_gradient(call, *normalize, operands);
        }
        Op::Dispatch { .. } => experts::dispatch_input_gradient(call, operands),
        Op::GroupedLinear { .. } => grouped::input_gradient(call, operands),
        Op::Combine => experts::combine_input_gradient(call, operands),
        Op::Attention { .. } => attention::packed_input_gradient(call, operands),
        Op::ScaledDotProduct { .. } => attention::separate_input_gradient(call, operands),
        Op::Rope { base, scaling } => rope::rotate(call, *base, *scaling, -1.0, operands),
        Op::Dropout { probability } => dropout::apply(call, *probability, operands),
        Op::SoftmaxCrossEntropy { label_smoothing } => match call.shard.degree {
            1 => loss::softmax::input_gradient(call, *label_smoothing, operands),
            _ => loss::vocabulary::input_gradient(call, *label_smoothing, operands),
        },
        Op::SigmoidCrossEntropy => loss::sigmoid::input_gradient(call, operands),
        Op::MeanSquaredError => loss::squared::input_gradient(call, operands),
        _ => never(call),
    }
}

fn weight_gradient(call: &Call, operands: Operands) {
    match call.op {
        Op::Linear { .. } | Op::TiedLinear { .. } => linear::weight_gradient(call, operands),
        Op::GroupedLinear { .. } => grouped::weight_gradient(call, operands),
        Op::Conv2d { .. } => conv::weight_gradient(call, operands),
        Op::ConvTranspose2d { .. } => conv::transposed_weight_gradient(call, operands),
        Op::BatchNorm2d { .. } => batch_norm::weight_gradient(call, operands),
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => layer_norm::weight_gradient(call, operands),
        Op::GroupNorm { .. } => group_norm::weight_gradient(call, operands),
        Op::Embedding { .. } => embedding::weight_gradient(call, operands),
        Op::Parameter { .. } => broadcast::parameter_weight_gradient(call, operands),
        _ => never(call),
    }
}

/// Sources are loaded, views cost nothing, the inputs of an addition of equal shapes share its
/// gradient, what has no parameters has no weight gradient, what ranks exchange is no work, and what has no kernel
/// was refused.
fn never(call: &Call) {
    unreachable!("no {:?} of {} in a training graph", call.kind, call.op.name())
}

/// What every computation has in common; kernels rely on `chunks_exact` and `zip` seeing whole
/// tensors, which would otherwise hide a short slice.
fn check_sizes(call: &Call, operands: &Operands) {
    let samples = call.samples as usize;
    let words = |spec: &TensorSpec| spec.elements() as usize * samples;
    match call.kind {
        ComputationKind::Forward | ComputationKind::PartialLoss => {
            debug_assert!(operands.reads.len() >= call.inputs.len());
            for (read, spec) in operands.reads.iter().zip(call.inputs) {
                debug_assert_eq!(read.len(), words(spec), "input of {}", call.op.name());
            }
            if !call.op.is_loss() {
                debug_assert_eq!(operands.writes[0].len(), words(call.output));
            }
        }
        ComputationKind::InputGradient => {
            let wanted = (0..).zip(call.inputs).filter(|(slot, _)| call.wants(*slot));
            for (write, (_, spec)) in operands.writes.iter().zip(wanted) {
                debug_assert_eq!(write.len(), words(spec), "gradient of {}", call.op.name());
            }
        }
        ComputationKind::WeightGradient => {
            debug_assert!(operands.writes.is_empty());
            let specs = call.inputs.iter().take(1).copied().chain([call.output]);
            for (read, spec) in operands.reads.iter().zip(specs) {
                debug_assert_eq!(read.len(), words(spec));
            }
        }
        ComputationKind::SumGradients => {
            for read in operands.reads {
                debug_assert_eq!(read.len(), operands.writes[0].len());
            }
        }
        ComputationKind::AllGather
        | ComputationKind::ReduceScatter
        | ComputationKind::Scatter
        | ComputationKind::RowsToExperts
        | ComputationKind::RowsToTokens => {}
    }
}
