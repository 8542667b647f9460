//! The coordinator's state. No clock, no thread: callers say what happened.

use crate::elastic::membership::{MembershipError, News, Node, check_name};
use std::collections::BTreeMap;

/// Nodes, leader and counter.
#[derive(Debug, Default)]
pub struct Registry {
    /// By name, with the ticket of the lease.
    nodes: BTreeMap<String, (Node, u64)>,
    leader: Option<u64>,
    generation: u64,
    tickets: u64,
    /// What the leader told last.
    pub news: News,
    /// Changes of the nodes so far.
    pub version: u64,
}

impl Registry {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// A node joins; the ticket stands for its lease.
    pub fn join(&mut self, node: Node) -> Result<u64, MembershipError> {
        check_name(&node.name)?;
        if self.nodes.contains_key(&node.name) {
            return Err(MembershipError::Taken(node.name));
        }
        let ticket = self.ticket();
        self.nodes.insert(node.name.clone(), (node, ticket));
        self.version += 1;
        Ok(ticket)
    }

    /// Somebody leads, if nobody does.
    pub fn lead(&mut self) -> Result<u64, MembershipError> {
        if self.leader.is_some() {
            return Err(MembershipError::NotLeader);
        }
        let ticket = self.ticket();
        self.leader = Some(ticket);
        Ok(ticket)
    }

    /// Whether what the lease holds is still there.
    pub fn holds(&self, ticket: u64) -> bool {
        self.leader == Some(ticket) || self.nodes.values().any(|(_, other)| *other == ticket)
    }

    /// A lease is over.
    pub fn release(&mut self, ticket: u64) {
        if self.leader == Some(ticket) {
            self.leader = None;
        }
        let before = self.nodes.len();
        self.nodes.retain(|_, (_, other)| *other != ticket);
        self.version += u64::from(self.nodes.len() < before);
    }

    /// A node is asked to leave.
    pub fn leave(&mut self, name: &str) -> Result<(), MembershipError> {
        match self.nodes.get_mut(name) {
            Some((node, _)) => {
                node.leaving = true;
                self.version += 1;
                Ok(())
            }
            None => {
                let members = self.nodes.keys().cloned().collect();
                Err(MembershipError::Unknown { name: name.into(), members })
            }
        }
    }

    /// A node is gone.
    pub fn remove(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            self.version += 1;
        }
    }

    /// All nodes, by name.
    pub fn members(&self) -> Vec<Node> {
        self.nodes.values().map(|(node, _)| node.clone()).collect()
    }

    /// The newest generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Begins the one after `from`.
    pub fn advance(&mut self, from: u64, leader: Option<u64>) -> Result<u64, MembershipError> {
        if self.leader.is_none() || self.leader != leader {
            return Err(MembershipError::NotLeader);
        }
        if self.generation > from {
            return Err(MembershipError::Generation { found: self.generation });
        }
        self.generation = from + 1;
        Ok(self.generation)
    }
}
