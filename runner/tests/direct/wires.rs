//! Communicators and streams between processors that are devices, in place of NCCL and a driver.
//!
//! A rank's computations are done when they are asked for, once what its stream waits for is done. What is
//! sent, received and summed lies in queues, and is done as late as possible: when somebody waits. So
//! bytes that nobody waited for are wrong bytes.

use super::processor::Distant;
use pipewright_core::plan::Region;
use pipewright_core::units::Bytes;
use pipewright_runner::device::Accelerator;
use pipewright_runner::device::cuda::nccl::{Broken, Event, Id, Stream, Wires};
use pipewright_runner::transport::Collective;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Nothing here takes so long.
const LONG: Duration = Duration::from_secs(300);

/// All devices.
#[derive(Default)]
pub struct World {
    state: Mutex<State>,
    changed: Condvar,
}

/// What must be done: so much of a stream.
type Need = (usize, u64);

#[derive(Default)]
struct State {
    /// Everything is done at once, not when somebody waits.
    eager: bool,
    ids: u8,
    devices: BTreeMap<u32, Arc<Mutex<Distant>>>,
    /// By id: the ranks that have begun, by number there.
    comms: BTreeMap<Id, Vec<Option<u32>>>,
    /// By rank and stream.
    queues: BTreeMap<(u32, usize), VecDeque<Work>>,
    done: BTreeMap<(u32, usize), u64>,
    put: BTreeMap<(u32, usize), u64>,
    /// What the computations of a rank wait for.
    pending: BTreeMap<u32, Vec<Need>>,
    gone: BTreeSet<u32>,
    ended: BTreeMap<Id, BTreeSet<u32>>,
    aborted: BTreeSet<u32>,
    /// Aborting takes for ever.
    hangs: bool,
    no_ids: BTreeSet<u32>,
    /// How often a rank asked whether its computations are done, and they were not.
    asked: BTreeMap<u32, u64>,
    calls: BTreeMap<u32, Vec<String>>,
}

enum Work {
    Wait(Vec<Need>),
    Send(Id, u32, Region),
    Receive(Id, u32, Region),
    Join(Id, Collective, Region),
}

impl World {
    /// With what is done as early, or as late, as possible.
    pub fn new(eager: bool) -> Arc<Self> {
        let world = Self::default();
        world.lock().eager = eager;
        Arc::new(world)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        if state.eager {
            state.advance();
        }
        self.changed.notify_all();
        changed
    }

    /// Waits until something is so.
    fn until(&self, mut is_so: impl FnMut(&mut State) -> bool) {
        let mut state = self.lock();
        while !is_so(&mut state) {
            let (now, waited) = self.changed.wait_timeout(state, LONG).unwrap();
            assert!(!waited.timed_out(), "nothing changes any more");
            state = now;
        }
    }

    /// A rank is lost.
    pub fn kill(&self, rank: u32) {
        self.change(|state| state.gone.insert(rank));
    }

    /// Waits until a rank has asked so often whether its computations are done, and they were not.
    pub fn until_asked(&self, rank: u32, times: u64) {
        self.until(|state| state.asked.get(&rank).is_some_and(|asked| *asked >= times));
    }

    /// Waits until a rank has given its communicators up.
    pub fn until_aborted(&self, rank: u32) {
        self.until(|state| state.aborted.contains(&rank));
    }

    /// As if a rank had asked.
    pub fn note_asked(&self, rank: u32) {
        self.change(|state| *state.asked.entry(rank).or_default() += 1);
    }

    /// Ranks that gave their communicators up.
    pub fn aborted(&self) -> Vec<u32> {
        self.lock().aborted.iter().copied().collect()
    }

    /// From now on giving up takes for ever, or not any more.
    pub fn hang(&self, hangs: bool) {
        self.change(|state| state.hangs = hangs);
    }

    /// A rank cannot make ids.
    pub fn without_ids(&self, rank: u32) {
        self.change(|state| state.no_ids.insert(rank));
    }

    /// What a rank asked for since this was called last.
    pub fn calls(&self, rank: u32) -> Vec<String> {
        self.change(|state| state.calls.remove(&rank).unwrap_or_default())
    }
}

