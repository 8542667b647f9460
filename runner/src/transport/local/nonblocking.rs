//! Calls that nobody waits for, among threads. Messages go as those of the transport do, through an
//! [`Outbox`](super::outbox); collective calls are [`Group`]s whose shares are computed when somebody
//! looks.

use super::group::{Group, GroupCall};
use super::outbox::Outbox;
use super::state::SharedState;
use super::{LocalTransport, Shared, Transport};
use crate::transport::TransportError;
use crate::transport::nonblocking::{CollectiveOp, Nonblocking, ProcessGroup, Request};
use std::sync::Arc;

/// Calls of a group at a time that have room from the beginning.
const CALLS: usize = 64;

/// What the endpoints that all ranks made together share, under the run's lock.
#[derive(Debug)]
pub(super) struct Hub {
    /// By rank.
    outboxes: Vec<Outbox>,
    /// All groups that a rank named, with their calls.
    process_groups: Vec<(ProcessGroup, Group)>,
}

/// One rank's endpoint.
#[derive(Debug)]
struct LocalNonblocking {
    rank: u32,
    shared: Arc<Shared>,
    /// Number of its hub.
    hub: usize,
    /// By the caller's number: the number in the hub, and the ranks.
    process_groups: Vec<(usize, Vec<u32>)>,
    /// By request.
    under_way: Vec<Option<Pending>>,
    /// Numbers that no request has.
    vacant: Vec<usize>,
    sent: u64,
}

#[derive(Clone, Copy, Debug)]
enum Pending {
    /// In the slot of the outbox that has the request's number: no other send has it meanwhile.
    Send {
        to: u32,
    },
    Receive {
        from: u32,
        tag: u32,
        into: *mut [u8],
    },
    Call {
        group: usize,
        number: u64,
        share_done: bool,
    },
}

// SAFETY: `into` is the one address here. It is used in `LocalNonblocking::take` alone, which argues for
// itself; the memory behind it is plain bytes.
unsafe impl Send for Pending {}

/// Makes the endpoint of a transport; called by all ranks, equally often.
pub(super) fn endpoint(
    transport: &mut LocalTransport,
    process_groups: &[ProcessGroup],
    requests: usize,
) -> Box<dyn Nonblocking> {
    let (rank, ranks) = (transport.rank(), transport.ranks());
    let hub = transport.hubs;
    transport.hubs += 1;
    let mut state = transport.shared.lock();
    if state.hubs.len() == hub {
        let outboxes = (0..ranks).map(|_| Outbox::new(0)).collect();
        state.hubs.push(Hub { outboxes, process_groups: vec![] });
    }
    let known = &mut state.hubs[hub].process_groups;
    let mut number = |process_group: &ProcessGroup| {
        let found = known.iter().position(|(other, _)| other == process_group);
        let number = found.unwrap_or_else(|| {
            known.push((
                process_group.clone(),
                Group::new(&process_group.ranks, requests.min(CALLS)),
            ));
            known.len() - 1
        });
        (number, process_group.ranks.clone())
    };
    let process_groups = process_groups.iter().map(&mut number).collect();
    if let Some(last) = requests.checked_sub(1) {
        state.hubs[hub].outboxes[rank as usize].reach(last);
    }
    drop(state);
    let shared = transport.shared.clone();
    let (under_way, vacant) = (vec![None; requests], (0..requests).collect());
    Box::new(LocalNonblocking { rank, shared, hub, process_groups, under_way, vacant, sent: 0 })
}

impl LocalNonblocking {
    /// A number that no request has.
    fn vacant(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.under_way.push(None);
            self.vacant.reserve(self.under_way.len());
            self.under_way.len() - 1
        })
    }

    fn keep(&mut self, pending: Pending) -> Request {
        let place = self.vacant();
        self.under_way[place] = Some(pending);
        Request(place)
    }

    fn tag(&self, process_group: usize, tag: u32) -> u32 {
        assert!(tag < 1 << 16, "tag {tag}");
        ((self.process_groups[process_group].0 as u32) << 16) | tag
    }

    /// Whether a send has been received.
    fn sent(&self, to: u32, slot: usize) -> Result<Option<usize>, TransportError> {
        let state = self.shared.lock();
        let outbox = &state.hubs[self.hub].outboxes[self.rank as usize];
        if outbox.receiver(slot).is_none() {
            return Ok(Some(0));
        }
        if !outbox.is_taken(slot) {
            state.alive()?;
            state.needs(to, "a sum of gradients")?;
        }
        Ok(None)
    }

    /// Copies a message, if it is there.
    fn take(&self, from: u32, tag: u32, into: *mut [u8]) -> Result<Option<usize>, TransportError> {
        let mut state = self.shared.lock();
        let outbox = &mut state.hubs[self.hub].outboxes[from as usize];
        let Some(message) = outbox.take(self.rank, tag) else {
            state.alive()?;
            return state.needs(from, "a sum of gradients").map(|()| None);
        };
        drop(state);
        // SAFETY: the caller of `receive` keeps these bytes for us alone until we have said that
        // they are there, and nobody else has their address.
        let into = unsafe { &mut *into };
        let length = message.copy_into(into);
        self.shared.lock().hubs[self.hub].outboxes[from as usize].free(message);
        self.shared.wake[from as usize].notify_all();
        if length <= into.len() {
            return Ok(Some(length));
        }
        let (expected, found) = (into.len() as u64, Some(length as u64));
        Err(TransportError::Size { from, tag: tag & 0xffff, expected, found })
    }

    /// Does this rank's share of a call once all have come; whether all shares are done.
    fn called(
        &self,
        group: usize,
        number: u64,
        share_done: &mut bool,
    ) -> Result<Option<usize>, TransportError> {
        let mut state = self.shared.lock();
        if !*share_done {
            let Some(share) = state.group(self.hub, group).begin(number, self.rank) else {
                return self.call_waits(&mut state, group, number).map(|()| None);
            };
            drop(state);
            share.compute();
            state = self.shared.lock();
            state.group(self.hub, group).end(number, share);
            self.shared.wake_all();
            *share_done = true;
        }
        if state.group(self.hub, group).leave(number) {
            return Ok(Some(0));
        }
        state.alive()?;
        for rank in 0..self.shared.ranks {
            if state.group(self.hub, group).waits_for(number, rank) {
                state.needs(rank, "a sum of gradients")?;
            }
        }
        Ok(None)
    }

    /// A call that has not begun: fails when it never will.
    fn call_waits(
        &self,
        state: &mut SharedState,
        group: usize,
        number: u64,
    ) -> Result<(), TransportError> {
        state.alive()?;
        if let Some(why) = state.group(self.hub, group).disagreement(number) {
            state.stop(self.rank, &why);
            self.shared.wake_all();
            return state.alive();
        }
        let needed: smallvec::SmallVec<[u32; 8]> =
            state.group(self.hub, group).needed(number).collect();
        needed.into_iter().try_for_each(|rank| state.needs(rank, "a sum of gradients"))
    }
}

