//! Errors of the training loop: why a rank cannot train on.

use crate::checkpoint::CheckpointError;
use crate::execute::RunError;
use crate::report::{Difference, ReportError};
use crate::tensor_file::TensorFileError;
use thiserror::Error;

/// Why a rank cannot train on.
#[derive(Debug, Error)]
pub enum TrainError {
    /// Its program could not be done, or ranks could not agree.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Training diverged.
    #[error("step {step}: the loss is {loss}; lower the learning rate ({rate})")]
    Diverged {
        /// The step.
        step: u64,
        /// Its loss.
        loss: f64,
        /// The learning rate of the step.
        rate: f64,
    },
    /// Too many steps in a row whose gradients are not finite.
    #[error(
        "step {step}: the gradient of `{param}` is not finite, for {steps} steps in a row; none of them \
         was applied. Lower the learning rate ({rate}) or look at the samples of these steps"
    )]
    NotFinite {
        /// The last of them.
        step: u64,
        /// How many.
        steps: u32,
        /// The parameter, as far back from the loss as it began.
        param: String,
        /// The learning rate of the step.
        rate: f64,
    },
    /// Replicas do not have the same weights any more.
    #[error("after step {step}: {difference}")]
    Replicas {
        /// Steps that were trained.
        step: u64,
        /// What differs.
        difference: Box<Difference>,
    },
    /// A checkpoint could not be saved.
    #[error("step {step}: no checkpoint was saved: {source}")]
    Checkpoint {
        /// Steps that were trained.
        step: u64,
        /// What happened.
        source: CheckpointError,
    },
    /// There is no checkpoint to go on from.
    #[error("{0}")]
    Resume(CheckpointError),
    /// Initial weights could not be read.
    #[error("{0}")]
    Weights(#[from] TensorFileError),
    /// Metrics or a trace could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl TrainError {
    /// Whether a rank was lost, under an MPI that others survive with.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Run(error) if error.is_loss())
    }
}
