//! Messages and sums between ranks that share a GPU: each reads the others' memory, by CUDA IPC where ranks are processes.
//!
//! ```text
//! streams    what is asked for: numbers that streams write and wait for, kernels
//! meet       whether all ranks share one GPU, and where each finds the others' memory
//! ```
//! Every rank has a page of numbers in the device's memory, with an entry for each line and each of its ranks, which the
//! stream of that rank writes. A stream waits for numbers of its own rank's page; no host waits.
//!
//! ```text
//! message    sender      region's place and turn -> receiver's page; waits for the receiver's turn
//!            receiver    waits for the sender's turn; copies; turn -> sender's page
//! sum        all meet; each adds up a share of the values; all meet; each copies the others' shares; all meet
//! ```

mod meet;
mod streams;

pub use meet::{Apart, Card, Handle, Reach, meet};
pub use streams::{Release, Streams};

use super::kernels::peers::{Peer, copy, sum};
use super::kernels::{MOST_PEERS, Storage};
use super::nccl::{Broken, Event, Id, Seat, Stream, Wires};
use crate::device::{DevicePtr, Rooted};
use crate::transport::Collective;
use pipewright_core::plan::{Precision, Region};
use pipewright_core::units::Bytes;

/// Bytes of an entry: the place of what a rank offers, then its turn.
const ENTRY: u64 = 16;
const TURN: u64 = 8;

/// A turn that is behind all that are waited for: a run has not so many.
const RELEASED: u32 = 1 << 30;

/// Values of a share begin at multiples of so many.
const SHARE: u64 = 64;

/// Bytes of a page for so many lines, and the ranks' last meeting.
pub fn page_bytes(lines: usize) -> u64 {
    (lines as u64 + 1) * MOST_PEERS as u64 * ENTRY
}

/// The ends of lines on one of the ranks that share a device.
pub struct SharedDevice<S> {
    streams: S,
    rank: u32,
    /// By rank.
    reach: Vec<Reach>,
    /// By number.
    lines: Vec<Option<Line>>,
    /// Whether other ranks' arenas are closed, and all know.
    is_closing: bool,
}

/// A line that is open.
struct Line {
    ranks: Vec<u32>,
    place: usize,
    /// How often its ranks met, or a message was taken.
    turn: u32,
    /// Where it goes on; none before its first use.
    stream: Option<Stream>,
    has_ended: bool,
}

/// An end of a line.
#[derive(Clone, Copy)]
struct LineEnd {
    /// The line's number.
    line: usize,
    /// Whose end, of the line's ranks.
    place: usize,
}

impl Line {
    /// The places of the others.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.place;
        (0..self.ranks.len()).filter(move |place| *place != own)
    }
}

impl<S: Streams> SharedDevice<S> {
    /// Of a rank, with where it finds each rank's memory, for so many lines.
    pub fn new(streams: S, rank: u32, reach: Vec<Reach>, lines: usize) -> Self {
        let lines = (0..lines).map(|_| None).collect();
        Self { streams, rank, reach, lines, is_closing: false }
    }

    fn line(&self, number: usize) -> &Line {
        self.lines[number].as_ref().expect("a line that is open")
    }

    /// The entry of a place in the page of a rank.
    fn entry(&self, of: u32, line: usize, place: usize) -> DevicePtr {
        let entries = line as u64 * MOST_PEERS as u64 + place as u64;
        self.reach[of as usize].page.after(entries * ENTRY)
    }

    fn at(&self, region: Region) -> DevicePtr {
        self.reach[self.rank as usize].arena.after(region.offset.0)
    }

    /// The next turn of a line, which goes on in a stream.
    fn turn(&mut self, number: usize, on: Stream) -> u32 {
        let line = self.lines[number].as_mut().expect("a line that is open");
        line.stream = Some(on);
        line.turn += 1;
        line.turn
    }

    /// Tells another end of a line that this rank's turn has come, and what it offers.
    fn tell(
        &mut self,
        to: LineEnd,
        turn: u32,
        offer: Option<Region>,
        on: Stream,
    ) -> Result<(), Broken> {
        let line = self.line(to.line);
        let entry = self.entry(line.ranks[to.place], to.line, line.place);
        if let Some(Region { offset, .. }) = offer {
            self.streams.write(entry, offset.0 as u32, on)?;
            self.streams.write(entry.after(4), (offset.0 >> 32) as u32, on)?;
        }
        self.streams.write(entry.after(TURN), turn, on)
    }

    /// Waits for the turn of another end.
    fn hear(&mut self, from: LineEnd, turn: u32, on: Stream) -> Result<(), Broken> {
        let entry = self.entry(self.rank, from.line, from.place);
        self.streams.until(entry.after(TURN), turn, on)
    }

