//! Memory of the fullest device.
//!
//! Activations are those of Korthikanti et al. 2022, table 2 and section 4.2.3, in bytes; the
//! first pipeline stage holds p micro-batches of its L / p layers, (1 + (p - 1) / (p v)) times as
//! many when interleaved. Without the embedding's and the head's, as in the paper's figure 1.

use super::{Indivisible, Recompute, Training, Transformer};
use pipewright_core::cost::memory::States;

/// Bytes on one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Kept from forward to backward passes.
    pub activations: f64,
    /// Weights, gradients and optimizer state of the blocks.
    pub states: f64,
}

/// Bytes that a layer keeps of one micro-batch on one device.
///
/// | | no sequence parallelism | sequence parallelism |
/// |---|---|---|
/// | all | s b h (10 + 24 / t + 5 a s / (h t)) | s b h / t (34 + 5 a s / h) |
/// | selective | s b h (10 + 24 / t) | 34 s b h / t |
/// | full | 2 s b h | 2 s b h / t |
pub(super) fn layer_stash(model: &Transformer, training: &Training) -> f64 {
    let [s, b, h, a, t] =
        [model.sequence, training.micro_batch, model.hidden, model.heads, training.tensor]
            .map(f64::from);
    let shared = if training.sequence_parallel { 1.0 / t } else { 1.0 };
    let scores = 5.0 * a * s / (h * t);
    let per_value = match training.recompute {
        Recompute::None => 10.0 * shared + 24.0 / t + scores,
        Recompute::Selective => 10.0 * shared + 24.0 / t,
        Recompute::Full => 2.0 * shared,
    };
    s * b * h * per_value
}

/// Memory of the first stage under (interleaved) 1F1B.
///
/// # Errors
/// When network and devices do not divide.
pub fn memory(
    model: &Transformer,
    training: &Training,
    states: &States,
) -> Result<Memory, Indivisible> {
    training.check(model)?;
    let (p, v) = (f64::from(training.pipeline), f64::from(training.chunks));
    let layers = f64::from(model.layers);
    // p micro-batches in flight where there are so many.
    let in_flight = if training.chunks > 1 {
        p * (1.0 + (p - 1.0) / (p * v))
    } else {
        p.min(f64::from(training.micro_batches()))
    };
    let activations = layer_stash(model, training) * layers / p * in_flight;
    let parameters = u64::from(model.layers / training.pipeline) * model.layer_parameters()
        / u64::from(training.tensor);
    let states = states.bytes(parameters, training.data).total().0 as f64;
    Ok(Memory { activations, states })
}
