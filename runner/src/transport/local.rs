//! Ranks as threads of one process.
//!
//! A rendezvous: the sender publishes where its bytes lie, the receiver copies them straight into
//! their place and says so. One copy a message, no buffer in between, nothing allocated.
//!
//! ```text
//! sender                shared state (one lock)            receiver
//! start_send  -- (1) -> posted: to, tag, address, length
//!                                            <- (2) --     recv takes it, lets the lock go,
//!                                                          copies (3)
//! wait_send   <- (5) -- free                 <- (4) --     and takes the lock to free it
//! ```
//!
//! One lock for everything: messages of training are few and large, and copies run outside of it.
//! Each rank sleeps on its own condition variable, so only those concerned wake up.

mod group;
mod meeting;
mod nonblocking;
mod outbox;
mod state;

use super::clock::{host_name, monotonic_ns, wake_in_time};
use super::nonblocking::{CollectiveOp, Nonblocking, ProcessGroup};
use super::{Collective, PartCollective, REDUCE_MAX, ReduceOp, Transport, TransportError};
use group::{Group, GroupCall};
use meeting::{Call, Meeting};
use state::SharedState;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// One rank of [`local`]. Give it to the rank's thread.
#[derive(Debug)]
pub struct LocalTransport {
    rank: u32,
    /// Slots with a send that nobody waited for yet.
    in_use: Vec<bool>,
    /// Collective calls under way, by slot: group and number of the call there.
    collectives: Vec<Option<(usize, u64)>>,
    /// Endpoints made so far.
    hubs: usize,
    shared: Arc<Shared>,
    /// The rank of the same number in each crew, a rank a crew.
    peers: Option<Box<LocalTransport>>,
}

#[derive(Debug)]
struct Shared {
    ranks: u32,
    state: Mutex<SharedState>,
    /// Where each rank sleeps.
    wake: Vec<Condvar>,
    /// By rank: the number of the host that it says it is on.
    hosts: Vec<u32>,
}

/// Connects `ranks` ranks, each with up to `slots` outstanding sends.
///
/// # Panics
/// When there are no ranks.
pub fn local(ranks: u32, slots: usize) -> Vec<LocalTransport> {
    local_on_hosts(&vec![0; ranks as usize], slots)
}

/// `crews` times `ranks` ranks, crew after crew: see [`Transport::crew`].
///
/// # Panics
/// When there are no ranks.
pub fn local_crews(ranks: u32, crews: u32, slots: usize) -> Vec<LocalTransport> {
    let mut all: Vec<LocalTransport> =
        (0..crews.max(1)).flat_map(|_| local(ranks, slots)).collect();
    if crews > 1 {
        for place in 0..ranks as usize {
            let peers = local(crews, crews as usize);
            let alike = all.iter_mut().skip(place).step_by(ranks as usize);
            alike.zip(peers).for_each(|(rank, peer)| rank.peers = Some(Box::new(peer)));
        }
    }
    all
}

/// As [`local`], with ranks that say they are on hosts of these numbers: to see without a network how
/// a run on several hosts goes.
///
/// # Panics
/// When there are no ranks.
pub fn local_on_hosts(hosts: &[u32], slots: usize) -> Vec<LocalTransport> {
    assert!(!hosts.is_empty(), "a run needs ranks");
    wake_in_time();
    let ranks = hosts.len() as u32;
    let state = Mutex::new(SharedState::new(ranks, slots));
    let wake = (0..ranks).map(|_| Condvar::new()).collect();
    let shared = Arc::new(Shared { ranks, state, wake, hosts: hosts.to_vec() });
    let one = |rank| LocalTransport {
        rank,
        in_use: vec![false; slots],
        collectives: vec![],
        hubs: 0,
        shared: shared.clone(),
        peers: None,
    };
    (0..ranks).map(one).collect()
}

