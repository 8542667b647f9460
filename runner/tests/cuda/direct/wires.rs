//! Communicators and streams between devices of tests, in place of NCCL and a driver.

use super::world::{Memory, Need, Work, World};
use pipewright_core::plan::{Precision, Region};
use pipewright_runner::device::Rooted;
use pipewright_runner::device::cuda::nccl::{Broken, Event, Id, Seat, Stream, Wires};
use pipewright_runner::transport::Collective;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// The device of a rank, whose computations wait for messages.
pub struct Wired<A> {
    device: Arc<Mutex<A>>,
    world: Arc<World>,
    rank: u32,
    /// What the host read and wrote.
    pub copies: Arc<Mutex<Vec<Range<u64>>>>,
}

/// A device, and its ends of the wires, which reach its memory.
pub fn wired<A>(
    world: &Arc<World>,
    rank: u32,
    device: Arc<Mutex<A>>,
    memory: Box<dyn Memory>,
) -> (Wired<A>, Emulated) {
    world.change(|state| state.devices.insert(rank, memory));
    let wires = Emulated { world: world.clone(), rank, streams: 1, events: vec![], comms: vec![] };
    (Wired { device, world: world.clone(), rank, copies: Arc::default() }, wires)
}

impl<A> Wired<A> {
    /// The device, when what it waits for is done, or will never be.
    pub(super) fn ready(&self) -> MutexGuard<'_, A> {
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

    /// The device, whatever it waits for.
    pub(super) fn device(&self) -> MutexGuard<'_, A> {
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

    pub(super) fn put(&mut self, stream: Stream, work: Work) -> Result<(), Broken> {
        assert_ne!(stream, Stream::COMPUTES);
        let at = (self.rank, stream.0);
        self.world.change(|state| {
            state.queues.entry(at).or_default().push_back(work);
            *state.put.entry(at).or_default() += 1;
        });
        Ok(())
    }

    /// What must be done when a stream has come where it is now.
    fn needs(&self, on: Stream) -> Vec<Need> {
        let rank = self.rank;
        self.world.change(|state| match on {
            Stream::COMPUTES => state.pending.get(&rank).cloned().unwrap_or_default(),
            Stream(stream) => {
                vec![(stream, state.put.get(&(rank, stream)).copied().unwrap_or(0))]
            }
        })
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

    fn begin(&mut self, Seat { id, place, ranks, .. }: Seat) -> Result<usize, Broken> {
        assert_eq!(ranks[place as usize], self.rank, "its own seat");
        self.world.change(|state| {
            let comm = state.comms.entry(*id).or_insert_with(|| vec![None; ranks.len()]);
            assert!(comm[place as usize].replace(self.rank).is_none(), "a rank begins once");
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
        self.note(format!("record {} on {}", event.0, on.0));
        self.events[event.0] = self.needs(on);
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
        let (rank, needs) = (self.rank, self.needs(stream));
        self.world.change(|state| {
            state.advance();
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
        values: &[Rooted],
        precision: Precision,
        on: Stream,
    ) -> Result<(), Broken> {
        let places: Vec<String> = values.iter().map(|v| v.region.offset.0.to_string()).collect();
        self.note(format!("join {} on {}", places.join(" "), on.0));
        let id = self.id_of(comm);
        self.put(on, Work::Join(id, call, values.to_vec(), precision))
    }

    fn join_shards(
        &mut self,
        comm: usize,
        call: Collective,
        shards: &[Region],
        on: Stream,
    ) -> Result<(), Broken> {
        let places: Vec<u64> = shards.iter().map(|shard| shard.offset.0).collect();
        self.note(format!("{call:?} {places:?} on {}", on.0));
        let id = self.id_of(comm);
        let shards = (0..).zip(shards).map(|(root, region)| Rooted { root, region: *region });
        self.put(on, Work::Join(id, call, shards.collect(), Precision::F32))
    }

    fn mark(&mut self, number: usize, on: Stream) -> Result<(), Broken> {
        self.note(format!("mark {number} on {}", on.0));
        let needs = self.needs(on);
        self.world.change(|state| state.marks.insert((self.rank, number), (needs, false)));
        Ok(())
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
