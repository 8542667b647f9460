//! Jobs that survive: nodes die and join, training goes on.
//!
//! ```text
//!  membership ---.                     .--- watch (processes, heartbeats)
//!  policy -------+---- supervisor -----+--- launch (mpirun)
//!  signals ------'          |          '--- fence, journal, checkpoints
//!                           v
//!                    ranks, each with a RankSession: heartbeat, fence, state of every step in memory
//! ```
//!
//! A *generation* is the ranks from one start or loss to the next. The supervisor has no MPI inside: it
//! starts `mpirun`, and when a rank is lost it ends the others and starts all anew, or has the survivors
//! go on where MPI can (`supervisor/loss.rs`); either way the next generation begins from the newest state.
//! State is a checkpoint that all ranks make together, after every step in memory files and now and
//! then on the disk, so the formats and the rule are those of [`checkpoint`](crate::checkpoint): it
//! exists whole or not at all. A step counts when its state exists; what a generation trained beyond
//! that is trained again by the next, and its metrics are written over. So each step is applied once.

mod debounce;
mod fault_injection;
mod heartbeat;
pub mod journal;
mod launch;
pub mod membership;
mod order;
mod rank_session;
mod restarts;
mod session;
mod straggler;
mod supervisor;
mod watch;

pub use journal::FILE as JOURNAL;
pub use launch::survival;
pub use rank_session::{FAULTS, RankSession, RankSessionSettings, end_with_parent};
pub use session::Session;
pub use supervisor::{Job, OnLoss, Times, supervise};