impl Shared {
    /// A rank that panicked says so when its transport is dropped; the lock's own poison would
    /// only hide that reason behind another panic. No code under the lock leaves half a change.
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(
        &self,
        rank: u32,
        state: MutexGuard<'a, SharedState>,
    ) -> MutexGuard<'a, SharedState> {
        self.wake[rank as usize].wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        self.wake.iter().for_each(Condvar::notify_all);
    }

    /// Takes back what `rank` has posted and waits for copies that have begun: afterwards nobody
    /// reads its buffers.
    fn withdraw(&self, rank: u32) {
        let mut state = self.lock();
        state.outboxes[rank as usize].withdraw();
        state.groups.iter_mut().for_each(|group| group.withdraw(rank));
        while state.outboxes[rank as usize].being_read()
            || state.groups.iter().any(|group| group.being_computed(rank))
        {
            state = self.sleep(rank, state);
        }
    }
}

impl LocalTransport {
    fn check_rank(&self, rank: u32) {
        assert!(rank < self.shared.ranks, "rank {rank} of {}", self.shared.ranks);
    }

    /// Keeps the promise of [`Transport::start_send`]: buffers are free after an error.
    fn settle<T>(&mut self, result: Result<T, TransportError>) -> Result<T, TransportError> {
        if result.is_err() {
            self.shared.withdraw(self.rank);
            self.in_use.fill(false);
            self.collectives.fill(None);
        }
        result
    }

    fn try_wait_send(&self, slot: usize) -> Result<(), TransportError> {
        let mut state = self.shared.lock();
        loop {
            let outbox = &state.outboxes[self.rank as usize];
            let Some(to) = outbox.receiver(slot) else { return Ok(()) };
            // A copy in progress ends by itself, whatever became of the run.
            if !outbox.is_taken(slot) {
                state.alive()?;
                state.needs(to, "wait_send")?;
            }
            state = self.shared.sleep(self.rank, state);
        }
    }

    /// Says where the values of a collective call lie.
    ///
    /// # Safety
    /// As [`Transport::start_collective`].
    unsafe fn post(
        &mut self,
        call: GroupCall,
        group: usize,
        values: &mut [f32],
        slot: usize,
    ) -> Result<(), TransportError> {
        assert!(self.collectives[slot].is_none(), "slot {slot} is in use");
        let mut state = self.shared.lock();
        let possible = state.alive();
        if possible.is_ok() {
            // SAFETY: the caller keeps `values` untouched until wait_collective(slot), an error or
            // drop. Each of these returns only when no rank's share of the call is in progress
            // and none can begin any more.
            let number = unsafe {
                let (place, len) = (values.as_mut_ptr().cast(), values.len());
                state.groups[group].post(call, self.rank, place, len)
            };
            self.collectives[slot] = Some((group, number));
        }
        drop(state);
        self.shared.wake_all();
        self.settle(possible)
    }

    /// Waits for all, does this rank's share of the work, waits for the others' shares.
    fn try_wait_collective(&self, group: usize, call: u64) -> Result<(), TransportError> {
        let mut state = self.shared.lock();
        let share = loop {
            state.alive()?;
            if let Some(share) = state.groups[group].begin(call, self.rank) {
                break share;
            }
            if let Some(why) = state.groups[group].disagreement(call) {
                state.stop(self.rank, &why);
                self.shared.wake_all();
                state.alive()?;
            }
            for rank in state.groups[group].needed(call) {
                state.needs(rank, "wait_collective")?;
            }
            state = self.shared.sleep(self.rank, state);
        };
        drop(state);
        share.compute();
        let mut state = self.shared.lock();
        state.groups[group].end(call, share);
        self.shared.wake_all();
        while !state.groups[group].leave(call) {
            state.alive()?;
            for rank in 0..self.shared.ranks {
                if state.groups[group].waits_for(call, rank) {
                    state.needs(rank, "wait_collective")?;
                }
            }
            state = self.shared.sleep(self.rank, state);
        }
        Ok(())
    }