impl State {
    fn is_done(&self, rank: u32, needs: &[Need]) -> bool {
        let done = |stream: usize| self.done.get(&(rank, stream)).copied().unwrap_or(0);
        needs.iter().all(|(stream, count)| done(*stream) >= *count)
    }

    fn number(&self, id: &Id, rank: u32) -> usize {
        let of = |found: &Option<u32>| *found == Some(rank);
        self.comms[id].iter().position(of).expect("it has begun")
    }

    /// Whether a communicator lost a rank.
    fn is_broken(&self, id: &Id) -> bool {
        self.comms[id].iter().flatten().any(|rank| self.gone.contains(rank))
    }

    fn pop(&mut self, rank: u32, stream: usize) {
        self.queues.get_mut(&(rank, stream)).unwrap().pop_front();
        *self.done.entry((rank, stream)).or_default() += 1;
    }

    /// Does all that can be done.
    fn advance(&mut self) {
        while let Some(at) = self.queues.keys().copied().find(|at| self.can(*at)) {
            self.execute(at);
        }
    }

    /// The rank and stream on which number `number` of a communicator is at some work of it.
    fn at(&self, id: &Id, number: usize, is_it: impl Fn(&Work) -> bool) -> Option<(u32, usize)> {
        let rank = self.comms[id][number]?;
        let mut queues = self.queues.range((rank, 0)..(rank + 1, 0));
        queues.find(|(_, queue)| queue.front().is_some_and(&is_it)).map(|(at, _)| *at)
    }

    fn sender(&self, (rank, _): (u32, usize), id: &Id, from: u32) -> Option<(u32, usize)> {
        let me = self.number(id, rank) as u32;
        self.at(
            id,
            from as usize,
            |work| matches!(work, Work::Send(i, to, _) if (i, *to) == (id, me)),
        )
    }

    fn members(&self, id: &Id) -> Option<Vec<(u32, usize)>> {
        let is_it = |work: &Work| matches!(work, Work::Join(other, ..) if other == id);
        (0..self.comms[id].len()).map(|number| self.at(id, number, is_it)).collect()
    }

    fn can(&self, at: (u32, usize)) -> bool {
        match self.queues[&at].front() {
            None | Some(Work::Send(..)) => false,
            Some(Work::Wait(needs)) => self.is_done(at.0, needs),
            Some(Work::Receive(id, from, _)) => self.sender(at, id, *from).is_some(),
            Some(Work::Join(id, ..)) => self.members(id).is_some(),
        }
    }

    fn read(&self, rank: u32, region: Region) -> Vec<u8> {
        let mut bytes = vec![0; region.bytes.0 as usize];
        self.devices[&rank].lock().unwrap().download(region.offset.0, &mut bytes).unwrap();
        bytes
    }

    fn write(&self, rank: u32, region: Region, bytes: &[u8]) {
        self.devices[&rank].lock().unwrap().upload(region.offset.0, bytes).unwrap();
    }

    fn execute(&mut self, at: (u32, usize)) {
        match *self.queues[&at].front().expect("it can") {
            Work::Wait(_) => self.pop(at.0, at.1),
            Work::Send(..) => unreachable!("receivers take it"),
            Work::Receive(id, from, into) => {
                let sender = self.sender(at, &id, from).expect("it can");
                let Some(&Work::Send(_, _, region)) = self.queues[&sender].front() else {
                    unreachable!("it was found there")
                };
                assert_eq!(region.bytes, into.bytes, "a message of another length");
                let bytes = self.read(sender.0, region);
                self.write(at.0, into, &bytes);
                [sender, at].into_iter().for_each(|(rank, stream)| self.pop(rank, stream));
            }
            Work::Join(id, call, _) => {
                let members = self.members(&id).expect("it can");
                self.join(call, &members);
                members.into_iter().for_each(|(rank, stream)| self.pop(rank, stream));
            }
        }
    }

