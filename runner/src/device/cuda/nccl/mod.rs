//! Messages and sums between GPUs by NCCL, and by other [`Wires`] of its kind.
//!
//! ```text
//! routes     which ranks have a communicator: those of an edge, of a group that sums, of such a group's host
//! wires      what communicators, streams and events are asked for ...
//! library    ... by NCCL and the driver; tests have others
//! meet       whether all ranks can take part, and how they find each other
//! abort      how it ends when a rank was lost
//! ```
//! Every communicator has a stream. What it sends waits, by an event, for what the device was asked to
//! compute before; what it receives, for the last work that touched the same bytes; and what the device
//! computes afterwards waits for it where the program says so. Between these, communication and
//! computation overlap. The host never waits but in [`Fabric::settle`], where it asks again and again: the
//! stream, all communicators and whether this run was given up.

mod abort;
mod library;
mod meet;
mod routes;
mod wires;

pub use abort::Limits;
pub use library::{Api, Cuda};
pub use meet::{Member, Refusal, connect, may};
pub use routes::{Disorder, Line, Routes};
pub use wires::{Broken, Event, Id, Seat, Stream, Wires};

use crate::device::{Fabric, Mark, Rooted};
use crate::transport::{Collective, TransportError};
use pipewright_core::plan::{Precision, Region};
use pipewright_core::units::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Moments that are remembered; for older ones a newer one stands, which comes later.
const MARKS: usize = 64;

/// Why a run was given up, if it was: another rank of this process failed, or the supervisor says so.
pub type GivenUp = Box<dyn Fn() -> Option<TransportError> + Send>;

/// The ends of communicators on one rank.
pub struct Communicators<W: Wires> {
    wires: W,
    name: String,
    rank: u32,
    micro_batches: u32,
    lines: Vec<Connected<W::Comm>>,
    /// By peer and edge: numbers of lines.
    sends: BTreeMap<(u32, u32), usize>,
    receives: BTreeMap<(u32, u32), usize>,
    /// By group.
    groups: BTreeMap<usize, usize>,
    /// By group: where a host adds up, and where it hands out.
    intra_node_lines: BTreeMap<(usize, bool), usize>,
    /// By handle of sends and by slot of collective calls.
    left: Vec<Option<Event>>,
    joined: Vec<Option<Event>>,
    marks: Vec<Event>,
    last_mark: Mark,
    given_up: GivenUp,
    limits: Limits,
    broken: Option<TransportError>,
}

/// A line in use.
struct Connected<C> {
    line: Line,
    comm: C,
    stream: Stream,
    /// The device's work before what is started.
    before: Event,
    /// What is started, where nothing else tells.
    after: Event,
}

impl<W: Wires> Communicators<W> {
    /// Without lines.
    fn new(
        mut wires: W,
        rank: u32,
        micro_batches: u32,
        given_up: GivenUp,
        limits: Limits,
    ) -> Result<Self, TransportError> {
        let name = wires.name();
        let marks: Result<Vec<Event>, Broken> = (0..MARKS).map(|_| wires.event()).collect();
        let marks = marks.map_err(|broken| error(format!("rank {rank}"), broken))?;
        Ok(Self {
            wires,
            name,
            rank,
            micro_batches,
            lines: vec![],
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            groups: BTreeMap::new(),
            intra_node_lines: BTreeMap::new(),
            left: vec![],
            joined: vec![],
            marks,
            last_mark: 0,
            given_up,
            limits,
            broken: None,
        })
    }

