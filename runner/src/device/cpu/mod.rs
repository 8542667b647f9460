//! The processor: one safe function per computation of the training graph, the reference that
//! every other device is tested against.
//!
//! Tensors are row-major with the sample axis first. A kernel reads and writes what the table at
//! [`Computation`](pipewright_core::graph::autodiff::Computation) says, allocates nothing, and
//! gives the same bits whatever the number of threads: work is split only where no sum is.

pub mod bf16;
mod chunks;
mod conv;
mod dropout;
mod elementwise;
mod linear;
mod loss;
mod matmul;
mod norm;
mod optimizer;
mod philox;
mod pool;
mod sums;
mod unfold;

pub use matmul::{Matrix, MatrixMut, Product, matmul};
pub use optimizer::{Parameter, Rule, Update, decimal};
pub use sums::squares;

use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Graph, Node, Op, TensorSpec};
use pipewright_core::plan::Precision;

/// Why a computation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Training, for the first time: batch normalisation updates its running statistics.
    Train,
    /// Training, once more because the result was not kept: same output as [`Phase::Train`], but
    /// running statistics were updated already and stay as they are.
    Recompute,
    /// Evaluation: batch normalisation uses its running statistics.
    Evaluate,
}

/// Everything a kernel needs besides data.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The node's operation.
    pub op: &'a Op,
    /// Which part of the training step.
    pub kind: ComputationKind,
    /// Specs of the node's inputs, one sample.
    pub inputs: &'a [&'a TensorSpec],
    /// Spec of the node's output, one sample.
    pub output: &'a TensorSpec,
    /// Samples in the micro-batch.
    pub samples: u64,
    /// Why it runs.
    pub phase: Phase,
    /// 1 / mini-batch: gradients of the loss are scaled by it.
    pub loss_scale: f32,
    /// Threads of rayon's current pool that may take part; 0 and 1 both mean the caller alone.
    pub threads: usize,
    /// What random numbers follow from.
    pub draw: Draw,
    /// Which of the step's micro-batches this is.
    pub turn: Turn,
    /// How results are stored: a sum of gradients rounds after every term, so that it does not
    /// matter which of them came from another device.
    pub precision: Precision,
}

/// What the random numbers of a call follow from: nothing that depends on the split, the number of
/// micro-batches or who computes, so masks are the same everywhere and when made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// The plan's seed.
    pub seed: u64,
    /// The training step.
    pub step: u64,
    /// The node's index in the whole network.
    pub node: u32,
    /// Index in the mini-batch of the micro-batch's first sample.
    pub first_sample: u64,
}

/// A micro-batch's place among those that the device takes through a stage in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Forward passes of the stage before this one, in this step.
    pub index: u32,
    /// Forward passes of the stage in a step.
    pub count: u32,
}

impl Default for Turn {
    /// The only one.
    fn default() -> Self {
        Self { index: 0, count: 1 }
    }
}

/// Tensors as 4-byte words; u32 tensors are the same bytes (`bytemuck::cast_slice`).
#[derive(Debug)]
pub struct Operands<'a, 't> {
    /// Values read, in the order of the table at `Computation`.
    pub reads: &'a [&'t [f32]],
    /// Values written, likewise.
    pub writes: &'a mut [&'t mut [f32]],
    /// All parameters of the node in the order of [`Op::params`]. Only running statistics change.
    pub params: &'a mut [&'t mut [f32]],
    /// One gradient per trainable parameter, in the same order; kernels add to them.
    pub gradients: &'a mut [&'t mut [f32]],
    /// The mini-batch's statistics so far, one per running statistic, when they are deferred.
    pub deferred: &'a mut [&'t mut [f32]],
    /// Scratch of the size that the training graph gives for the computation.
    pub workspace: &'a mut [f32],
}

/// The first node of a network that this device cannot compute.
pub fn without_kernel(graph: &Graph) -> Option<&Node> {
    graph.nodes().iter().find(|node| !has_kernel(&node.op))
}

fn has_kernel(op: &Op) -> bool {
    match op {
        Op::Input { .. }
        | Op::Target { .. }
        | Op::Linear { .. }
        | Op::Conv2d { .. }
        | Op::MaxPool2d { .. }
        | Op::AvgPool2d { .. }
        | Op::GlobalAvgPool
        | Op::Relu
        | Op::BatchNorm2d { .. }
        | Op::Flatten
        | Op::Add
        | Op::Dropout { .. }
        | Op::TargetValues { .. }
        | Op::SoftmaxCrossEntropy { .. }
        | Op::SigmoidCrossEntropy
        | Op::MeanSquaredError => true,
        _ => false,
    }
}

