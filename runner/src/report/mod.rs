//! What a run tells: progress on rank 0, metrics on every rank, the result record, the summary.

mod metrics;
mod progress;
mod result;
mod summary;

pub use metrics::{Metrics, StepReport};
pub use progress::Progress;
pub use result::{ResultRecord, Status};
pub use summary::summary;
