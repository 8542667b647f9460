//! Chains: neighbouring computations that a device with kernels for them does together. What one hands on
//! to the next needs no way through memory; it is rounded as if it had gone there.
//!
//! ```text
//! forward   norm [add] [relu]     add relu     add rows
//! backward  [sum] [relu'] norm' [norm weights]     sum relu'     pool' relu'
//!           rows' [rows weights] sum
//! ```
//! Products and convolutions are libraries' and stand alone: what a library does with its result
//! (a ReLU, a GELU) it does before it rounds.

use super::accelerator::Places;
use super::cuda::kernels::MOST_TERMS;
use FusedKind::{
    Add, NormChannels, NormGradient, NormRows, NormWeights, PoolGradient, Relu, ReluGradient,
    RowsGradient, RowsWeights, SumGradients,
};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Op, TensorSpec};
use pipewright_kernels::Call;

/// A computation of a chain.
#[derive(Clone, Copy, Debug)]
pub struct FusedOp<'a> {
    /// The computation.
    pub call: Call<'a>,
    /// Where its tensors lie.
    pub places: Places<'a>,
    /// Whether its value is written where it lies: somebody else reads it than the links behind.
    pub stored: bool,
}

/// What a computation can be in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedKind {
    /// A batch normalisation.
    NormChannels,
    /// The gradient of its input.
    NormGradient,
    /// The gradients of its parameters.
    NormWeights,
    /// A normalisation of rows.
    NormRows,
    /// The gradient of its input.
    RowsGradient,
    /// The gradients of its parameters.
    RowsWeights,
    /// A sum of two tensors of one shape.
    Add,
    /// A sum of gradients, of so many.
    SumGradients(usize),
    /// A rectifier.
    Relu,
    /// The gradient of its input.
    ReluGradient,
    /// The gradient of the input of a pooling by windows.
    PoolGradient,
}

impl FusedKind {
    /// Which one a computation is that reads so many values; none that is not in chains.
    pub fn of(
        op: &Op,
        kind: ComputationKind,
        (inputs, output): (&[&TensorSpec], &TensorSpec),
        reads: usize,
    ) -> Option<Self> {
        use ComputationKind::{Forward, InputGradient, WeightGradient};
        Some(match (kind, op) {
            (ComputationKind::SumGradients, _) => SumGradients(reads),
            (Forward, Op::BatchNorm2d { .. }) => NormChannels,
            (InputGradient, Op::BatchNorm2d { .. }) => NormGradient,
            (WeightGradient, Op::BatchNorm2d { .. }) => NormWeights,
            (Forward, Op::LayerNorm { .. } | Op::RmsNorm { .. }) => NormRows,
            (InputGradient, Op::LayerNorm { .. } | Op::RmsNorm { .. }) => RowsGradient,
            (WeightGradient, Op::LayerNorm { .. } | Op::RmsNorm { .. }) => RowsWeights,
            (Forward, Op::Add) if inputs.iter().all(|input| input.shape == output.shape) => Add,
            (Forward, Op::Relu) => Relu,
            (InputGradient, Op::Relu) => ReluGradient,
            (InputGradient, Op::MaxPool2d { .. } | Op::AvgPool2d { .. }) => PoolGradient,
            _ => return None,
        })
    }

    /// Which one a call is.
    pub fn of_call(call: &Call, reads: usize) -> Option<Self> {
        Self::of(call.op, call.kind, (call.inputs, call.output), reads)
    }

    /// Whether it computes an element of its value from the elements at that place, which no other needs.
    pub fn is_pointwise(self) -> bool {
        matches!(self, Add | SumGradients(_) | Relu | ReluGradient)
    }

    /// How many of the values read, the first ones, are read for the last time where the element of the
    /// value is written that lies at the same place.
    pub fn in_place(self) -> usize {
        match self {
            Add | SumGradients(_) | Relu | ReluGradient => usize::MAX,
            NormChannels | NormRows => 1,
            NormGradient | RowsGradient => 2,
            NormWeights | RowsWeights | PoolGradient => 0,
        }
    }

    /// Whether it reads what the link before the weights' reads, and writes no value.
    pub fn is_weights(self) -> bool {
        matches!(self, NormWeights | RowsWeights)
    }
}

/// Whether a device does `next` together with the links before it.
pub fn can_join(chain: &[FusedKind], next: FusedKind) -> bool {
    // Gradients come to a normalisation of channels summed and through a ReLU, or as they are.
    let comes = match chain {
        [SumGradients(terms)] => *terms <= MOST_TERMS,
        [ReluGradient] => true,
        [SumGradients(_), ReluGradient] => true,
        _ => false,
    };
    match (chain, next) {
        (_, NormGradient) => comes,
        ([SumGradients(_)], ReluGradient) => comes,
        ([.., NormGradient], NormWeights) | ([RowsGradient], RowsWeights) => true,
        ([NormChannels], Add | Relu) | ([NormChannels, Add], Relu) => true,
        ([Add], Relu | NormRows) | ([PoolGradient], ReluGradient) => true,
        ([RowsGradient] | [RowsGradient, RowsWeights], SumGradients(2)) => true,
        _ => false,
    }
}

/// How many links of a chain are worth it: weights' gradients of rows gain by what follows alone.
pub fn worthwhile(chain: &[FusedKind]) -> usize {
    match chain {
        [_] | [RowsGradient, RowsWeights] => 1,
        _ => chain.len(),
    }
}