    fn join(&self, call: Collective, members: &[(u32, usize)]) {
        let region = |at: &(u32, usize)| match self.queues[at].front() {
            Some(Work::Join(_, other, region)) if *other == call => *region,
            _ => panic!("ranks of a group call {call:?} and something else"),
        };
        let mut sum: Vec<u8> = self.read(members[0].0, region(&members[0]));
        for at in members[1..].iter().filter(|_| call != Collective::Broadcast) {
            let other = self.read(at.0, region(at));
            for (sum, value) in sum.chunks_exact_mut(4).zip(other.chunks_exact(4)) {
                let [a, b] = [&*sum, value].map(|v| f32::from_ne_bytes(v.try_into().unwrap()));
                sum.copy_from_slice(&(a + b).to_ne_bytes());
            }
        }
        let who = if call == Collective::Reduce { 1 } else { members.len() };
        members[..who].iter().for_each(|at| self.write(at.0, region(at), &sum));
    }
}

/// The device of a rank, whose computations wait for messages.
pub struct Wired {
    device: Arc<Mutex<Distant>>,
    world: Arc<World>,
    rank: u32,
    /// What the host read and wrote.
    pub copies: Arc<Mutex<Vec<Range<u64>>>>,
}

/// A device, and its ends of the wires.
pub fn device(world: &Arc<World>, rank: u32, bytes: Bytes) -> (Wired, Emulated) {
    let device = Arc::new(Mutex::new(Distant::new(bytes, Arc::default())));
    world.change(|state| state.devices.insert(rank, device.clone()));
    let wires = Emulated { world: world.clone(), rank, streams: 1, events: vec![], comms: vec![] };
    (Wired { device, world: world.clone(), rank, copies: Arc::default() }, wires)
}

impl Wired {
    /// The device, when what it waits for is done, or will never be.
    pub(super) fn ready(&self) -> MutexGuard<'_, Distant> {
        self.world.until(|state| {
            state.advance();
            let needs = state.pending.get(&self.rank).cloned().unwrap_or_default();
            let lost = !state.gone.is_empty() || !state.aborted.is_empty();
            let ready = state.is_done(self.rank, &needs) || lost;
            if ready {
                state.pending.remove(&self.rank);
            }
            ready
        });
        self.world.changed.notify_all();
        self.device.lock().unwrap()
    }

    pub(super) fn copies(&self, offset: u64, bytes: usize) {
        self.copies.lock().unwrap().push(offset..offset + bytes as u64);
    }
}

/// The wires of a rank.
pub struct Emulated {
    world: Arc<World>,
    rank: u32,
    streams: usize,
    /// What must be done when an event has come.
    events: Vec<Vec<Need>>,
    comms: Vec<Option<Id>>,
}

impl Emulated {
    fn id_of(&self, comm: usize) -> Id {
        self.comms[comm].expect("a communicator that is free is not used")
    }

    fn put(&mut self, stream: Stream, work: Work) -> Result<(), Broken> {
        assert_ne!(stream, Stream::COMPUTES);
        let at = (self.rank, stream.0);
        self.world.change(|state| {
            state.queues.entry(at).or_default().push_back(work);
            *state.put.entry(at).or_default() += 1;
        });
        Ok(())
    }

    fn note(&self, call: String) {
        self.world.change(|state| state.calls.entry(self.rank).or_default().push(call));
    }
}

fn lost(why: &str) -> Broken {
    Broken { why: why.into(), lost: true }
}

impl Wires for Emulated {
    type Comm = usize;

    fn name(&self) -> String {
        "emulated".into()
    }

    fn id(&mut self) -> Result<Id, Broken> {
        self.world.change(|state| {
            state.ids += 1;
            match state.no_ids.contains(&self.rank) {
                true => Err(Broken { why: "no network".into(), lost: false }),
                false => Ok([state.ids; 128]),
            }
        })
    }

    fn begin(&mut self, id: &Id, rank: u32, ranks: u32) -> Result<usize, Broken> {
        self.world.change(|state| {
            let comm = state.comms.entry(*id).or_insert_with(|| vec![None; ranks as usize]);
            assert!(comm[rank as usize].replace(self.rank).is_none(), "a rank begins once");
        });
        self.comms.push(Some(*id));
        Ok(self.comms.len() - 1)
    }

