//! What a run tells: progress on rank 0, metrics on every rank, the result record, the summary.

mod curve;
mod history;
mod metrics;
mod progress;
mod result;
mod summary;
mod tensorboard;

pub use curve::{Curve, CurvePoint};
pub use history::{HistoryError, HistoryStep, csv, history};
pub use metrics::{Choice, Metrics, StepRecord};
pub use progress::Progress;
pub use result::{ResultRecord, Status};
pub use summary::summary;
pub use tensorboard::{events, file_name};