    /// All ranks of a line come here, and tell what they offer.
    fn meet(&mut self, number: usize, offer: Option<Region>, on: Stream) -> Result<(), Broken> {
        let turn = self.turn(number, on);
        let others = self.line(number).others();
        for to in others {
            self.tell(LineEnd { line: number, place: to }, turn, offer, on)?;
        }
        let mut others = self.line(number).others();
        others.try_for_each(|place| self.hear(LineEnd { line: number, place }, turn, on))
    }

    /// What the rank of a place offers, and `own` on this rank.
    fn peer(&self, number: usize, place: usize, own: DevicePtr) -> Peer {
        let line = self.line(number);
        match place == line.place {
            true => Peer { base: own, place: DevicePtr::NULL },
            false => {
                let base = self.reach[line.ranks[place] as usize].arena;
                Peer { base, place: self.entry(self.rank, number, place) }
            }
        }
    }

    /// Part of a region: values `first` on, `count` of them, added up from all ranks, the root's first.
    fn add_up(
        &mut self,
        root: LineEnd,
        storage: Storage,
        part: &Part,
        on: Stream,
    ) -> Result<(), Broken> {
        let own = self.at(part.region);
        let all = 0..self.line(root.line).ranks.len();
        let others = all.filter(|place| *place != root.place);
        let order = std::iter::once(root.place).chain(others);
        let peers: Vec<Peer> = order.map(|place| self.peer(root.line, place, own)).collect();
        let count = part.region.bytes.0 / storage.bytes();
        self.streams.launch(&sum(storage, &peers, part.from, own, count), on)
    }

    /// Part of a region, as another place has it.
    fn take(&mut self, number: usize, from: usize, part: &Part, on: Stream) -> Result<(), Broken> {
        let own = self.at(part.region);
        let peer = self.peer(number, from, own);
        self.streams.launch(&copy(peer, part.from, own, part.region.bytes.0), on)
    }

    fn call(
        &mut self,
        number: usize,
        call: Collective,
        values: &[Rooted],
        storage: Storage,
        on: Stream,
    ) -> Result<(), Broken> {
        // Values lie alike on all ranks, from the first one's place on.
        let Some(first) = values.iter().find(|value| value.region.bytes.0 > 0) else {
            return Ok(());
        };
        let part = |region: Region| Part {
            region,
            from: region.offset.0 as i64 - first.region.offset.0 as i64,
        };
        let (own, ranks) = (self.line(number).place, self.line(number).ranks.len());
        let some = values.iter().filter(|value| value.region.bytes.0 > 0);
        self.meet(number, Some(first.region), on)?;
        match call {
            Collective::AllReduce => {
                let share = |region: Region, place| part(share(region, storage, place, ranks));
                let all = || some.clone().map(|value| value.region);
                for own in all().map(|region| share(region, own)).filter(Part::is_some) {
                    self.add_up(LineEnd { line: number, place: 0 }, storage, &own, on)?;
                }
                self.meet(number, None, on)?;
                for place in self.line(number).others() {
                    for other in all().map(|region| share(region, place)).filter(Part::is_some) {
                        self.take(number, place, &other, on)?;
                    }
                }
            }
            Collective::Reduce => {
                for value in some.filter(|value| value.root as usize == own) {
                    self.add_up(
                        LineEnd { line: number, place: own },
                        storage,
                        &part(value.region),
                        on,
                    )?;
                }
            }
            Collective::Broadcast => {
                for value in some.filter(|value| value.root as usize != own) {
                    self.take(number, value.root as usize, &part(value.region), on)?;
                }
            }
        }
        // Nobody writes over what another one still reads.
        self.meet(number, None, on)
    }

    /// All lines but this one are closed: closes others' arenas, and meets all ranks once more, so that no arena is freed
    /// that another rank has open.
    fn part(&mut self, on: Stream) -> Result<(), Broken> {
        self.is_closing = true;
        self.streams.close()?;
        let last = self.lines.len();
        let others: Vec<u32> =
            (0..self.reach.len() as u32).filter(|rank| *rank != self.rank).collect();
        for other in &others {
            let entry = self.entry(*other, last, self.rank as usize);
            self.streams.write(entry.after(TURN), 1, on)?;
        }
        others.iter().try_for_each(|other| {
            let entry = self.entry(self.rank, last, *other as usize);
            self.streams.until(entry.after(TURN), 1, on)
        })
    }
}

/// Part of what a rank offers.
struct Part {
    region: Region,
    /// Bytes behind the place that it told.
    from: i64,
}

