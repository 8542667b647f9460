//! Two-shot: every rank's values of a part go encoded to the rank that owns it, which sums them in
//! single precision and sends the sum, encoded anew, to all.
//!
//! ```text
//! rank 0   encode 0 1 2 ..         sum chunk 0 of part 0    decode part 1, 2
//!             |  \  \                 |   \   \
//! rank 1      |   '---------------->  sum chunk 0 of part 1 ..
//! rank 2       '------------------->  ..
//! ```
//! All receives are posted at the beginning. The owner encodes and decodes its own values like
//! everybody's: the result does not depend on who owns what, and has the same bits on every rank.

use super::memory::{Values, Wire};
use super::pieces::{Layout, Parts, Piece};
use super::residual::Residuals;
use super::tools::{Bench, Tools};
use crate::transport::{Links, Ticket, TransportError};
use pipewright_core::compress::share::Share;
use pipewright_core::compress::{Codec, CodecError, Method, feedback};
use std::collections::VecDeque;

/// What stays the same from step to step.
pub(super) struct TwoShot {
    circle: usize,
    tag: u32,
    /// Ranks of the circle, and this rank's place there.
    ranks: Vec<u32>,
    own: usize,
    parts: Parts,
    /// Part and chunk, in the order of encoding: one chunk for each rank in turn, the next rank first,
    /// so that all receivers have something to do.
    order: Vec<(usize, usize)>,
    progress: Progress,
}

/// Where a sum stands.
#[derive(Default)]
struct Progress {
    /// Of `order`.
    encoded: usize,
    /// Chunks of the own part.
    summed: usize,
    /// By rank: its values that have not come, and the lengths of those that have and are not summed.
    arriving: Vec<VecDeque<Ticket>>,
    arrived: Vec<VecDeque<usize>>,
    /// By rank: its sums that are not decoded.
    sums: Vec<VecDeque<Ticket>>,
    sends: VecDeque<Ticket>,
    /// By rank: how much of a message is decoded. Of use while a chunk is summed.
    read: Vec<usize>,
}

/// A step's particulars.
pub(super) struct Step<'a> {
    pub bucket: usize,
    pub method: Method,
    pub layout: &'a Layout,
    pub values: Values,
    pub out: &'a Wire,
    pub inward: &'a Wire,
    pub residuals: &'a mut Residuals,
}

impl TwoShot {
    pub fn new(share: &Share, parts: Parts, circle: usize, tag: u32) -> Self {
        let (ranks, own) = (share.across.clone(), share.part());
        let count = ranks.len();
        let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
        let turn = |chunk: usize| (1..=count).map(move |i| ((own + i) % count, chunk));
        let exists = |(part, chunk): &(usize, usize)| *chunk < parts[*part].len();
        let order: Vec<_> = (0..longest).flat_map(turn).filter(exists).collect();
        let mut progress = Progress { read: vec![0; count], ..Progress::default() };
        let chunks = parts[own].len();
        for part in &parts {
            progress.arriving.push(VecDeque::with_capacity(chunks));
            progress.arrived.push(VecDeque::with_capacity(chunks));
            progress.sums.push(VecDeque::with_capacity(part.len()));
        }
        progress.sends = VecDeque::with_capacity(order.len() + chunks * count);
        Self { circle, tag, ranks, own, parts, order, progress }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.own;
        (0..self.ranks.len()).filter(move |rank| *rank != own)
    }

    /// Messages under way at a time, at most: each part's values and sums are sent once and received
    /// once.
    pub fn tickets(&self) -> usize {
        let chunks: usize = self.others().map(|rank| self.parts[rank].len()).sum();
        2 * (chunks + self.parts[self.own].len() * (self.ranks.len() - 1))
    }

    /// Posts all receives.
    pub fn start(&mut self, step: &Step, links: &mut dyn Links) -> Result<(), TransportError> {
        (self.progress.encoded, self.progress.summed) = (0, 0);
        for rank in self.others() {
            let progress = &mut self.progress;
            for (tag, places, tickets) in [
                (self.tag, &step.layout.arriving[rank], &mut progress.arriving[rank]),
                (self.tag + 1, &step.layout.sums[rank], &mut progress.sums[rank]),
            ] {
                for place in places {
                    // SAFETY: these bytes are read when the message is there, and not before.
                    let into = step.inward.place(place.clone());
                    tickets.push_back(unsafe { links.receive(self.circle, rank, tag, into)? });
                }
            }
        }
        Ok(())
    }

