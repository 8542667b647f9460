//! Sums over a tensor group of values in two bytes: what travels is what is stored, sums are made in single precision.

use super::rank::Rank;
use crate::device::Rooted;
use crate::transport::{Collective, Transport, TransportError};
use pipewright_core::plan::Region;
use pipewright_core::units::Bytes;
use pipewright_kernels::cpu::packed;

/// Scratch of a sum: what arrives of another rank, and the sum in single precision.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    pub arriving: Region,
    pub sum: Region,
}

impl Scratch {
    /// For sums of `bytes` of packed values, out of a region that has room for thrice as many.
    pub fn new(at: Region, bytes: Bytes) -> Self {
        let [arriving, sum] = [(Bytes::ZERO, bytes), (bytes, bytes * 2)]
            .map(|(after, bytes)| Region { offset: at.offset + after, bytes });
        Self { arriving, sum }
    }
}

impl<T: Transport> Rank<'_, T> {
    /// Adds up packed values with the tensor group, in place: each rank a part of them, its own first and then the
    /// others' in one order, rounded once; then each gives its part to all. `unpacked` is the region in which the
    /// values were computed, free now. Devices that talk add them up as their library does, which may round between.
    pub(super) fn sum_packed_within(
        &mut self,
        values: Region,
        unpacked: Region,
    ) -> Result<(), TransportError> {
        if let Some(model) = &self.model {
            model.catch_up(&self.transport);
        }
        if self.arena.talks() {
            let (values, precision) =
                ((values, &[Rooted { root: 0, region: values }][..]), self.plan.training.precision);
            self.join_within(Collective::AllReduce, values, precision);
            return Ok(());
        }
        // Once, and not part by part.
        self.arena.fetch(values);
        self.arena.discard(unpacked);
        let own = self.part(values, self.tensor.index);
        let scratch = Scratch::new(unpacked, own.bytes);
        self.begin_sum(own, scratch);
        for [to, from] in self.pairs() {
            self.swap_within([to, from], self.part(values, to), scratch.arriving)?;
            self.add_packed(scratch);
        }
        self.end_sum(scratch, own);
        for [to, from] in self.pairs() {
            self.swap_within([to, from], own, self.part(values, from))?;
        }
        self.arena.discard(unpacked);
        if let Some(model) = &mut self.model {
            model.met(&self.transport);
        }
        Ok(())
    }

    /// What a rank of the group adds up of a value: whole words.
    fn part(&self, values: Region, tensor_rank: u32) -> Region {
        let (words, degree) = (values.bytes.0 / 4, u64::from(self.program.tensor.degree));
        let start = |rank: u32| Bytes(words * u64::from(rank) / degree * 4);
        let offset = start(tensor_rank);
        Region { offset: values.offset + offset, bytes: start(tensor_rank + 1) - offset }
    }

    /// Starts a sum with this rank's own values.
    pub(super) fn begin_sum(&mut self, own: Region, scratch: Scratch) {
        let (threads, precision) = (self.threads, self.plan.training.precision);
        self.arena
            .convert(own, scratch.sum, |own, sum| packed::unpack(precision, threads, own, sum));
    }

    /// Adds what arrived.
    pub(super) fn add_packed(&mut self, scratch: Scratch) {
        let (threads, precision) = (self.threads, self.plan.training.precision);
        self.arena.convert(scratch.arriving, scratch.sum, |arrived, sum| {
            packed::add(precision, threads, arrived, sum);
        });
    }

    /// Rounds a sum into its place.
    pub(super) fn end_sum(&mut self, scratch: Scratch, into: Region) {
        let (threads, precision) = (self.threads, self.plan.training.precision);
        self.arena
            .convert(scratch.sum, into, |sum, into| packed::pack(precision, threads, sum, into));
    }
}
