//! Recovery of an MPI transport from the loss of a rank, where the library survives that.
//!
//! ```text
//! a call fails: Lost --> withdraw    every rank's calls fail from now on; memory is free again
//!                           |
//!                        shrink      all processes that live know each other
//!                           |
//!                        divide(n)   the first n of them are the ranks, from 0; the others wait aside
//! ```
//!
//! Any of it may find that somebody else died, and is then begun again.

use super::comm::Comm;
use super::request::Wait;
use super::start::clock;
use super::ulfm::{LETTING_GO, Ulfm, ulfm};
use super::{MpiState, MpiTransport, REDUCE_MAX, Settings};
use crate::transport::TransportError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Tags of the survivors' communicator: two communicators that come of it, and the end.
const DATA: u32 = 1;
const CONTROL: u32 = 2;
const END: u32 = 3;

/// All processes of the job that live, ranks or not.
#[derive(Debug)]
pub(super) struct Survivors {
    all: Comm,
    ulfm: Ulfm,
    /// Whether the ranks as they are have lost some: for their links.
    lost: Arc<AtomicBool>,
}

/// What links know of losses.
pub(super) struct Losses {
    pub ulfm: Ulfm,
    pub lost: Arc<AtomicBool>,
}

impl Survivors {
    /// All of the world, where losses are to be survived and can be.
    pub(super) fn of_world(settings: Settings, wait: Wait) -> Result<Option<Self>, TransportError> {
        let Some(ulfm) = ulfm().filter(|_| settings.survives) else { return Ok(None) };
        Comm::no_fatal_errors()?;
        let all = Comm::world(settings.piece_bytes, wait)?;
        Ok(Some(Self { all, ulfm, lost: Arc::default() }))
    }

    /// What links of the ranks as they are must know.
    pub(super) fn losses(&self) -> Losses {
        Losses { ulfm: self.ulfm, lost: self.lost.clone() }
    }
}

impl MpiTransport {
    /// Whether the loss of a rank can be survived.
    pub fn survives(&self) -> bool {
        self.survivors.is_some()
    }

    /// Takes back all calls under way, after a loss: those of the other ranks fail, and MPI uses no
    /// memory of this one's any more, but for that of [`Transport::nonblocking`], which take theirs back when
    /// they are dropped.
    ///
    /// [`Transport::nonblocking`]: crate::transport::Transport::nonblocking
    ///
    /// # Errors
    /// When MPI does not let go of something, or cannot survive.
    pub fn withdraw(&mut self) -> Result<(), TransportError> {
        self.state = MpiState::Failed;
        let Some(survivors) = &self.survivors else {
            return Err(TransportError::Lost { call: "MPIX_Comm_revoke" });
        };
        survivors.lost.store(true, Ordering::Relaxed);
        let comms = [&self.data, &self.control, &survivors.all];
        for comm in comms.into_iter().chain(self.groups.iter().flatten()) {
            survivors.ulfm.revoke(comm);
        }
        let limit = Instant::now() + LETTING_GO;
        let sends = self.slots.iter_mut().flatten();
        for request in sends.chain(self.collectives.iter_mut().flatten()) {
            request.end(limit)?;
        }
        self.slots.clear();
        self.collectives.clear();
        self.groups.clear();
        Ok(())
    }

    /// Finds out who lives: this one's place among them, and how many. Collective over them, all of which
    /// have withdrawn.
    ///
    /// # Errors
    /// When MPI cannot.
    pub fn shrink(&mut self) -> Result<(u32, u32), TransportError> {
        let Some(survivors) = &mut self.survivors else {
            return Err(TransportError::Lost { call: "MPIX_Comm_shrink" });
        };
        survivors.all = survivors.ulfm.shrink(&survivors.all)?;
        survivors.all.place()
    }

    /// Makes the first `ranks` survivors the ranks; whether this one is among them. Collective over
    /// those.
    ///
    /// # Errors
    /// When somebody died meanwhile.
    ///
    /// # Panics
    /// When there are fewer survivors.
    pub fn divide(&mut self, ranks: u32) -> Result<bool, TransportError> {
        let Some(Survivors { all, lost, .. }) = &mut self.survivors else { return Ok(true) };
        *lost = Arc::default();
        let (place, survivors) = all.place()?;
        assert!(ranks <= survivors, "{ranks} ranks of {survivors}");
        if place >= ranks {
            return Ok(false);
        }
        let first: Vec<u32> = (0..ranks).collect();
        self.data = all.group(&first, DATA)?;
        self.control = all.group(&first, CONTROL)?;
        (self.rank, self.ranks) = (place, ranks);
        self.clock = clock(&self.control, place, ranks, &self.host, self.measure_clock)?;
        self.reduce = vec![0.0; ranks as usize * REDUCE_MAX];
        self.state = MpiState::Running;
        Ok(true)
    }

    /// Waits, without being a rank, until the ranks have come to their end.
    ///
    /// # Errors
    /// When a rank was lost: there may be work for this process again.
    pub fn wait_aside(&mut self) -> Result<(), TransportError> {
        if let Some(Survivors { all, .. }) = &self.survivors {
            all.asleep().recv(0, END, &mut [])?;
        }
        self.state = MpiState::Running;
        Ok(())
    }

    /// Lets those go who wait aside. Rank 0 calls it at the end.
    pub fn dismiss(&mut self) {
        let Some(Survivors { all, .. }) = &self.survivors else { return };
        let survivors = all.place().map_or(0, |(_, survivors)| survivors);
        for aside in self.ranks..survivors {
            // One that has died waits no more.
            let _ = all.send(aside, END, &[]);
        }
    }
}
