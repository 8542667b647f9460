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

use super::encoder::{Lengths, TwoShotCodec};
use super::memory::MessageBuffer;
use super::pieces::{Layout, Parts};
use crate::transport::{Nonblocking, Request, TransportError};
use pipewright_core::compress::share::Share;
use std::collections::VecDeque;

/// What stays the same from step to step.
pub(super) struct TwoShot {
    process_group: usize,
    tag: u32,
    /// This rank's place in the group.
    own: usize,
    /// By part: chunks.
    chunks: Vec<usize>,
    /// Part and chunk, in the order of encoding, the next rank first: one chunk for each rank in turn,
    /// so that all receivers have something to do, or a part as a whole.
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
    arriving: Vec<VecDeque<Request>>,
    arrived: Vec<VecDeque<usize>>,
    /// By rank: its sums that are not decoded.
    sums: Vec<VecDeque<Request>>,
    sends: VecDeque<Request>,
}

/// Where a step's messages lie.
pub(super) struct TwoShotStep<'a> {
    pub layout: &'a Layout,
    pub out: &'a MessageBuffer,
    pub incoming: &'a MessageBuffer,
}

impl TwoShot {
    pub fn new(share: &Share, parts: &Parts, process_group: usize, tag: u32) -> Self {
        let chunks: Vec<usize> = parts.iter().map(Vec::len).collect();
        let (count, own) = (chunks.len(), share.part());
        let of_part = |part: usize| (0..chunks[part]).map(move |chunk| (part, chunk));
        let order: Vec<_> = (0..count).flat_map(of_part).collect();
        let mut progress = Progress::default();
        for part in &chunks {
            progress.arriving.push(VecDeque::with_capacity(chunks[own]));
            progress.arrived.push(VecDeque::with_capacity(chunks[own]));
            progress.sums.push(VecDeque::with_capacity(*part));
        }
        progress.sends = VecDeque::with_capacity(order.len() + chunks[own] * count);
        Self { process_group, tag, own, chunks, order, progress }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.own;
        (0..self.chunks.len()).filter(move |rank| *rank != own)
    }

    /// Messages under way at a time, at most: each part's values and sums are sent once and received
    /// once.
    pub fn requests(&self) -> usize {
        let chunks: usize = self.others().map(|rank| self.chunks[rank]).sum();
        2 * (chunks + self.chunks[self.own] * (self.chunks.len() - 1))
    }

    /// Posts all receives. `whole`: parts are encoded as a whole.
    pub fn start(
        &mut self,
        step: &TwoShotStep,
        whole: bool,
        endpoint: &mut dyn Nonblocking,
    ) -> Result<(), TransportError> {
        (self.progress.encoded, self.progress.summed) = (0, 0);
        let (own, count) = (self.own, self.chunks.len());
        let turn = |part: usize| (part + count - own - 1) % count;
        self.order.sort_unstable_by_key(|(part, chunk)| match whole {
            true => (turn(*part), *chunk),
            false => (*chunk, turn(*part)),
        });
        for rank in self.others() {
            let progress = &mut self.progress;
            for (tag, places, requests) in [
                (self.tag, &step.layout.arriving[rank], &mut progress.arriving[rank]),
                (self.tag + 1, &step.layout.sums[rank], &mut progress.sums[rank]),
            ] {
                for place in places {
                    // SAFETY: these bytes are read when the message is there, and not before.
                    let into = step.incoming.place(place.clone());
                    requests.push_back(unsafe {
                        endpoint.receive(self.process_group, rank, tag, into)?
                    });
                }
            }
        }
        Ok(())
    }

