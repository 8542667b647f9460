//! Reports of a run: progress on rank 0, metrics on every rank, the result record, the summary.

mod curve;
mod difference;
mod error;
mod history;
mod lines;
mod metrics;
mod number;
mod outcome;
mod progress;
mod result;
mod summary;
mod tensorboard;

pub use curve::{Curve, CurvePoint};
pub use difference::Difference;
pub use error::ReportError;
pub use history::{HistoryError, HistoryStep, csv, history};
pub use metrics::{Choice, Metrics, StepRecord};
pub use number::loss_text;
pub use outcome::{Outcome, Tested};
pub use progress::Progress;
pub use result::{ResultRecord, Status};
pub use summary::summary;
pub use tensorboard::{events, file_name};