    /// Does one thing, if there is one to do: sums a chunk, encodes or decodes one. Sums first: others
    /// wait for them.
    pub fn advance(&mut self, step: &mut Step, tools: &mut Tools) -> Result<bool, TransportError> {
        self.look(&mut *tools.links)?;
        let ready = self.progress.arrived.iter().all(|lengths| !lengths.is_empty());
        if ready && self.progress.summed < self.parts[self.own].len() {
            self.sum(step, tools)?;
            return Ok(true);
        }
        if let Some(&(part, chunk)) = self.order.get(self.progress.encoded) {
            self.encode(step, tools, part, chunk)?;
            return Ok(true);
        }
        for rank in self.others() {
            let Some(ticket) = self.progress.sums[rank].front() else { continue };
            if let Some(length) = tools.links.test(ticket)? {
                self.progress.sums[rank].pop_front();
                self.decode(step, tools, rank, length)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether everything is summed, decoded and sent.
    pub fn is_done(&self) -> bool {
        let progress = &self.progress;
        progress.encoded == self.order.len()
            && progress.summed == self.parts[self.own].len()
            && progress.sums.iter().all(VecDeque::is_empty)
            && progress.sends.is_empty()
    }

    /// Notes what has come and what is sent.
    fn look(&mut self, links: &mut dyn Links) -> Result<(), TransportError> {
        for (tickets, lengths) in self.progress.arriving.iter_mut().zip(&mut self.progress.arrived)
        {
            while let Some(ticket) = tickets.front() {
                let Some(length) = links.test(ticket)? else { break };
                tickets.pop_front();
                lengths.push_back(length);
            }
        }
        while let Some(ticket) = self.progress.sends.front() {
            if links.test(ticket)?.is_none() {
                break;
            }
            self.progress.sends.pop_front();
        }
        Ok(())
    }

    /// Encodes a chunk of this rank's values and sends it to the owner of its part.
    fn encode(
        &mut self,
        step: &mut Step,
        tools: &mut Tools,
        part: usize,
        chunk: usize,
    ) -> Result<(), TransportError> {
        let place = &step.layout.first[part][chunk];
        let fault = |source| Tools::fault(step.bucket, self.ranks[self.own], source);
        let Bench { codec, room, links } = tools.bench(step.method.codec);
        // SAFETY: nothing else uses this chunk's bytes before it is sent, below.
        let wire = unsafe { step.out.write(place.clone()) };
        let mut used = 0;
        for piece in &self.parts[part][chunk] {
            // SAFETY: the only slice, and in this phase no call is under way on values.
            let values = unsafe { step.values.piece(&piece.range) };
            let wire = &mut wire[used..];
            used += if step.method.feedback {
                let decoded = &mut room.decoded[..values.len()];
                let residual = step.residuals.worker(piece);
                feedback::encode(codec, values, residual, wire, decoded).map_err(fault)?
            } else {
                codec.encode(values, wire).map_err(fault)?
            };
        }
        self.progress.encoded += 1;
        if part == self.own {
            self.progress.arrived[part].push_back(used);
            return Ok(());
        }
        let message = step.out.place(place.start..place.start + used);
        // SAFETY: nobody writes these bytes in this step any more.
        let sent = unsafe { links.send(self.circle, part, self.tag, message)? };
        self.progress.sends.push_back(sent);
        Ok(())
    }

    /// Sums the next chunk of the own part over all ranks, in their order, and sends it.
    fn sum(&mut self, step: &mut Step, tools: &mut Tools) -> Result<(), TransportError> {
        let chunk = self.progress.summed;
        let mut read = std::mem::take(&mut self.progress.read);
        read.fill(0);
        let place = &step.layout.sum[chunk];
        // SAFETY: nothing else uses this chunk's bytes before it is sent, below.
        let wire = unsafe { step.out.write(place.clone()) };
        let mut used = 0;
        for piece in &self.parts[self.own][chunk] {
            self.sum_piece(step, tools, chunk, piece, &mut read)?;
            let Bench { codec, room, .. } = tools.bench(step.method.codec);
            // SAFETY: the only slice; the own values that were here are encoded.
            let values = unsafe { step.values.piece(&piece.range) };
            let (sum, wire) = (&room.sum[..values.len()], &mut wire[used..]);
            let encoded = if step.method.feedback {
                let residual = step.residuals.server(piece);
                feedback::encode(codec, sum, residual, wire, values)
            } else {
                let encoded = codec.encode(sum, wire);
                encoded.and_then(|used| codec.decode(&wire[..used], values).map(|()| used))
            };
            let fault = |source| Tools::fault(step.bucket, self.ranks[self.own], source);
            used += encoded.map_err(fault)?;
        }
        for (rank, lengths) in self.progress.arrived.iter_mut().enumerate() {
            let left = lengths.pop_front() != Some(read[rank]);
            whole(left, step, tools, self.ranks[rank])?;
        }
        (self.progress.read, self.progress.summed) = (read, chunk + 1);
        for rank in self.others() {
            let message = step.out.place(place.start..place.start + used);
            // SAFETY: nobody writes these bytes in this step any more.
            let sent = unsafe { tools.links.send(self.circle, rank, self.tag + 1, message)? };
            self.progress.sends.push_back(sent);
        }
        Ok(())
    }

    /// Adds all ranks' values of a piece into `tools.room.sum`; `read` says how much of each rank's
    /// message is decoded.
    fn sum_piece(
        &self,
        step: &Step,
        tools: &mut Tools,
        chunk: usize,
        piece: &Piece,
        read: &mut [usize],
    ) -> Result<(), TransportError> {
        let len = piece.range.len();
        let Bench { codec, room, .. } = tools.bench(step.method.codec);
        let sum = &mut room.sum[..len];
        for (rank, read) in read.iter_mut().enumerate() {
            let (wire, start) = match rank == self.own {
                true => (step.out, step.layout.first[rank][chunk].start),
                false => (step.inward, step.layout.arriving[rank][chunk].start),
            };
            let length = self.progress.arrived[rank][0];
            // SAFETY: the message is there, and nobody writes to it.
            let message = unsafe { wire.read(start + *read..start + length) };
            let into = if rank == 0 { &mut *sum } else { &mut room.decoded[..len] };
            *read += decode(codec, message, into)
                .map_err(|source| Tools::fault(step.bucket, self.ranks[rank], source))?;
            if rank > 0 {
                sum.iter_mut().zip(&room.decoded).for_each(|(sum, value)| *sum += value);
            }
        }
        Ok(())
    }

    /// Decodes the next sum of another rank, a message of so many bytes, into its place.
    fn decode(
        &mut self,
        step: &mut Step,
        tools: &mut Tools,
        rank: usize,
        length: usize,
    ) -> Result<(), TransportError> {
        let chunk = self.parts[rank].len() - self.progress.sums[rank].len() - 1;
        let start = step.layout.sums[rank][chunk].start;
        // SAFETY: the message is there, and nobody writes to it.
        let message = unsafe { step.inward.read(start..start + length) };
        let codec = tools.bench(step.method.codec).codec;
        let mut read = 0;
        for piece in &self.parts[rank][chunk] {
            // SAFETY: the only slice; the own values that were here are encoded.
            let values = unsafe { step.values.piece(&piece.range) };
            read += decode(codec, &message[read..], values)
                .map_err(|source| Tools::fault(step.bucket, self.ranks[rank], source))?;
        }
        whole(read != length, step, tools, self.ranks[rank])
    }
}

/// Decodes what a message begins with, and returns its length.
fn decode(codec: &dyn Codec, message: &[u8], values: &mut [f32]) -> Result<usize, CodecError> {
    let length = codec.message_bytes(message, values.len() as u64);
    // Longer than there is: the codec sees what there is and says so.
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(message.len());
    codec.decode(&message[..length], values)?;
    Ok(length)
}

/// An error if something is `left` of a message when its values are read.
fn whole(left: bool, step: &Step, tools: &mut Tools, rank: u32) -> Result<(), TransportError> {
    if !left {
        return Ok(());
    }
    let codec = tools.bench(step.method.codec).codec.name();
    let source = CodecError::Damaged { codec, what: "it is longer than its values" };
    Err(Tools::fault(step.bucket, rank, source))
}