    fn try_recv(&self, from: u32, tag: u32, into: &mut [u8]) -> Result<(), TransportError> {
        let mut state = self.shared.lock();
        let message = loop {
            state.alive()?;
            if let Some(message) = state.outboxes[from as usize].take(self.rank, tag) {
                break message;
            }
            state.needs(from, "recv")?;
            state = self.shared.sleep(self.rank, state);
        };
        drop(state);
        let length = message.copy_into(into);
        self.shared.lock().outboxes[from as usize].free(message);
        self.shared.wake[from as usize].notify_all();
        let (expected, found) = (into.len() as u64, Some(length as u64));
        if length == into.len() {
            Ok(())
        } else {
            Err(TransportError::Size { from, tag, expected, found })
        }
    }

    /// Comes to the meeting with a contribution and leaves when all have come. Then `read` sees
    /// what all have brought, before the next meeting can begin.
    fn meet<T>(
        &self,
        call: Call,
        bring: impl FnOnce(&mut Meeting),
        read: impl FnOnce(&mut Meeting) -> T,
    ) -> Result<T, TransportError> {
        let mut state = self.shared.lock();
        state.alive()?;
        if let Err(why) = state.meeting.agree(self.rank, call) {
            state.stop(self.rank, &why);
            self.shared.wake_all();
            state.alive()?;
        }
        bring(&mut state.meeting);
        let mine = state.meeting.arrive();
        if !state.meeting.is_open(mine) {
            self.shared.wake_all();
        }
        while state.meeting.is_open(mine) {
            state.alive()?;
            for rank in 0..self.shared.ranks {
                state.needs(rank, call.name())?;
            }
            state = self.shared.sleep(self.rank, state);
        }
        Ok(read(&mut state.meeting))
    }
}

