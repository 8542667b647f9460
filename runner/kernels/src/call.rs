//! Call: what a device is asked to compute of a training graph, with what numbers, on which tensors.

use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Op, TensorSpec};
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
    /// Of an input gradient: bit `i` is set when the gradient of input `i` is written.
    pub wanted: u64,
    /// Threads of the caller's [`thread_pool`](crate::cpu::thread_pool) that may take part; 0 and 1 both mean the caller alone.
    pub threads: usize,
    /// What random numbers follow from.
    pub draw: Draw,
    /// Which of the step's micro-batches this is.
    pub turn: Turn,
    /// How results are stored: a sum of gradients rounds after every term, so that it does not
    /// matter which of them came from another device. In fp8 a linear layer multiplies rounded factors.
    pub precision: Precision,
    /// Of a table or a loss: which entries of the vocabulary this rank has; of tokens' rows: which experts. Of dropout:
    /// which positions of a sample.
    pub shard: Shard,
}

/// What a rank of a tensor group has: entries of a vocabulary, experts or positions, all ranks equally many, but entries
/// beyond the whole vocabulary are nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Place in the group.
    pub tensor_rank: u32,
    /// Ranks of the group; 1: nothing is divided.
    pub degree: u32,
    /// Entries of the whole vocabulary, where it is divided.
    pub vocabulary: u64,
}

impl Default for Shard {
    /// All of them.
    fn default() -> Self {
        Self { tensor_rank: 0, degree: 1, vocabulary: 0 }
    }
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
    /// Values read, in the order of the table at `Computation`. Empty where the gradient of what a loss judges is written
    /// over it: it is among the values written.
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

impl Call<'_> {
    /// Whether the gradient of input `slot` is written.
    pub(crate) fn wants(&self, slot: usize) -> bool {
        self.wanted >> slot & 1 == 1
    }
}
