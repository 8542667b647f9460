//! Seconds of one layer and of the head, for one micro-batch on one tensor-parallel device.

use super::{Accelerator, Recompute, Training, Transformer};
use pipewright_core::cost::collective::{Algorithm, all_reduce};

/// Bytes per value of the hidden state that the forward pass moves outside of the
/// tensor-parallel part: two norms (read 2, write 2), two dropouts with residual (read 2 + 2,
/// write 2 and a mask of 1).
const REPLICATED_BYTES: f64 = 22.0;
/// The same inside: GeLU reads and writes 4 h values of 2 bytes.
const SHARDED_BYTES: f64 = 16.0;
/// Per attention score: softmax reads and writes 2, dropout reads 2, writes 2 and a mask of 1.
const SCORE_BYTES: f64 = 9.0;

/// Seconds of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Layer {
    /// Forward pass without communication.
    pub forward: f64,
    /// Backward pass with what is computed again, without communication.
    pub backward: f64,
    /// Tensor-parallel collectives of the forward pass.
    pub forward_communication: f64,
    /// Those of the backward pass.
    pub backward_communication: f64,
}

impl Layer {
    pub fn new(model: &Transformer, training: &Training, on: &Accelerator) -> Self {
        let [h, a, s, b, t] =
            [model.hidden, model.heads, model.sequence, training.micro_batch, training.tensor]
                .map(f64::from);
        let tokens = b * s;
        let linear = on.product(1.0, tokens, 3.0 * h / t, h)
            + on.product(1.0, tokens, h, h / t)
            + on.product(1.0, tokens, 4.0 * h / t, h)
            + on.product(1.0, tokens, h, 4.0 * h / t);
        let scores = b * a / t;
        let core = on.product(scores, s, s, h / a)
            + on.product(scores, s, h / a, s)
            + on.move_bytes(SCORE_BYTES * scores * s * s);
        let replicated =
            if training.sequence_parallel { REPLICATED_BYTES / t } else { REPLICATED_BYTES };
        let element_wise = on.move_bytes((replicated + SHARDED_BYTES / t) * tokens * h);
        let forward = linear + core + element_wise;
        let again = match training.recompute {
            Recompute::None => 0.0,
            Recompute::Selective => core,
            Recompute::Full => forward,
        };
        let one = all_reduce(Algorithm::Ring, training.tensor, 2.0 * tokens * h, on.tensor);
        // Full recompute repeats the forward pass with its collectives; sequence parallelism
        // gathers the layer's inputs once more, an all-gather: half an all-reduce.
        let backward_collectives = match training.recompute {
            Recompute::Full => 4.0,
            Recompute::None | Recompute::Selective => 2.0,
        } + if training.sequence_parallel { 0.5 } else { 0.0 };
        Self {
            forward,
            backward: 2.0 * forward + again,
            forward_communication: 2.0 * one,
            backward_communication: backward_collectives * one,
        }
    }
}

/// Seconds of logits and loss, forward and backward.
pub(super) fn head(model: &Transformer, training: &Training, on: &Accelerator) -> f64 {
    let [h, s, b, t] =
        [model.hidden, model.sequence, training.micro_batch, training.tensor].map(f64::from);
    let vocabulary = f64::from(model.vocabulary) / t;
    3.0 * on.product(1.0, b * s, vocabulary, h) + on.move_bytes(on.logit_bytes * b * s * vocabulary)
}
