//! Execution of a rank's program.
//!
//! [`Rank`] interprets instructions, one step at a time; [`train`](crate::train) is the loop around it.
//! Neither knows the schedule's name.

mod arena;
mod carried;
mod compute;
mod edges;
mod error;
mod fusion;
mod gradients;
mod injury;
mod input;
mod judge;
mod lasting;
mod loss_scale;
mod measure;
mod memory;
mod messages;
mod outputs;
mod probe;
mod rank;
mod rate;
mod record;
mod replica;
mod snapshot;

pub use arena::Arena;
pub use carried::{CarriedTensor, carried_param};
pub use edges::EdgeError;
pub use error::RunError;
pub use fusion::Fusion;
pub use injury::Injury;
pub use judge::Skipped;
pub use lasting::Lasting;
pub use loss_scale::LossScale;
pub use measure::Measured;
pub use memory::available_memory;
pub use outputs::Output;
pub use probe::{Place, Probe};
pub use rank::{Batch, Rank, StepCounts};
pub use rate::Rates;
pub use record::{RankTrace, Recorder, merge};
pub use snapshot::Snapshot;
