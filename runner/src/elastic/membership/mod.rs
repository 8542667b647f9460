//! Membership of a job: nodes with leases, a counter of generations, one leader.
//!
//! Two implementations, one behaviour, held to it by one suite of tests: [`local`] needs nothing but
//! the supervisor and serves one machine; `etcd` serves as many as there are and outlives them.
//!
//! A node is there while its lease is renewed. A lease that was not renewed for its time to live
//! is gone, and so is the node, on monotonic clocks alone. A connection that is lost says nothing of
//! the members: what was seen last stays, until it is seen again.

#[cfg(feature = "etcd")]
pub mod etcd;
pub mod local;

use serde::{Deserialize, Serialize};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use thiserror::Error;

/// Time after which a node that is not heard of is gone.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(5);

/// A node, or a part of one, that runs ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique in the job.
    pub name: String,
    /// Ranks that it can run at a time.
    pub slots: u32,
    /// The host as mpirun knows it.
    pub host: String,
    /// Whether it was asked to leave: it is not to get ranks any more.
    #[serde(default)]
    pub leaving: bool,
}

/// Why something about the membership did not come about.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MembershipError {
    /// The name is taken.
    #[error(
        "node `{0}` is a member already; give this one another --name, or wait until it is gone"
    )]
    Taken(String),
    /// Nobody has that name.
    #[error("no member is called `{name}`; there are: {}", if members.is_empty() { "none".into() } else { members.join(", ") })]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        members: Vec<String>,
    },
    /// A name that would break keys and lists of hosts.
    #[error("`{0}` is no name: letters, digits, `.`, `_` and `-`, at most 64")]
    Name(String),
    /// Another process leads the job.
    #[error("another supervisor leads this job")]
    NotLeader,
    /// The counter stands where somebody else has put it.
    #[error("generation {found} has begun elsewhere")]
    Generation {
        /// Where it stands.
        found: u64,
    },
    /// Nobody answers.
    #[error("the coordinator at {address} cannot be reached: {why}")]
    Unreachable {
        /// Where.
        address: String,
        /// What the system says.
        why: String,
    },
}

/// What a watcher hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// All nodes, ascending by name; also after a connection came back.
    Members(Vec<Node>),
    /// Nothing is known until further notice.
    Disconnected(String),
}

/// What a job's leader tells its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct News {
    /// Nodes that have no ranks in the generation that runs.
    pub idle: Vec<String>,
    /// The generation with which the job was done, where it is.
    pub done: Option<u64>,
}

/// How a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It is renewed.
    Yes,
    /// It was not renewed in time.
    Expired,
    /// What it held was removed: the node was told to go.
    Removed,
}

/// Something that is there while it is renewed, by a thread of its own. Dropping it gives it up.
pub trait Lease: Send {
    /// How it stands.
    fn held(&self) -> Held;
}

/// A job's coordinator.
pub trait Membership: Send + Sync {
    /// Makes a node a member while the lease lives.
    ///
    /// # Errors
    /// [`MembershipError::Taken`], [`MembershipError::Name`], [`MembershipError::Unreachable`].
    fn join(&self, node: &Node) -> Result<Box<dyn Lease>, MembershipError>;

    /// Asks a node to leave: it stays until the leader has [removed](Membership::remove) it.
    ///
    /// # Errors
    /// [`MembershipError::Unknown`], [`MembershipError::Unreachable`].
    fn leave(&self, name: &str) -> Result<(), MembershipError>;

    /// Ends a node's membership. That it is no member is no error.
    ///
    /// # Errors
    /// [`MembershipError::Unreachable`].
    fn remove(&self, name: &str) -> Result<(), MembershipError>;

    /// The nodes now.
    ///
    /// # Errors
    /// [`MembershipError::Unreachable`].
    fn members(&self) -> Result<Vec<Node>, MembershipError>;

    /// Hears of every change from now on, beginning with what there is. A lost connection is tried
    /// again for ever; dropping the receiver ends it with the next notice.
    fn watch(&self) -> Receiver<Notice>;

    /// Tells the members something, in place of what was told before.
    ///
    /// # Errors
    /// [`MembershipError::Unreachable`].
    fn tell(&self, news: &News) -> Result<(), MembershipError>;

    /// What was told last.
    ///
    /// # Errors
    /// [`MembershipError::Unreachable`].
    fn news(&self) -> Result<News, MembershipError>;

    /// Leads the job while the lease lives.
    ///
    /// # Errors
    /// [`MembershipError::NotLeader`] while somebody else does.
    fn lead(&self, who: &str) -> Result<Box<dyn Lease>, MembershipError>;

    /// The number of the newest generation; 0 where none was.
    ///
    /// # Errors
    /// [`MembershipError::Unreachable`].
    fn generation(&self) -> Result<u64, MembershipError>;

    /// Begins the generation after `from`, for the leader alone. A counter behind `from` has lost what
    /// it knew and is put right.
    ///
    /// # Errors
    /// [`MembershipError::Generation`] where it stands beyond `from`, [`MembershipError::NotLeader`]
    /// where this process does not lead.
    fn advance(&self, from: u64) -> Result<u64, MembershipError>;
}

/// Refuses names that keys, lists of hosts and paths could not hold.
///
/// # Errors
/// [`MembershipError::Name`].
pub fn check_name(name: &str) -> Result<(), MembershipError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match !name.is_empty() && name.len() <= 64 && name.chars().all(plain) {
        true => Ok(()),
        false => Err(MembershipError::Name(name.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(["a", "node-1.example", "x_2"].iter().all(|name| check_name(name).is_ok()));
        for bad in ["", "a b", "a/b", "a:2", "é", &"x".repeat(65)] {
            let error = check_name(bad).unwrap_err().to_string();
            assert!(error.contains("is no name"), "{error}");
        }
    }
}
