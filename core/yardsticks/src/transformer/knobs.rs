//! An accelerator's numbers from measured iterations.

use super::{Accelerator, Training, Transformer, iteration};
use pipewright_core::cost::calibrate::{CalibrateError, Fit, Parameter, fit};

/// A number of an accelerator that measurements can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// Efficiency of matrix products.
    Products,
    /// Efficiency of the memory.
    Memory,
    /// Launches per layer.
    LaunchLayer,
    /// Launches per micro-batch.
    LaunchMicroBatch,
    /// Bytes per logit.
    Logits,
    /// Bandwidth among replicas.
    DataLink,
    /// Bandwidth of the tensor-parallel collectives.
    TensorLink,
    /// Start-up of the tensor-parallel collectives.
    TensorLatency,
    /// Bytes per parameter of the optimizer.
    Optimizer,
    /// Once an iteration.
    Constant,
}

/// A measured iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The network.
    pub model: Transformer,
    /// How it was trained; checked by the caller.
    pub training: Training,
    /// Seconds.
    pub secs: f64,
}

impl Knob {
    fn field(self, of: &mut Accelerator) -> &mut f64 {
        match self {
            Self::Products => &mut of.product_efficiency,
            Self::Memory => &mut of.memory_efficiency,
            Self::LaunchLayer => &mut of.launch_layer,
            Self::LaunchMicroBatch => &mut of.launch_micro_batch,
            Self::Logits => &mut of.logit_bytes,
            Self::DataLink => &mut of.data.bytes_per_sec,
            Self::TensorLink => &mut of.tensor.bytes_per_sec,
            Self::TensorLatency => &mut of.tensor.latency,
            Self::Optimizer => &mut of.optimizer_bytes,
            Self::Constant => &mut of.constant,
        }
    }

    /// Name, sensible range and what to measure.
    fn range(self) -> (&'static str, f64, f64, &'static str) {
        let sizes = "measure other hidden sizes and micro-batches";
        match self {
            Self::Products => ("product_efficiency", 0.05, 1.0, sizes),
            Self::Memory => ("memory_efficiency", 0.05, 1.0, sizes),
            Self::LaunchLayer => ("launch_layer", 0.0, 0.1, "measure small micro-batches"),
            Self::LaunchMicroBatch => {
                ("launch_micro_batch", 0.0, 0.1, "measure small micro-batches of few layers")
            }
            Self::Logits => ("logit_bytes", 0.0, 400.0, "measure few and many layers"),
            Self::DataLink => {
                ("data.bytes_per_sec", 1e8, 3e11, "measure with and without replicas")
            }
            Self::TensorLink => {
                ("tensor.bytes_per_sec", 1e8, 3e11, "measure other tensor-parallel degrees")
            }
            Self::TensorLatency => {
                ("tensor.latency", 0.0, 1e-3, "measure other tensor-parallel degrees")
            }
            Self::Optimizer => ("optimizer_bytes", 0.0, 400.0, "measure few micro-batches"),
            Self::Constant => ("constant", 0.0, 10.0, "measure few micro-batches"),
        }
    }
}

/// Finds the `knobs` of an accelerator from measured iterations; the other numbers stay those of
/// `start`.
///
/// # Errors
/// When the iterations do not determine the knobs.
///
/// # Panics
/// When a training does not divide its model: the caller checked it.
pub fn calibrate(
    start: &Accelerator,
    knobs: &[Knob],
    measured: &[Measured],
) -> Result<(Accelerator, Fit), CalibrateError> {
    let mut scratch = start.clone();
    let parameter = |knob: &Knob| {
        let (name, low, high, advice) = knob.range();
        let start = (*knob.field(&mut scratch)).clamp(low, high);
        Parameter { name, start, low, high, advice }
    };
    let parameters: Vec<Parameter> = knobs.iter().map(parameter).collect();
    let with = |values: &[f64]| {
        let mut accelerator = start.clone();
        for (knob, value) in knobs.iter().zip(values) {
            *knob.field(&mut accelerator) = *value;
        }
        accelerator
    };
    let model = |values: &[f64]| {
        let accelerator = with(values);
        let time = |row: &Measured| {
            let predicted = iteration(&row.model, &row.training, &accelerator);
            predicted.expect("checked by the caller").total()
        };
        measured.iter().map(time).collect()
    };
    let times: Vec<f64> = measured.iter().map(|row| row.secs).collect();
    let found = fit(&parameters, &times, model)?;
    Ok((with(&found.values()), found))
}
