//! All devices, and what lies in their streams.
//!
//! A rank's computations are done when they are asked for, once what its stream waits for is done. What is
//! sent, received and summed lies in queues, and is done as late as possible: when somebody waits. So
//! bytes that nobody waited for are wrong bytes.

use crate::emulator;
use crate::kernels::memory::{numbers, stored};
use pipewright_core::plan::{Precision, Region};
use pipewright_runner::device::DevicePtr;
use pipewright_runner::device::Rooted;
use pipewright_runner::device::cuda::kernels::{Launch, Storage};
use pipewright_runner::device::cuda::nccl::Id;
use pipewright_runner::transport::Collective;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Nothing here takes so long.
const LONG: Duration = Duration::from_secs(300);

/// All devices.
#[derive(Default)]
pub struct World {
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

/// What must be done: so much of a stream.
pub(super) type Need = (usize, u64);

/// The arena of a device, as others reach it.
pub trait Memory: Send {
    /// Reads a region.
    fn read(&self, region: Region) -> Vec<u8>;

    /// Writes it.
    fn write(&self, region: Region, bytes: &[u8]);
}

#[derive(Default)]
pub(super) struct State {
    /// Everything is done at once, not when somebody waits.
    eager: bool,
    /// All ranks share a device.
    is_shared: bool,
    pub ids: u8,
    pub devices: BTreeMap<u32, Box<dyn Memory>>,
    /// By id: the ranks that have begun, by number there.
    pub comms: BTreeMap<Id, Vec<Option<u32>>>,
    /// By rank and stream.
    pub queues: BTreeMap<(u32, usize), VecDeque<Work>>,
    done: BTreeMap<(u32, usize), u64>,
    pub put: BTreeMap<(u32, usize), u64>,
    /// What the computations of a rank wait for.
    pub pending: BTreeMap<u32, Vec<Need>>,
    /// By rank and number: what must be done for a mark, and whether somebody has asked for it.
    pub marks: BTreeMap<(u32, usize), (Vec<Need>, bool)>,
    pub gone: BTreeSet<u32>,
    pub ended: BTreeMap<Id, BTreeSet<u32>>,
    pub aborted: BTreeSet<u32>,
    /// Aborting takes for ever.
    pub hangs: bool,
    pub no_ids: BTreeSet<u32>,
    /// How often a rank asked whether its computations are done, and they were not.
    pub asked: BTreeMap<u32, u64>,
    pub calls: BTreeMap<u32, Vec<String>>,
}

pub(super) enum Work {
    Wait(Vec<Need>),
    Send(Id, u32, Region),
    Receive(Id, u32, Region),
    /// Values as a precision stores them.
    Join(Id, Collective, Vec<Rooted>, Precision),
    /// A number is written, or waited for: that one or one behind it.
    Write(DevicePtr, u32),
    Until(DevicePtr, u32),
    Launch(Launch),
}

impl World {
    /// With what is done as early, or as late, as possible.
    pub fn new(eager: bool) -> Arc<Self> {
        let world = Self::default();
        world.lock().eager = eager;
        Arc::new(world)
    }

    /// The same of a device that all share.
    pub fn shared(eager: bool) -> Arc<Self> {
        let world = Self::new(eager);
        world.lock().is_shared = true;
        world
    }

    pub fn is_shared(&self) -> bool {
        self.lock().is_shared
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        if state.eager {
            state.advance();
        }
        self.changed.notify_all();
        changed
    }