/// Runs one computation.
///
/// Nothing can fail: shapes were checked when the graph was made, sizes when memory was planned.
///
/// # Panics
/// On a computation that autodiff never makes, or operands of the wrong size.
pub fn launch(call: &Call, operands: Operands) {
    use ComputationKind::{Forward, InputGradient, SumGradients, WeightGradient};
    check_sizes(call, &operands);
    match (call.op, call.kind) {
        (_, SumGradients) => elementwise::sum(call, operands),
        (Op::Linear { .. }, Forward) => linear::forward(call, operands),
        (Op::Linear { .. }, InputGradient) => linear::input_gradient(call, operands),
        (Op::Linear { .. }, WeightGradient) => linear::weight_gradient(call, operands),
        (Op::Conv2d { .. }, Forward) => conv::forward(call, operands),
        (Op::Conv2d { .. }, InputGradient) => conv::input_gradient(call, operands),
        (Op::Conv2d { .. }, WeightGradient) => conv::weight_gradient(call, operands),
        (Op::MaxPool2d { window }, Forward) => pool::max_forward(call, window, operands),
        (Op::MaxPool2d { .. }, InputGradient) => pool::max_input_gradient(call, operands),
        (Op::AvgPool2d { window, .. }, Forward) => pool::avg_forward(call, window, operands),
        (Op::AvgPool2d { window, .. }, InputGradient) => {
            pool::avg_input_gradient(call, window, operands);
        }
        (Op::GlobalAvgPool, Forward) => pool::global_avg_forward(call, operands),
        (Op::GlobalAvgPool, InputGradient) => pool::global_avg_input_gradient(call, operands),
        (Op::Relu, Forward) => elementwise::relu_forward(call, operands),
        (Op::Relu, InputGradient) => elementwise::relu_input_gradient(call, operands),
        (Op::BatchNorm2d { eps, momentum }, Forward) => {
            norm::forward(call, *eps, *momentum, operands);
        }
        (Op::BatchNorm2d { .. }, InputGradient) => norm::input_gradient(call, operands),
        (Op::BatchNorm2d { .. }, WeightGradient) => norm::weight_gradient(call, operands),
        (Op::Add, Forward) => elementwise::sum(call, operands),
        (Op::Dropout { probability }, Forward | InputGradient) => {
            dropout::apply(call, *probability, operands);
        }
        (Op::SoftmaxCrossEntropy { label_smoothing }, Forward) => {
            loss::softmax::forward(call, *label_smoothing, operands);
        }
        (Op::SoftmaxCrossEntropy { label_smoothing }, InputGradient) => {
            loss::softmax::input_gradient(call, *label_smoothing, operands);
        }
        (Op::SigmoidCrossEntropy, Forward) => loss::sigmoid::forward(call, operands),
        (Op::SigmoidCrossEntropy, InputGradient) => loss::sigmoid::input_gradient(call, operands),
        (Op::MeanSquaredError, Forward) => loss::squared::forward(call, operands),
        (Op::MeanSquaredError, InputGradient) => loss::squared::input_gradient(call, operands),
        // Sources are loaded, views cost nothing, the inputs of an addition share its gradient,
        // what has no parameters has no weight gradient, and what has no kernel was refused.
        _ => {
            unreachable!("no {:?} of {} in a training graph", call.kind, call.op.name())
        }
    }
}

/// What every computation has in common; kernels rely on `chunks_exact` and `zip` seeing whole
/// tensors, which would otherwise hide a short slice.
fn check_sizes(call: &Call, operands: &Operands) {
    let samples = call.samples as usize;
    let words = |spec: &TensorSpec| spec.elements() as usize * samples;
    match call.kind {
        ComputationKind::Forward => {
            debug_assert_eq!(operands.reads.len(), call.inputs.len());
            for (read, spec) in operands.reads.iter().zip(call.inputs) {
                debug_assert_eq!(read.len(), words(spec), "input of {}", call.op.name());
            }
            if !call.op.is_loss() {
                debug_assert_eq!(operands.writes[0].len(), words(call.output));
            }
        }
        ComputationKind::InputGradient => {
            for (write, spec) in operands.writes.iter().zip(call.inputs) {
                debug_assert_eq!(write.len(), words(spec), "gradient of {}", call.op.name());
            }
        }
        ComputationKind::WeightGradient => {
            debug_assert!(operands.writes.is_empty());
            debug_assert_eq!(operands.reads[0].len(), words(call.inputs[0]));
            debug_assert_eq!(operands.reads[1].len(), words(call.output));
        }
        ComputationKind::SumGradients => {
            for read in operands.reads {
                debug_assert_eq!(read.len(), operands.writes[0].len());
            }
        }
    }
}