    /// Connects a line, and has something travel on it: the first message would wait for its receiver.
    fn add(&mut self, number: usize, line: &Line, id: &Id) -> Result<(), TransportError> {
        let ranks = line.ranks();
        let place = ranks.iter().position(|rank| *rank == self.rank).expect("one of its ranks");
        let seat = Seat { id, line: number, place: place as u32, ranks: &ranks };
        let made = self.make(line, seat);
        made.map_err(|broken| self.give_up(error(line.label(self.rank), broken)))?;
        let at = self.lines.len() - 1;
        let limit = Some(Instant::now() + self.limits.connect);
        let comm = self.lines[at].comm;
        self.until(at, limit, |wires| wires.is_ready(comm))?;
        // The arena is all zeros yet, also after this.
        self.after_computing(at)?;
        let first = Region { offset: Bytes(0), bytes: Bytes(4) };
        match *line {
            Line::Edge { from, to, edge } if from == self.rank => {
                self.sends.insert((to, edge), at);
                self.start(at, |wires, comm, stream| wires.send(comm, 1, first, stream), limit)?;
            }
            Line::Edge { from, edge, .. } => {
                self.receives.insert((from, edge), at);
                self.start(at, |wires, comm, stream| wires.receive(comm, 0, first, stream), limit)?;
            }
            Line::Group { .. } | Line::IntraNode { .. } => {
                match *line {
                    Line::IntraNode { group, hands_out, .. } => {
                        self.intra_node_lines.insert((group, hands_out), at)
                    }
                    Line::Group { group, .. } => self.groups.insert(group, at),
                    Line::Edge { .. } => unreachable!("seen above"),
                };
                let (call, values) = (Collective::AllReduce, [Rooted { root: 0, region: first }]);
                let join = |wires: &mut W, comm, stream| {
                    wires.join(comm, call, &values, Precision::F32, stream)
                };
                self.start(at, join, limit)?;
            }
        }
        let stream = self.lines[at].stream;
        self.until(at, limit, |wires| wires.is_idle(stream))
    }

    fn make(&mut self, line: &Line, seat: Seat) -> Result<(), Broken> {
        let wires = &mut self.wires;
        let (stream, before, after) = (wires.stream()?, wires.event()?, wires.event()?);
        let comm = wires.begin(seat)?;
        self.lines.push(Connected { line: line.clone(), comm, stream, before, after });
        Ok(())
    }

    /// Starts something on a line; returns when its stream has it.
    fn start(
        &mut self,
        at: usize,
        work: impl FnOnce(&mut W, W::Comm, Stream) -> Result<(), Broken>,
        limit: Option<Instant>,
    ) -> Result<(), TransportError> {
        let Connected { comm, stream, .. } = self.lines[at];
        let started = work(&mut self.wires, comm, stream);
        self.told(at, started)?;
        self.until(at, limit, |wires| wires.is_ready(comm))
    }

    /// The stream of a line goes on when the device has done what it was asked for so far.
    fn after_computing(&mut self, at: usize) -> Result<(), TransportError> {
        let Connected { stream, before, .. } = self.lines[at];
        let recorded = self.wires.record(before, Stream::COMPUTES);
        let waits = recorded.and_then(|()| self.wires.wait(before, stream));
        self.told(at, waits)
    }