    fn is_ready(&mut self, comm: usize) -> Result<bool, Broken> {
        let (id, rank) = (self.id_of(comm), self.rank);
        self.world.change(|state| {
            let all = &state.comms[&id];
            match state.is_broken(&id) || state.aborted.contains(&rank) {
                true => Err(lost("a peer has gone")),
                false if all.iter().any(Option::is_none) => Ok(false),
                // Who ends waits for all.
                false => Ok(state
                    .ended
                    .get(&id)
                    .is_none_or(|ended| !ended.contains(&rank) || ended.len() == all.len())),
            }
        })
    }

    fn stream(&mut self) -> Result<Stream, Broken> {
        self.streams += 1;
        Ok(Stream(self.streams - 1))
    }

    fn event(&mut self) -> Result<Event, Broken> {
        self.events.push(vec![]);
        Ok(Event(self.events.len() - 1))
    }

    fn record(&mut self, event: Event, on: Stream) -> Result<(), Broken> {
        let rank = self.rank;
        self.note(format!("record {} on {}", event.0, on.0));
        self.events[event.0] = self.world.change(|state| match on {
            Stream::COMPUTES => state.pending.get(&rank).cloned().unwrap_or_default(),
            Stream(stream) => {
                vec![(stream, state.put.get(&(rank, stream)).copied().unwrap_or(0))]
            }
        });
        Ok(())
    }

    fn wait(&mut self, event: Event, stream: Stream) -> Result<(), Broken> {
        self.note(format!("{} waits for {}", stream.0, event.0));
        let needs = self.events[event.0].clone();
        if stream != Stream::COMPUTES {
            return self.put(stream, Work::Wait(needs));
        }
        self.world.change(|state| state.pending.entry(self.rank).or_default().extend(needs));
        Ok(())
    }

    fn is_idle(&mut self, stream: Stream) -> Result<bool, Broken> {
        let rank = self.rank;
        self.world.change(|state| {
            state.advance();
            let needs = match stream {
                Stream::COMPUTES => state.pending.get(&rank).cloned().unwrap_or_default(),
                Stream(stream) => {
                    vec![(stream, state.put.get(&(rank, stream)).copied().unwrap_or(0))]
                }
            };
            let is_idle = state.is_done(rank, &needs);
            let waits = !is_idle && stream == Stream::COMPUTES;
            *state.asked.entry(rank).or_default() += u64::from(waits);
            Ok(is_idle)
        })
    }

    fn send(&mut self, comm: usize, to: u32, region: Region, on: Stream) -> Result<(), Broken> {
        self.note(format!("send {} on {}", region.offset.0, on.0));
        let id = self.id_of(comm);
        self.put(on, Work::Send(id, to, region))
    }

    fn receive(&mut self, comm: usize, from: u32, into: Region, on: Stream) -> Result<(), Broken> {
        self.note(format!("receive {} on {}", into.offset.0, on.0));
        let id = self.id_of(comm);
        self.put(on, Work::Receive(id, from, into))
    }

    fn join(
        &mut self,
        comm: usize,
        call: Collective,
        region: Region,
        on: Stream,
    ) -> Result<(), Broken> {
        self.note(format!("join {} on {}", region.offset.0, on.0));
        let id = self.id_of(comm);
        self.put(on, Work::Join(id, call, region))
    }

    fn end(&mut self, comm: usize) -> Result<(), Broken> {
        let (id, rank) = (self.id_of(comm), self.rank);
        self.world.change(|state| state.ended.entry(id).or_default().insert(rank));
        Ok(())
    }

    fn free(&mut self, comm: usize) {
        self.comms[comm] = None;
    }

    fn abort(&mut self) -> Box<dyn FnOnce() + Send> {
        let (world, rank) = (self.world.clone(), self.rank);
        Box::new(move || {
            world.until(|state| !state.hangs);
            world.change(|state| state.aborted.insert(rank));
        })
    }
}

impl Drop for Emulated {
    /// Who goes with communicators that have not ended is lost to the others.
    fn drop(&mut self) {
        if self.comms.iter().any(Option::is_some) {
            self.world.kill(self.rank);
        }
    }
}
