//! Checkpoints in the memory of several hosts, each file on two of them.
//!
//! ```text
//!   host1: what its ranks save + copies of host3's      a host that is lost leaves a copy of
//!   host2: what its ranks save + copies of host1's      everything on the next one
//!   host3: what its ranks save + copies of host2's
//! ```
//!
//! Every host has the whole manifest, so each knows what a checkpoint consists of. Before training goes
//! on, hosts are given the files that they lack of the newest checkpoint of which every file is left
//! somewhere. Two are kept: between the first host's rename and the last one's the one before is the
//! newest whole one. What is written over the network is a stage's tensors, once a step.

mod gather;
mod save;

pub use gather::bring_together;
pub(super) use save::save;

use crate::transport::{Transport, TransportError};

/// Which ranks share a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    rank: u32,
    /// By rank: the lowest rank on its host, who speaks for it.
    leader: Vec<u32>,
    /// A handle of the transport that nobody else uses.
    handle: usize,
}

impl Hosts {
    /// The hosts of all ranks. Collective. `handle` is free for [`Transport::start_send`].
    ///
    /// # Errors
    /// When the transport fails.
    pub fn find<T: Transport>(transport: &mut T, handle: usize) -> Result<Self, TransportError> {
        let hosts = transport.hosts()?;
        let first = |host: &u32| hosts.iter().position(|other| other == host);
        let leader: Vec<u32> =
            hosts.iter().map(|host| first(host).expect("it is there") as u32).collect();
        Ok(Self { rank: transport.rank(), leader, handle })
    }

    /// Whether there is more than one.
    pub fn are_several(&self) -> bool {
        self.leader.iter().any(|leader| *leader != 0)
    }

    #[cfg(test)]
    fn of(rank: u32, leader: Vec<u32>) -> Self {
        Self { rank, leader, handle: 0 }
    }

    /// Whether this rank looks after the memory of its host.
    pub fn leads(&self) -> bool {
        self.leader[self.rank as usize] == self.rank
    }

    /// Those who speak for a host, ascending.
    fn leaders(&self) -> Vec<u32> {
        (0..).zip(&self.leader).filter(|(rank, leader)| rank == *leader).map(|(r, _)| r).collect()
    }

    /// Who keeps a copy of what a rank saves: the speaker of the next host.
    fn partner(&self, rank: u32) -> u32 {
        let leaders = self.leaders();
        let own = leaders.iter().position(|leader| *leader == self.leader[rank as usize]);
        leaders[(own.expect("every host has one") + 1) % leaders.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_are_on_other_hosts() {
        let hosts = Hosts::of(3, vec![0, 0, 2, 2, 4]);
        assert_eq!(hosts.leaders(), [0, 2, 4]);
        let partners: Vec<u32> = (0..5).map(|rank| hosts.partner(rank)).collect();
        assert_eq!(partners, [2, 2, 4, 4, 0]);
        assert!(!hosts.leads() && Hosts { rank: 4, ..hosts }.leads());
    }
}