    /// Asks again and again until it is so; looks after the other communicators meanwhile.
    fn until(
        &mut self,
        at: usize,
        limit: Option<Instant>,
        mut is_so: impl FnMut(&mut W) -> Result<bool, Broken>,
    ) -> Result<(), TransportError> {
        for round in 0_u32.. {
            let now = is_so(&mut self.wires);
            if self.told(at, now)? {
                break;
            }
            if round % 16 == 15 {
                self.look_around()?;
            }
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                let why = "the others do not answer".into();
                self.told(at, Err(Broken { why, lost: true }))?;
            }
            match round {
                0..1000 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        Ok(())
    }

    /// Whether all communicators are well, and nobody has given the run up.
    fn look_around(&mut self) -> Result<(), TransportError> {
        for at in 0..self.lines.len() {
            let state = self.wires.is_ready(self.lines[at].comm);
            self.told(at, state)?;
        }
        match (self.given_up)() {
            Some(why) => Err(self.give_up(why)),
            None => Ok(()),
        }
    }

    /// What a call for a line says; after an error there are no communicators any more.
    fn told<T>(&mut self, at: usize, result: Result<T, Broken>) -> Result<T, TransportError> {
        result.map_err(|broken| {
            let line = self.lines.get(at);
            let what = line.map_or(format!("rank {}", self.rank), |c| c.line.label(self.rank));
            self.give_up(error(what, broken))
        })
    }

    /// Gives everything up, once.
    fn give_up(&mut self, error: TransportError) -> TransportError {
        if self.broken.is_none() {
            self.broken = Some(error.clone());
            let ended = abort::within(self.limits.abort, self.wires.abort());
            if !ended {
                (self.limits.hangs)(&error);
            }
        }
        error
    }

    fn is_well(&self) -> Result<(), TransportError> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Starts a call on shards, on the line of a host's part.
    fn join_shards(
        &mut self,
        at: usize,
        slot: usize,
        call: Collective,
        shards: &[Region],
    ) -> Result<(), TransportError> {
        self.start(at, |wires, comm, stream| wires.join_shards(comm, call, shards, stream), None)?;
        let (event, stream) = (self.event(at, slot, true)?, self.lines[at].stream);
        let recorded = self.wires.record(event, stream);
        self.told(at, recorded)
    }

    /// The event of a handle or slot.
    fn event(&mut self, at: usize, which: usize, of_calls: bool) -> Result<Event, TransportError> {
        let events = if of_calls { &mut self.joined } else { &mut self.left };
        if events.len() <= which {
            events.resize(which + 1, None);
        }
        if let Some(event) = events[which] {
            return Ok(event);
        }
        let made = self.wires.event();
        let event = self.told(at, made)?;
        if of_calls {
            self.joined[which] = Some(event)
        } else {
            self.left[which] = Some(event)
        }
        Ok(event)
    }

    /// The device goes on after an event, if there was one.
    fn computes_after(&mut self, event: Option<Event>) -> Result<(), TransportError> {
        self.is_well()?;
        let Some(event) = event else { return Ok(()) };
        let waits = self.wires.wait(event, Stream::COMPUTES);
        self.told(usize::MAX, waits)
    }
}

fn error(what: String, Broken { why, lost }: Broken) -> TransportError {
    TransportError::Devices { what, why, lost }
}

impl<W: Wires> Fabric for Communicators<W> {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(
        &mut self,
        to: u32,
        tag: u32,
        region: Region,
        handle: usize,
    ) -> Result<(), TransportError> {
        self.is_well()?;
        let at = self.sends[&(to, tag / self.micro_batches)];
        self.after_computing(at)?;
        self.start(at, |wires, comm, stream| wires.send(comm, 1, region, stream), None)?;
        let (event, stream) = (self.event(at, handle, false)?, self.lines[at].stream);
        let recorded = self.wires.record(event, stream);
        self.told(at, recorded)
    }

    fn sent(&mut self, handle: usize) -> Result<(), TransportError> {
        self.computes_after(self.left.get(handle).copied().flatten())
    }

    fn receive(
        &mut self,
        from: u32,
        tag: u32,
        region: Region,
        free: Mark,
    ) -> Result<(), TransportError> {
        self.is_well()?;
        let at = self.receives[&(from, tag / self.micro_batches)];
        let Connected { stream, after, .. } = self.lines[at];
        if free > 0 {
            let waits = self.wires.wait(self.marks[free as usize % MARKS], stream);
            self.told(at, waits)?;
        }
        self.start(at, |wires, comm, stream| wires.receive(comm, 0, region, stream), None)?;
        let recorded = self.wires.record(after, stream);
        let waits = recorded.and_then(|()| self.wires.wait(after, Stream::COMPUTES));
        self.told(at, waits)
    }

    fn mark(&mut self) -> Result<Mark, TransportError> {
        self.is_well()?;
        self.last_mark += 1;
        let event = self.marks[self.last_mark as usize % MARKS];
        let recorded = self.wires.record(event, Stream::COMPUTES);
        self.told(usize::MAX, recorded)?;
        Ok(self.last_mark)
    }

    fn join(
        &mut self,
        call: Collective,
        group: usize,
        values: &[Rooted],
        precision: Precision,
        slot: usize,
    ) -> Result<(), TransportError> {
        self.is_well()?;
        // Who is alone in a group has its sum.
        let Some(at) = self.groups.get(&group).copied() else { return Ok(()) };
        self.after_computing(at)?;
        let join = |wires: &mut W, comm, stream| wires.join(comm, call, values, precision, stream);
        self.start(at, join, None)?;
        let (event, stream) = (self.event(at, slot, true)?, self.lines[at].stream);
        let recorded = self.wires.record(event, stream);
        self.told(at, recorded)
    }

