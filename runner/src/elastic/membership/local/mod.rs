//! The embedded coordinator: part of a supervisor, reached over a socket in the job's folder.
//!
//! ```text
//! runner join (its lease) ---- connection ---- thread --.
//! runner leave ---------- ---- connection ---- thread ---+-- Registry
//! the supervisor's own lease - connection ---- thread --'
//! ```
//!
//! A lease is a connection: it ends with the process that holds it, at once, or when nothing comes
//! over it for the time to live. Messages are lines of JSON.

mod client;
mod registry;
mod server;

pub use client::LocalMembership;
pub use server::Coordinator;

use super::{MembershipError, News, Node};
use serde::{Deserialize, Serialize};

/// Longest message, in bytes: a node's names are short.
const LINE_MAX: u64 = 1 << 16;

/// What a client says first. The first two begin a lease, each further line renews it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Join(Node),
    Lead(String),
    Watch,
    Members,
    Leave(String),
    Remove(String),
    Tell(News),
    News,
    Generation,
    Advance { from: u64, leader: Option<u64> },
}

/// What it hears.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    /// A lease has begun.
    Ticket(u64),
    /// Whether it is still held.
    Held(bool),
    Members(Vec<Node>),
    News(News),
    Generation(u64),
    Refused(Refusal),
}

/// Errors that travel.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Refusal {
    Taken(String),
    Unknown {
        name: String,
        members: Vec<String>,
    },
    Name(String),
    NotLeader,
    Generation {
        found: u64,
    },
    /// A message that is none.
    Message(String),
}

impl From<MembershipError> for Refusal {
    fn from(error: MembershipError) -> Self {
        match error {
            MembershipError::Taken(name) => Refusal::Taken(name),
            MembershipError::Unknown { name, members } => Refusal::Unknown { name, members },
            MembershipError::Name(name) => Refusal::Name(name),
            MembershipError::NotLeader => Refusal::NotLeader,
            MembershipError::Generation { found } => Refusal::Generation { found },
            MembershipError::Unreachable { why, .. } => Refusal::Message(why),
        }
    }
}

impl Refusal {
    /// The error at the client's side.
    fn at(self, address: &str) -> MembershipError {
        match self {
            Refusal::Taken(name) => MembershipError::Taken(name),
            Refusal::Unknown { name, members } => MembershipError::Unknown { name, members },
            Refusal::Name(name) => MembershipError::Name(name),
            Refusal::NotLeader => MembershipError::NotLeader,
            Refusal::Generation { found } => MembershipError::Generation { found },
            Refusal::Message(why) => MembershipError::Unreachable { address: address.into(), why },
        }
    }
}
