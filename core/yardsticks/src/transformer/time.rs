//! Seconds of an iteration.

use super::layer::{Layer, head};
use super::{Accelerator, Indivisible, Recompute, Training, Transformer};
use pipewright_core::cost::collective::{Algorithm, all_reduce};

/// Seconds of an iteration, by cause; they sum up to [`Iteration::total`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Iteration {
    /// The slowest stage's work on all micro-batches, with launches and tensor-parallel
    /// collectives.
    pub work: f64,
    /// Share of `work` that tensor-parallel collectives take; already counted there.
    pub of_which_tensor: f64,
    /// Filling and draining the pipeline.
    pub bubble: f64,
    /// Messages between stages on the critical path.
    pub messages: f64,
    /// All-reduce of the gradients among replicas.
    pub gradients: f64,
    /// Optimizer and what else is once an iteration.
    pub update: f64,
}

impl Iteration {
    /// The whole iteration.
    pub fn total(&self) -> f64 {
        self.work + self.bubble + self.messages + self.gradients + self.update
    }
}

/// Device and host work beside each other: launches are queued ahead, so that the slower of the
/// two sets the pace; where they are alike some of both shows.
pub(super) fn overlap(device: f64, host: f64) -> f64 {
    (device * device + host * host).sqrt()
}

/// Predicts an iteration. O(1).
///
/// With stage time S (the last stage's, which has the head, is S'), it is
/// `(p - 1) / v S + m S' + messages`: the bubble of (interleaved) 1F1B.
///
/// # Errors
/// When network and devices do not divide.
pub fn iteration(
    model: &Transformer,
    training: &Training,
    on: &Accelerator,
) -> Result<Iteration, Indivisible> {
    training.check(model)?;
    let [p, v, t, d] =
        [training.pipeline, training.chunks, training.tensor, training.data].map(f64::from);
    let micro_batches = f64::from(training.micro_batches());
    let layers = f64::from(model.layers) / p;
    let layer = Layer::new(model, training, on);
    let tensor = layers * (layer.forward_communication + layer.backward_communication);
    let device = layers * (layer.forward + layer.backward) + tensor;
    // Launches of forward and backward kernels; full recompute launches the forward ones again.
    let again = if training.recompute == Recompute::Full { 4.0 / 3.0 } else { 1.0 };
    let host = layers * on.launch_layer * again + on.launch_micro_batch;
    let stage = overlap(device, host);
    let last = overlap(device + head(model, training, on), host);
    let [h, s, b] = [model.hidden, model.sequence, training.micro_batch].map(f64::from);
    let message = if training.pipeline == 1 {
        0.0
    } else {
        // The tensor-parallel group sends one copy together.
        on.stage.latency + 2.0 * b * s * h / t / on.stage.bytes_per_sec
    };
    let parameters =
        (layers * model.layer_parameters() as f64 + model.embedding_parameters() as f64) / t;
    let bytes = on.gradient_bytes * parameters;
    Ok(Iteration {
        work: micro_batches * last,
        of_which_tensor: micro_batches * tensor,
        bubble: (p - 1.0) / v * stage,
        messages: ((micro_batches - 1.0) * v + 2.0 * (p - 1.0)) * message,
        gradients: if d > 1.0 {
            all_reduce(Algorithm::Ring, training.data, bytes, on.data)
        } else {
            0.0
        },
        update: on.move_bytes(on.optimizer_bytes * parameters) + on.constant,
    })
}
