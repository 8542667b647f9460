//! Errors of ranks: who says them, and the exit code that follows.

use crate::checkpoint::CheckpointError;
use crate::device::DeviceError;
use crate::execute::RunError;
use crate::failure::{Code, Failure};
use crate::report::ReportError;
use crate::train::TrainError;
use crate::transport::TransportError;

/// Whether another rank failed first and says why itself.
pub(in crate::commands) fn caused_by_peer(error: &TrainError) -> bool {
    match error {
        TrainError::Run(
            RunError::Transport { source, .. } | RunError::Agreement { source, .. },
        ) => {
            matches!(source, TransportError::Aborted { .. } | TransportError::Gone { .. })
        }
        TrainError::Report(ReportError::Fenced(_))
        | TrainError::Checkpoint { source: CheckpointError::Fenced(_), .. } => true,
        TrainError::Run(
            RunError::Data { .. }
            | RunError::Codec { .. }
            | RunError::Device { .. }
            | RunError::NoFabric { .. },
        )
        | TrainError::Diverged { .. }
        | TrainError::NotFinite { .. }
        | TrainError::Replicas { .. }
        | TrainError::Checkpoint { .. }
        | TrainError::Resume(_)
        | TrainError::Weights(_)
        | TrainError::Report(ReportError::Write { .. }) => false,
    }
}

/// Whether every rank comes to this error at the same moment: one of them says it, and all end by
/// themselves.
pub(super) fn known_to_all(error: &TrainError) -> bool {
    match error {
        TrainError::Diverged { .. }
        | TrainError::NotFinite { .. }
        | TrainError::Replicas { .. }
        | TrainError::Checkpoint { .. }
        | TrainError::Run(RunError::NoFabric { .. })
        | TrainError::Resume(_) => true,
        TrainError::Run(
            RunError::Transport { .. }
            | RunError::Agreement { .. }
            | RunError::Data { .. }
            | RunError::Codec { .. }
            | RunError::Device { .. },
        )
        | TrainError::Weights(_)
        | TrainError::Report(_) => false,
    }
}

/// The exit code for a rank's error.
pub(in crate::commands) fn failure(rank: u32, error: &TrainError) -> Failure {
    let code = match error {
        TrainError::Resume(_) => Code::Usage,
        TrainError::Run(
            RunError::Device { source: DeviceError::OutOfMemory { .. }, .. }
            | RunError::NoFabric { .. },
        ) => Code::Hardware,
        _ if caused_by_peer(error) => Code::Peers,
        _ => Code::Failed,
    };
    Failure::new(code, format!("[rank {rank}] {error}"))
}