    /// Waits until something is so.
    pub(super) fn until(&self, mut is_so: impl FnMut(&mut State) -> bool) {
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

    /// Whether a mark is reached that is in a stream; none where it is none of them. Who asks for the
    /// second time waits for it.
    pub fn reached(&self, rank: u32, number: usize) -> Option<bool> {
        self.change(|state| {
            let (needs, asked) = state.marks.get_mut(&(rank, number))?;
            let (needs, asked) = (needs.clone(), std::mem::replace(asked, true));
            if asked {
                state.advance();
            }
            Some(asked && state.is_done(rank, &needs))
        })
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

/// A number of a page, for who has the state.
fn number_at(at: DevicePtr) -> u32 {
    // SAFETY: as for those who write them.
    unsafe { (at.0 as *const u32).read() }
}

impl State {
    pub fn is_done(&self, rank: u32, needs: &[Need]) -> bool {
        let done = |stream: usize| self.done.get(&(rank, stream)).copied().unwrap_or(0);
        needs.iter().all(|(stream, count)| done(*stream) >= *count)
    }

    fn number(&self, id: &Id, rank: u32) -> usize {
        let of = |found: &Option<u32>| *found == Some(rank);
        self.comms[id].iter().position(of).expect("it has begun")
    }

    /// Whether a communicator lost a rank.
    pub fn is_broken(&self, id: &Id) -> bool {
        self.comms[id].iter().flatten().any(|rank| self.gone.contains(rank))
    }

    /// Writes a number of a page.
    pub fn write(&mut self, at: DevicePtr, number: u32) {
        // SAFETY: pages live for ever, and whoever touches them has the state.
        unsafe { (at.0 as *mut u32).write(number) }
    }

    fn pop(&mut self, rank: u32, stream: usize) {
        self.queues.get_mut(&(rank, stream)).unwrap().pop_front();
        *self.done.entry((rank, stream)).or_default() += 1;
    }

    /// Does all that can be done.
    pub fn advance(&mut self) {
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
            Some(Work::Write(..) | Work::Launch(_)) => true,
            Some(Work::Until(at, number)) => (number_at(*at).wrapping_sub(*number) as i32) >= 0,
            Some(Work::Wait(needs)) => self.is_done(at.0, needs),
            Some(Work::Receive(id, from, _)) => self.sender(at, id, *from).is_some(),
            Some(Work::Join(id, ..)) => self.members(id).is_some(),
        }
    }

    fn execute(&mut self, at: (u32, usize)) {
        match self.queues[&at].front().expect("it can") {
            Work::Wait(_) | Work::Until(..) => self.pop(at.0, at.1),
            &Work::Write(to, number) => {
                self.write(to, number);
                self.pop(at.0, at.1);
            }
            Work::Launch(launch) => {
                emulator::run(launch);
                self.pop(at.0, at.1);
            }
            Work::Send(..) => unreachable!("receivers take it"),
            Work::Receive(id, from, into) => {
                let (id, into) = (*id, *into);
                let sender = self.sender(at, &id, *from).expect("it can");
                let Some(&Work::Send(_, _, region)) = self.queues[&sender].front() else {
                    unreachable!("it was found there")
                };
                assert_eq!(region.bytes, into.bytes, "a message of another length");
                let bytes = self.devices[&sender.0].read(region);
                self.devices[&at.0].write(into, &bytes);
                [sender, at].into_iter().for_each(|(rank, stream)| self.pop(rank, stream));
            }
            Work::Join(id, call, ..) => {
                let (id, call) = (*id, *call);
                let members = self.members(&id).expect("it can");
                self.join(call, &members);
                members.into_iter().for_each(|(rank, stream)| self.pop(rank, stream));
            }
        }
    }

    fn join(&self, call: Collective, members: &[(u32, usize)]) {
        let all = members.iter().map(|at| match self.queues[at].front() {
            Some(Work::Join(_, other, values, precision)) if *other == call => {
                (&values[..], *precision)
            }
            _ => panic!("ranks of a group call {call:?} and something else"),
        });
        let all: Vec<(&[Rooted], Precision)> = all.collect();
        for (at, first) in all[0].0.iter().enumerate() {
            let (root, storage) = (first.root as usize, Storage::from(all[0].1));
            let region = |number: usize| {
                let Rooted { root, region } = all[number].0[at];
                let same = (root, region.bytes) == (first.root, first.region.bytes);
                assert!(same && all[number].1 == all[0].1, "{call:?} is another");
                region
            };
            let read = |number: usize| self.devices[&members[number].0].read(region(number));
            let mut result: Vec<u8> = read(root);
            if call != Collective::Broadcast {
                // As hosts do: the root, then all others; rounded once.
                let mut sum = numbers(storage, &result);
                for other in (0..all.len()).filter(|number| *number != root) {
                    let values = numbers(storage, &read(other));
                    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                }
                result = stored(storage, &sum);
            }
            let who = if call == Collective::Reduce { root..root + 1 } else { 0..all.len() };
            who.for_each(|number| self.devices[&members[number].0].write(region(number), &result));
        }
    }
}