impl Transport for LocalTransport {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.shared.ranks
    }

    unsafe fn start_send(
        &mut self,
        to: u32,
        tag: u32,
        bytes: &[u8],
        slot: usize,
    ) -> Result<(), TransportError> {
        self.check_rank(to);
        assert!(!self.in_use[slot], "slot {slot} is in use");
        let mut state = self.shared.lock();
        let possible = state.alive().and_then(|()| state.needs(to, "start_send"));
        if possible.is_ok() {
            // SAFETY: the caller keeps `bytes` until wait_send(slot), an error or drop. Each of
            // these returns only when the slot is free: nobody reads it and nobody will.
            unsafe { state.outboxes[self.rank as usize].post(to, tag, bytes, slot) };
            self.in_use[slot] = true;
        }
        drop(state);
        self.shared.wake[to as usize].notify_all();
        self.settle(possible)
    }

    fn wait_send(&mut self, slot: usize) -> Result<(), TransportError> {
        if !self.in_use[slot] {
            return Ok(());
        }
        let result = self.try_wait_send(slot);
        self.in_use[slot] = false;
        self.settle(result)
    }

    fn recv(&mut self, from: u32, tag: u32, into: &mut [u8]) -> Result<(), TransportError> {
        self.check_rank(from);
        let result = self.try_recv(from, tag, into);
        self.settle(result)
    }

    fn connect(&mut self, groups: &[Vec<u32>], slots: usize) -> Result<(), TransportError> {
        self.collectives.resize(slots, None);
        // What all but one rank have left keeps its place until that one has, while they go on to the next calls.
        let room = |ranks: &Vec<u32>| Group::new(ranks, 2 * slots);
        let mut groups: Vec<Group> = groups.iter().map(room).collect();
        // Every rank makes the same ones, with room for the calls of whoever has most, and nobody uses
        // them before all have.
        let mut state = self.shared.lock();
        groups.iter_mut().zip(&state.groups).for_each(|(group, known)| group.make_room(known));
        state.groups = groups;
        drop(state);
        self.barrier()
    }

    unsafe fn start_collective(
        &mut self,
        call: Collective,
        group: usize,
        values: &mut [f32],
        slot: usize,
    ) -> Result<(), TransportError> {
        // SAFETY: the caller's promise.
        unsafe { self.post(GroupCall::All(CollectiveOp::Float(call)), group, values, slot) }
    }

    unsafe fn start_part_collective(
        &mut self,
        call: PartCollective,
        group: usize,
        values: &mut [f32],
        slot: usize,
    ) -> Result<(), TransportError> {
        // SAFETY: the caller's promise.
        unsafe { self.post(GroupCall::Parts(call), group, values, slot) }
    }

    /// Threads do their shares of a collective call when they wait for it.
    fn progress(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    fn wait_collective(&mut self, slot: usize) -> Result<(), TransportError> {
        let Some((group, call)) = self.collectives[slot].take() else { return Ok(()) };
        let result = self.try_wait_collective(group, call);
        self.settle(result)
    }

    fn crew(&self) -> (u32, u32) {
        self.peers.as_ref().map_or((0, 1), |peers| (peers.rank, peers.shared.ranks))
    }

    fn share_from(&mut self, crew: u32, bytes: &mut [u8]) -> Result<(), TransportError> {
        let Some(peers) = &mut self.peers else { return Ok(()) };
        if peers.rank != crew {
            return peers.recv(crew, 0, bytes);
        }
        let others = || (0..peers.ranks()).filter(|other| *other != crew).collect::<Vec<u32>>();
        let others = others();
        for other in &others {
            // SAFETY: the bytes stay borrowed until all sends are waited for, or have failed: the
            // transport withdraws them before its error is returned.
            unsafe { peers.start_send(*other, 0, bytes, *other as usize)? };
        }
        others.iter().try_for_each(|other| peers.wait_send(*other as usize))
    }

    fn all_reduce(&mut self, values: &mut [f64], op: ReduceOp) -> Result<(), TransportError> {
        assert!(values.len() <= REDUCE_MAX, "all_reduce of {} values", values.len());
        let (rank, ranks, len) = (self.rank, self.shared.ranks, values.len());
        let mut mine = [0.0; REDUCE_MAX];
        mine[..len].copy_from_slice(values);
        let result = self.meet(
            Call::AllReduce { op, len },
            |meeting| meeting.bring_values(rank, mine),
            |meeting| op.join_all(values, ranks, |rank| &meeting.values(rank)[..len]),
        );
        self.settle(result)
    }

    fn gather(&mut self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let (rank, bytes) = (self.rank, bytes.to_vec());
        let taken = self.meet(
            Call::Gather,
            |meeting| meeting.bring_bytes(rank, bytes),
            |meeting| (rank == 0).then(|| meeting.take_bytes()),
        );
        // Rank 0 must have taken them before anybody brings the next.
        let result = taken.and_then(|taken| self.barrier().map(|()| taken));
        self.settle(result)
    }

    fn barrier(&mut self) -> Result<(), TransportError> {
        let result = self.meet(Call::Barrier, |_| (), |_| ());
        self.settle(result)
    }

    fn hosts(&mut self) -> Result<Vec<u32>, TransportError> {
        Ok(self.shared.hosts.clone())
    }

    fn nonblocking(
        &mut self,
        process_groups: &[ProcessGroup],
        requests: usize,
    ) -> Result<Box<dyn Nonblocking>, TransportError> {
        Ok(nonblocking::endpoint(self, process_groups, requests))
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn abort(&mut self, _exit_code: i32, why: &str) {
        self.shared.lock().stop(self.rank, why);
        self.shared.wake_all();
        self.shared.withdraw(self.rank);
        self.in_use.fill(false);
    }

    fn name(&self) -> &'static str {
        "local"
    }

    fn host(&self) -> String {
        host_name()
    }
}

impl Drop for LocalTransport {
    /// Peers that still need this rank get an error instead of waiting for ever or reading
    /// memory that is about to be freed.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.gone[self.rank as usize] = true;
        if std::thread::panicking() {
            let why = "it panicked";
            state.stop(self.rank, why);
        }
        drop(state);
        self.shared.wake_all();
        self.shared.withdraw(self.rank);
    }
}

#[cfg(test)]
mod tests;
