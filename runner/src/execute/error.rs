//! Errors of the interpreter: why a rank cannot do its program's next instruction.

use crate::data::DataError;
use crate::device::DeviceError;
use crate::transport::TransportError;
use pipewright_core::compress::CodecError;
use thiserror::Error;

/// Why a rank cannot do what its program says.
#[derive(Debug, Error)]
pub enum RunError {
    /// A message failed.
    #[error("step {step}, instruction {instruction}: {source}")]
    Transport {
        /// The step.
        step: u64,
        /// Position in the rank's program.
        instruction: usize,
        /// What happened.
        source: TransportError,
    },
    /// Ranks could not agree on how to go on.
    #[error("step {step}: {source}")]
    Agreement {
        /// The step.
        step: u64,
        /// What happened.
        source: TransportError,
    },
    /// A sample could not be read.
    #[error("step {step}: data: {source}")]
    Data {
        /// The step, or the round of an evaluation.
        step: u64,
        /// What is wrong, with file and byte.
        source: DataError,
    },
    /// A message between stages could not be encoded or decoded.
    #[error("step {step}, instruction {instruction}: {source}")]
    Codec {
        /// The step.
        step: u64,
        /// Position in the rank's program.
        instruction: usize,
        /// What is wrong with the message.
        source: CodecError,
    },
    /// The device failed.
    #[error("step {step}, instruction {instruction}: {source}")]
    Device {
        /// The step.
        step: u64,
        /// Position in the rank's program.
        instruction: usize,
        /// What is wrong.
        source: DeviceError,
    },
    /// A way between GPUs was asked for, and cannot be used.
    #[error(
        "--transport {asked}: {why}; leave it out, and messages between GPUs go through their hosts where \
         they have to"
    )]
    NoFabric {
        /// `nccl` or `ipc`.
        asked: &'static str,
        /// What stands against it.
        why: String,
    },
}

impl RunError {
    /// Whether a rank was lost, under an MPI that others survive with.
    pub fn is_loss(&self) -> bool {
        match self {
            RunError::Transport { source, .. } | RunError::Agreement { source, .. } => {
                matches!(
                    source,
                    TransportError::Lost { .. } | TransportError::Devices { lost: true, .. }
                )
            }
            _ => false,
        }
    }
}

/// Why an instruction failed.
pub(super) enum StepFault {
    Transport(TransportError),
    Data(DataError),
    Codec(CodecError),
    Device(DeviceError),
}

impl StepFault {
    /// The error of a step, or of a round of an evaluation, at an instruction of the rank's program; past
    /// the last one at its end.
    pub(super) fn at(self, step: u64, instruction: usize) -> RunError {
        match self {
            Self::Transport(source) => RunError::Transport { step, instruction, source },
            Self::Data(source) => RunError::Data { step, source },
            Self::Codec(source) => RunError::Codec { step, instruction, source },
            Self::Device(source) => RunError::Device { step, instruction, source },
        }
    }
}

impl From<DeviceError> for StepFault {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Messages(error) => StepFault::Transport(error),
            error => StepFault::Device(error),
        }
    }
}

impl From<CodecError> for StepFault {
    fn from(error: CodecError) -> Self {
        StepFault::Codec(error)
    }
}

impl From<TransportError> for StepFault {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Device(fault) => match fault.downcast() {
                Some(error) => StepFault::Device(error),
                None => StepFault::Transport(TransportError::Device(fault)),
            },
            error => StepFault::Transport(error),
        }
    }
}

impl From<DataError> for StepFault {
    fn from(error: DataError) -> Self {
        StepFault::Data(error)
    }
}
