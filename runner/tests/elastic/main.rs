//! Elastic jobs with real processes: ranks, members and supervisors that die, join, stop.

mod clock;
#[path = "../common/mod.rs"]
mod common;
mod disk;
mod endings;
#[cfg(feature = "etcd")]
mod etcd;
mod job;
mod killed;
mod members;
mod membership;
mod own_policies;
mod reroute;
mod scale;
mod shrink;
mod sick;
mod soak;