impl Part {
    fn is_some(&self) -> bool {
        self.region.bytes.0 > 0
    }
}

/// The values of a region that one of `ranks` adds up.
fn share(region: Region, storage: Storage, place: usize, ranks: usize) -> Region {
    let size = storage.bytes();
    let each = (region.bytes.0 / size).div_ceil(ranks as u64).next_multiple_of(SHARE) * size;
    let [begin, end] = [place, place + 1].map(|at| (each * at as u64).min(region.bytes.0));
    Region { offset: region.offset + Bytes(begin), bytes: Bytes(end - begin) }
}

impl<S: Streams> Wires for SharedDevice<S> {
    type Comm = usize;

    fn name(&self) -> String {
        "ipc".into()
    }

    fn id(&mut self) -> Result<Id, Broken> {
        // Lines have numbers.
        Ok([0; 128])
    }

    fn begin(&mut self, seat: Seat) -> Result<usize, Broken> {
        let (ranks, place) = (seat.ranks.to_vec(), seat.place as usize);
        let line = Line { ranks, place, turn: 0, stream: None, has_ended: false };
        self.lines[seat.line] = Some(line);
        Ok(seat.line)
    }

    fn is_ready(&mut self, comm: usize) -> Result<bool, Broken> {
        let Line { stream, has_ended, .. } = *self.line(comm);
        let Some(on) = stream.filter(|_| has_ended) else { return Ok(true) };
        if !self.streams.is_idle(on)? {
            return Ok(false);
        }
        let is_last = self.lines.iter().flatten().count() == 1;
        if is_last && !self.is_closing {
            self.part(on)?;
            return Ok(false);
        }
        Ok(true)
    }

    fn stream(&mut self) -> Result<Stream, Broken> {
        self.streams.stream()
    }

    fn event(&mut self) -> Result<Event, Broken> {
        self.streams.event()
    }

    fn record(&mut self, event: Event, on: Stream) -> Result<(), Broken> {
        self.streams.record(event, on)
    }

    fn wait(&mut self, event: Event, stream: Stream) -> Result<(), Broken> {
        self.streams.wait(event, stream)
    }

    fn is_idle(&mut self, stream: Stream) -> Result<bool, Broken> {
        self.streams.is_idle(stream)
    }

    fn send(&mut self, comm: usize, to: u32, region: Region, on: Stream) -> Result<(), Broken> {
        let (to, turn) = (LineEnd { line: comm, place: to as usize }, self.turn(comm, on));
        self.tell(to, turn, Some(region), on)?;
        self.hear(to, turn, on)
    }

    fn receive(&mut self, comm: usize, from: u32, into: Region, on: Stream) -> Result<(), Broken> {
        let (from, turn) = (LineEnd { line: comm, place: from as usize }, self.turn(comm, on));
        self.hear(from, turn, on)?;
        self.take(comm, from.place, &Part { region: into, from: 0 }, on)?;
        self.tell(from, turn, None, on)
    }

    fn join(
        &mut self,
        comm: usize,
        call: Collective,
        values: &[Rooted],
        precision: Precision,
        on: Stream,
    ) -> Result<(), Broken> {
        self.call(comm, call, values, precision.into(), on)
    }

    fn mark(&mut self, number: usize, on: Stream) -> Result<(), Broken> {
        self.streams.mark(number, on)
    }

    fn end(&mut self, comm: usize) -> Result<(), Broken> {
        if let Some(on) = self.line(comm).stream {
            self.meet(comm, None, on)?;
        }
        self.lines[comm].as_mut().expect("a line that is open").has_ended = true;
        Ok(())
    }

    fn free(&mut self, comm: usize) {
        self.lines[comm] = None;
    }

    fn abort(&mut self) -> Box<dyn FnOnce() + Send> {
        // Turns, and not the places beside them: kernels are under way that read these.
        let turns = self.reach[self.rank as usize].page.after(TURN);
        self.streams.release(turns, ENTRY, page_bytes(self.lines.len()) / ENTRY, RELEASED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_of_a_region() {
        for (bytes, storage) in
            [(4, Storage::F32), (4 * 1000, Storage::F32), (2 * 777, Storage::Bf16)]
        {
            let region = Region { offset: Bytes(64), bytes: Bytes(bytes) };
            for ranks in 1..6 {
                let mut end = region.offset;
                for place in 0..ranks {
                    let share = share(region, storage, place, ranks);
                    assert!(share.offset == end || share.bytes == Bytes::ZERO, "{share:?}");
                    assert_eq!(share.bytes.0 % storage.bytes(), 0);
                    end = end.max(share.offset + share.bytes);
                }
                assert_eq!(end, region.offset + region.bytes);
            }
        }
    }
}
