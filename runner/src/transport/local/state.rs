//! State that all ranks share, under one lock.

use super::group::Group;
use super::meeting::Meeting;
use super::nonblocking::Hub;
use super::outbox::Outbox;
use crate::transport::TransportError;

#[derive(Debug)]
pub(super) struct SharedState {
    pub outboxes: Vec<Outbox>,
    pub meeting: Meeting,
    pub groups: Vec<Group>,
    /// What endpoints for calls that nobody waits for share.
    pub hubs: Vec<Hub>,
    /// Ranks whose transport was dropped.
    pub gone: Vec<bool>,
    /// The first rank that stopped the run, and why.
    abort: Option<(u32, String)>,
}

impl SharedState {
    pub(super) fn new(ranks: u32, slots: usize) -> Self {
        Self {
            outboxes: (0..ranks).map(|_| Outbox::new(slots)).collect(),
            meeting: Meeting::new(ranks),
            groups: vec![],
            hubs: vec![],
            gone: vec![false; ranks as usize],
            abort: None,
        }
    }

    /// Fails once a rank has stopped the run.
    pub(super) fn alive(&self) -> Result<(), TransportError> {
        match &self.abort {
            None => Ok(()),
            Some((rank, why)) => Err(TransportError::Aborted { rank: *rank, why: why.clone() }),
        }
    }

    /// Stops the run; the first reason stays.
    pub(super) fn stop(&mut self, rank: u32, why: &str) {
        self.abort.get_or_insert_with(|| (rank, why.to_owned()));
    }

    /// Fails when `rank`, which `call` waits for, has left.
    pub(super) fn needs(&self, rank: u32, call: &'static str) -> Result<(), TransportError> {
        if self.gone[rank as usize] { Err(TransportError::Gone { rank, call }) } else { Ok(()) }
    }
}