    /// Does one thing, if there is one to do: sums chunks, encodes or decodes some. Sums first: others
    /// wait for them.
    pub fn advance(
        &mut self,
        step: &TwoShotStep,
        shots: &mut dyn TwoShotCodec,
        endpoint: &mut dyn Nonblocking,
    ) -> Result<bool, TransportError> {
        self.look(endpoint)?;
        let ready = self.progress.arrived.iter().map(VecDeque::len).min().unwrap_or(0);
        if ready > 0 && self.progress.summed < self.chunks[self.own] {
            self.sum(step, ready.min(shots.at_once()), shots, endpoint)?;
            return Ok(true);
        }
        if self.progress.encoded < self.order.len() && shots.ready()? {
            self.encode(step, shots, endpoint)?;
            return Ok(true);
        }
        for rank in self.others() {
            let requests = &mut self.progress.sums[rank];
            let mut lengths = Lengths::new();
            while lengths.len() < shots.at_once()
                && let Some(request) = requests.front()
                && let Some(length) = endpoint.test(request)?
            {
                requests.pop_front();
                lengths.push(length);
            }
            if !lengths.is_empty() {
                let end = self.chunks[rank] - requests.len();
                shots.decode(rank, end - lengths.len()..end, &lengths)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether everything is summed, decoded and sent.
    pub fn is_done(&self) -> bool {
        let progress = &self.progress;
        progress.encoded == self.order.len()
            && progress.summed == self.chunks[self.own]
            && progress.sums.iter().all(VecDeque::is_empty)
            && progress.sends.is_empty()
    }

    /// Notes what has come and what is sent.
    fn look(&mut self, endpoint: &mut dyn Nonblocking) -> Result<(), TransportError> {
        for (requests, lengths) in self.progress.arriving.iter_mut().zip(&mut self.progress.arrived)
        {
            while let Some(request) = requests.front() {
                let Some(length) = endpoint.test(request)? else { break };
                requests.pop_front();
                lengths.push_back(length);
            }
        }
        while let Some(request) = self.progress.sends.front() {
            if endpoint.test(request)?.is_none() {
                break;
            }
            self.progress.sends.pop_front();
        }
        Ok(())
    }

    /// Encodes the next chunks of this rank's values and sends them to the owner of their part.
    fn encode(
        &mut self,
        step: &TwoShotStep,
        shots: &mut dyn TwoShotCodec,
        endpoint: &mut dyn Nonblocking,
    ) -> Result<(), TransportError> {
        let rest = &self.order[self.progress.encoded..];
        let (part, first) = rest[0];
        let together = rest.iter().zip(first..).take_while(|(next, at)| **next == (part, *at));
        let count = together.take(shots.at_once()).count();
        let lengths = shots.encode(part, first..first + count)?;
        self.progress.encoded += count;
        if part == self.own {
            self.progress.arrived[part].extend(lengths);
            return Ok(());
        }
        for (place, used) in step.layout.first[part][first..].iter().zip(lengths) {
            let message = step.out.place(place.start..place.start + used);
            // SAFETY: nobody writes these bytes in this step any more.
            let sent = unsafe { endpoint.send(self.process_group, part, self.tag, message)? };
            self.progress.sends.push_back(sent);
        }
        Ok(())
    }

    /// Sums the next `count` chunks of the own part over all ranks, in their order, and sends them.
    fn sum(
        &mut self,
        step: &TwoShotStep,
        count: usize,
        shots: &mut dyn TwoShotCodec,
        endpoint: &mut dyn Nonblocking,
    ) -> Result<(), TransportError> {
        let first = self.progress.summed;
        let count = count.min(self.chunks[self.own] - first);
        let lengths = shots.sum(first..first + count, &self.progress.arrived)?;
        self.progress.summed += count;
        self.progress.arrived.iter_mut().for_each(|lengths| drop(lengths.drain(..count)));
        for rank in self.others() {
            for (place, used) in step.layout.sum[first..].iter().zip(&lengths) {
                let message = step.out.place(place.start..place.start + used);
                // SAFETY: nobody writes these bytes in this step any more.
                let sent =
                    unsafe { endpoint.send(self.process_group, rank, self.tag + 1, message)? };
                self.progress.sends.push_back(sent);
            }
        }
        Ok(())
    }
}
