//! Execution of a rank's program.
//!
//! [`Rank`] interprets instructions, one step at a time; [`train`](crate::train) is the loop around it.
//! Neither knows the schedule's name.

mod activation_compression;
mod arena;
mod compute;
mod data_parallel;
mod divided;
mod divided_gradients;
mod error;
mod error_feedback;
mod expert_parallel;
mod fault_injection;
mod fusion;
mod gradient_guard;
mod gradients;
mod image_layouts;
mod input;
mod loss_scale;
mod measure;
mod memory;
mod messages;
mod outputs;
mod packed_sum;
mod persistent_state;
mod progress_hook;
mod rank;
mod rate;
mod rehearsal;
mod sequence_parallel;
mod snapshot;
mod tensor_parallel;
mod trace_recorder;

pub use activation_compression::ActivationError;
pub use arena::Arena;
pub use error::RunError;
pub use error_feedback::{ResidualTensor, residual_param};
pub use fault_injection::InjectedFault;
pub use fusion::Fusion;
pub use gradient_guard::Skipped;
pub use image_layouts::ImageLayouts;
pub use loss_scale::LossScale;
pub use measure::Measured;
pub use memory::available_memory;
pub use outputs::Output;
pub use persistent_state::PersistentTensor;
pub use progress_hook::{ProgressHook, StepPhase};
pub use rank::{Batch, Rank, StepCounts};
pub use rate::Rates;
pub use snapshot::Snapshot;
pub use trace_recorder::{RankTrace, TraceRecorder, merge};