    fn joined(&mut self, slot: usize) -> Result<(), TransportError> {
        self.computes_after(self.joined.get(slot).copied().flatten())
    }

    fn reduce_intra_node(
        &mut self,
        group: usize,
        shards: &[Region],
        slot: usize,
        mark: usize,
    ) -> Result<(), TransportError> {
        self.is_well()?;
        let at = self.intra_node_lines.get(&(group, false)).copied();
        if let Some(at) = at {
            self.after_computing(at)?;
            self.join_shards(at, slot, Collective::Reduce, shards)?;
        }
        // Who is alone on its host has the host's sums.
        let stream = at.map_or(Stream::COMPUTES, |at| self.lines[at].stream);
        let marked = self.wires.mark(mark, stream);
        self.told(at.unwrap_or(usize::MAX), marked)
    }

    fn broadcast_intra_node(
        &mut self,
        group: usize,
        shards: &[Region],
        slot: usize,
    ) -> Result<(), TransportError> {
        self.is_well()?;
        let Some(at) = self.intra_node_lines.get(&(group, true)).copied() else { return Ok(()) };
        // The codecs have done their part, as the caller has seen. Other owners' shards, which are
        // written over now, may still be on their way to them; not so those of sums that began later,
        // for which others may wait until they have what is handed out here.
        let added_up = self.event(at, slot, true)?;
        let waits = self.wires.wait(added_up, self.lines[at].stream);
        self.told(at, waits)?;
        self.join_shards(at, slot, Collective::Broadcast, shards)
    }

    fn wait_until(
        &mut self,
        is_so: &mut dyn FnMut() -> Result<bool, TransportError>,
    ) -> Result<(), TransportError> {
        self.is_well()?;
        let mut failed = None;
        self.until(usize::MAX, None, |_| {
            let is_over = is_so().map_err(|error| failed = Some(error));
            Ok(is_over.unwrap_or(true))
        })?;
        match failed {
            // What this rank has begun here would be waited for.
            Some(error) => Err(self.give_up(error)),
            None => Ok(()),
        }
    }

    fn settle(&mut self) -> Result<(), TransportError> {
        self.is_well()?;
        self.until(usize::MAX, None, |wires| wires.is_idle(Stream::COMPUTES))
    }
}

impl<W: Wires> Drop for Communicators<W> {
    /// Ends communicators in order where all ranks do so; gives them up where one does not come.
    fn drop(&mut self) {
        if self.broken.is_some() {
            return;
        }
        let goes_on = !std::thread::panicking() && (self.given_up)().is_none();
        let in_order = goes_on && self.end();
        if !in_order && !abort::within(self.limits.abort, self.wires.abort()) {
            let what = format!("rank {}, end of the run", self.rank);
            let why = "other ranks do not end".into();
            (self.limits.hangs)(&TransportError::Devices { what, why, lost: true });
        }
    }
}

impl<W: Wires> Communicators<W> {
    /// Whether all communicators are no more, within the limit.
    fn end(&mut self) -> bool {
        // What was sent is received by who still computes.
        let limit = Some(Instant::now() + self.limits.connect);
        if self.until(usize::MAX, limit, |wires| wires.is_idle(Stream::COMPUTES)).is_err() {
            return true;
        }
        let comms: Vec<W::Comm> = self.lines.iter().map(|line| line.comm).collect();
        let limit = Instant::now() + self.limits.connect;
        let ended = |wires: &mut W, comm| loop {
            match wires.is_ready(comm) {
                Ok(true) => return true,
                Ok(false) if Instant::now() < limit => std::thread::sleep(Duration::from_millis(1)),
                _ => return false,
            }
        };
        let wires = &mut self.wires;
        if !comms.iter().all(|comm| wires.end(*comm).is_ok()) {
            return false;
        }
        comms.into_iter().all(|comm| {
            let is_over = ended(wires, comm);
            if is_over {
                wires.free(comm);
            }
            is_over
        })
    }
}