impl SharedState {
    fn group(&mut self, hub: usize, process_group: usize) -> &mut Group {
        &mut self.hubs[hub].process_groups[process_group].1
    }
}

impl Nonblocking for LocalNonblocking {
    unsafe fn send(
        &mut self,
        process_group: usize,
        to: usize,
        tag: u32,
        bytes: *const [u8],
    ) -> Result<Request, TransportError> {
        let (to, tag) = (self.process_groups[process_group].1[to], self.tag(process_group, tag));
        let state = self.shared.lock();
        state.alive()?;
        state.needs(to, "a sum of gradients")?;
        drop(state);
        let slot = self.vacant();
        let mut state = self.shared.lock();
        let outbox = &mut state.hubs[self.hub].outboxes[self.rank as usize];
        outbox.reach(slot);
        // SAFETY: the caller keeps the bytes until `test` has seen the slot free, or this endpoint
        // was abandoned or dropped, which also return only when nobody reads them.
        unsafe { outbox.post(to, tag, &*bytes, slot) };
        drop(state);
        self.sent += bytes.len() as u64;
        self.under_way[slot] = Some(Pending::Send { to });
        Ok(Request(slot))
    }

    unsafe fn receive(
        &mut self,
        process_group: usize,
        from: usize,
        tag: u32,
        into: *mut [u8],
    ) -> Result<Request, TransportError> {
        let (from, tag) =
            (self.process_groups[process_group].1[from], self.tag(process_group, tag));
        Ok(self.keep(Pending::Receive { from, tag, into }))
    }

    unsafe fn call(
        &mut self,
        process_group: usize,
        op: CollectiveOp,
        values: *mut u8,
        len: usize,
    ) -> Result<Request, TransportError> {
        let group = self.process_groups[process_group].0;
        let mut state = self.shared.lock();
        state.alive()?;
        let call = GroupCall::All(op);
        // SAFETY: the caller keeps the values until `test` has left the call, or this endpoint was
        // abandoned or dropped, which return only when no share is in progress.
        let number = unsafe { state.group(self.hub, group).post(call, self.rank, values, len) };
        drop(state);
        Ok(self.keep(Pending::Call { group, number, share_done: false }))
    }

    /// Threads look when they are asked.
    fn look(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>, TransportError> {
        let mut pending =
            self.under_way[request.0].expect("tickets are tested until they are spent");
        let ended = match &mut pending {
            Pending::Send { to } => self.sent(*to, request.0),
            Pending::Receive { from, tag, into } => self.take(*from, *tag, *into),
            Pending::Call { group, number, share_done } => self.called(*group, *number, share_done),
        };
        self.under_way[request.0] = Some(pending);
        if let Ok(Some(_)) = ended {
            self.under_way[request.0] = None;
            self.vacant.push(request.0);
        }
        ended
    }

    fn sent_bytes(&self) -> u64 {
        self.sent
    }

    fn abandon(&mut self) {
        let mut state = self.shared.lock();
        let rank = self.rank;
        let hub = &mut state.hubs[self.hub];
        hub.outboxes[rank as usize].withdraw();
        hub.process_groups.iter_mut().for_each(|(_, group)| group.withdraw(rank));
        while state.hubs[self.hub].in_use(rank) {
            state = self.shared.sleep(rank, state);
        }
        drop(state);
        self.under_way.clear();
        self.vacant.clear();
    }

    fn threaded(&self) -> bool {
        true
    }
}

impl Hub {
    /// Whether somebody reads or writes memory of `rank` now; such work ends by itself.
    fn in_use(&self, rank: u32) -> bool {
        self.outboxes[rank as usize].being_read()
            || self.process_groups.iter().any(|(_, group)| group.being_computed(rank))
    }
}

impl Drop for LocalNonblocking {
    fn drop(&mut self) {
        if self.under_way.iter().any(Option::is_some) {
            self.shared.lock().stop(self.rank, "it gave up a sum of gradients");
            self.shared.wake_all();
            self.abandon();
        }
    }
}
