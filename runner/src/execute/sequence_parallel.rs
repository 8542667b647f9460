//! Sequence parallelism: slices that this rank of a tensor group gives to the others, and has of them, as they are
//! stored.

use super::compute::Pass;
use super::packed_sum::Scratch;
use super::rank::Rank;
use super::tensor_parallel::SHARDS;
use crate::device::Rooted;
use crate::transport::{Collective, Transport, TransportError};
use bytemuck::{cast_slice, cast_slice_mut};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::plan::{Kernel, Operand, Precision, Region, StageProgram};
use pipewright_core::units::Bytes;

/// Slices of a value: those of a rank are a part of each sample, and lie one behind the other.
#[derive(Clone, Copy)]
struct Slices {
    /// Bytes of one sample's.
    bytes: usize,
    degree: usize,
    /// Whether elements take two bytes.
    packed: bool,
}

impl Slices {
    /// Copies a rank's slices out of all of the value.
    fn take(self, whole: &[f32], tensor_rank: usize, into: &mut [f32]) {
        let (whole, into): (&[u8], &mut [u8]) = (cast_slice(whole), cast_slice_mut(into));
        let samples = whole.chunks_exact(self.bytes * self.degree);
        for (sample, slice) in samples.zip(into.chunks_exact_mut(self.bytes)) {
            slice.copy_from_slice(&sample[tensor_rank * self.bytes..][..self.bytes]);
        }
    }

    /// Copies a rank's slices to their places.
    fn put(self, slices: &[f32], tensor_rank: usize, whole: &mut [f32]) {
        let (slices, whole): (&[u8], &mut [u8]) = (cast_slice(slices), cast_slice_mut(whole));
        let samples = whole.chunks_exact_mut(self.bytes * self.degree);
        for (sample, slice) in samples.zip(slices.chunks_exact(self.bytes)) {
            sample[tensor_rank * self.bytes..][..self.bytes].copy_from_slice(slice);
        }
    }

    /// Slice `at` of those that lie in a region.
    fn slice(self, region: Region, at: usize) -> Region {
        let bytes = Bytes(self.bytes as u64);
        Region { offset: region.offset + bytes * at as u64, bytes }
    }

    /// Samples of a value.
    fn samples(self, whole: Region) -> usize {
        whole.bytes.0 as usize / (self.bytes * self.degree)
    }

    /// The slices of all ranks where they lie in a value.
    fn all(self, whole: Region) -> Vec<Rooted> {
        let slice =
            |at: usize| Rooted { root: (at % self.degree) as u32, region: self.slice(whole, at) };
        (0..self.samples(whole) * self.degree).map(slice).collect()
    }

    /// A rank's slices, where they lie in the whole and one behind the other.
    fn own(self, whole: Region, own: Region, tensor_rank: usize) -> Vec<[Region; 2]> {
        let slice = |sample: usize| {
            [self.slice(whole, sample * self.degree + tensor_rank), self.slice(own, sample)]
        };
        (0..self.samples(whole)).map(slice).collect()
    }
}

impl<T: Transport> Rank<'_, T> {
    /// Has the tensor group's ranks give each other slices of a value, or of a sum of theirs.
    pub(super) fn exchange(
        &mut self,
        stage: &StageProgram,
        kernel: &Kernel,
        pass: &Pass,
    ) -> Result<(), TransportError> {
        let region = |operand: &Operand| stage.region(operand, pass.slot, pass.outbox);
        let (from, to) = (region(&kernel.reads[0]), region(&kernel.writes[0]));
        let degree = self.program.tensor.degree as usize;
        let elements = self.graph.whole(kernel.node).elements() / degree as u64;
        let packed = from.bytes.min(to.bytes) < Bytes(4) * elements * self.plan.samples();
        let element = if packed { 2 } else { 4 };
        let slices = Slices { bytes: elements as usize * element, degree, packed };
        if let Some(model) = &self.model {
            model.catch_up(&self.transport);
        }
        let scratch = kernel.workspace.as_ref().map(region).filter(|_| !self.arena.talks());
        match (kernel.kind, scratch) {
            (ComputationKind::AllGather, None) => self.all_gather_there(slices, [from, to]),
            (ComputationKind::ReduceScatter, None) => self.reduce_scatter_there(slices, [from, to]),
            (ComputationKind::AllGather, Some(staging)) => {
                self.all_gather(slices, [from, to], staging)?;
            }
            (ComputationKind::ReduceScatter, Some(scratch)) => {
                self.reduce_scatter(slices, [from, to], scratch)?;
            }
            _ if self.arena.is_distant() => self.take_there(slices, [from, to]),
            _ => {
                let own = self.tensor.index as usize;
                self.arena.convert(from, to, |whole, into| slices.take(whole, own, into));
            }
        }
        scratch.into_iter().for_each(|scratch| self.arena.discard(scratch));
        if let Some(model) = &mut self.model {
            model.met(&self.transport);
        }
        Ok(())
    }

    /// The ranks of the group behind this one, and those before it: whom it sends to and hears from at a time.
    pub(super) fn pairs(&self) -> impl Iterator<Item = [u32; 2]> + use<T> {
        let (own, degree) = (self.tensor.index, self.program.tensor.degree);
        (1..degree).map(move |apart| [(own + apart) % degree, (own + degree - apart) % degree])
    }

    fn all_gather(
        &mut self,
        slices: Slices,
        [own, whole]: [Region; 2],
        staging: Region,
    ) -> Result<(), TransportError> {
        let staging = Region { bytes: own.bytes, ..staging };
        let index = self.tensor.index as usize;
        self.arena.discard(whole);
        self.arena.convert(own, whole, |own, whole| slices.put(own, index, whole));
        for [to, from] in self.pairs() {
            self.swap_within([to, from], own, staging)?;
            let from = from as usize;
            self.arena.convert(staging, whole, |slice, whole| slices.put(slice, from, whole));
        }
        Ok(())
    }

    /// The same from device to device.
    fn all_gather_there(&mut self, slices: Slices, [own, whole]: [Region; 2]) {
        let places = slices.own(whole, own, self.tensor.index as usize);
        self.arena.discard(whole);
        self.arena.compute(&[own], &[whole], |device| {
            places.iter().try_for_each(|[place, slice]| device.copy(*slice, *place))
        });
        let parts = slices.all(whole);
        self.join_within(Collective::Broadcast, (whole, &parts), self.of_slices(slices));
    }

    /// Has the device copy this rank's slices out of all of a value.
    fn take_there(&mut self, slices: Slices, [whole, own]: [Region; 2]) {
        let places = slices.own(whole, own, self.tensor.index as usize);
        self.arena.discard(own);
        self.arena.compute(&[whole], &[own], |device| {
            places.iter().try_for_each(|[place, slice]| device.copy(*place, *slice))
        });
    }

    /// The sums of slices from device to device, in place of what is added up.
    fn reduce_scatter_there(&mut self, slices: Slices, [partial, sum]: [Region; 2]) {
        let parts = slices.all(partial);
        self.join_within(Collective::Reduce, (partial, &parts), self.of_slices(slices));
        self.take_there(slices, [partial, sum]);
    }

    /// How slices are stored.
    fn of_slices(&self, slices: Slices) -> Precision {
        if slices.packed { self.plan.training.precision } else { Precision::F32 }
    }

    /// Each slice is added up on its rank alone: its own part first, then the others' in one order.
    fn reduce_scatter(
        &mut self,
        slices: Slices,
        [partial, sum]: [Region; 2],
        scratch: Region,
    ) -> Result<(), TransportError> {
        let leaving = Region { bytes: sum.bytes, ..scratch };
        let behind = Region { offset: scratch.offset + sum.bytes, ..scratch };
        let in_f32 = Scratch::new(behind, sum.bytes);
        let index = self.tensor.index as usize;
        [sum, scratch].into_iter().for_each(|region| self.arena.discard(region));
        self.arena.convert(partial, sum, |partial, own| slices.take(partial, index, own));
        if slices.packed {
            self.begin_sum(sum, in_f32);
        }
        for [to, from] in self.pairs() {
            let to_index = to as usize;
            self.arena.convert(partial, leaving, |partial, part| {
                slices.take(partial, to_index, part);
            });
            self.swap_within([to, from], leaving, in_f32.arriving)?;
            if slices.packed {
                self.add_packed(in_f32);
                continue;
            }
            self.arena.convert(in_f32.arriving, sum, |part, sum| {
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            });
        }
        if slices.packed {
            self.end_sum(in_f32, sum);
        }
        Ok(())
    }

    /// Sends a region to one rank of the tensor group and fills another one with what a second sends.
    pub(super) fn swap_within(
        &mut self,
        places: [u32; 2],
        leaving: Region,
        arriving: Region,
    ) -> Result<(), TransportError> {
        let first = self.transport.rank() - self.tensor.index;
        self.swap(places.map(|place| first + place), leaving, arriving)
    }

    /// The same with two ranks of the run.
    pub(super) fn swap(
        &mut self,
        [to, from]: [u32; 2],
        leaving: Region,
        arriving: Region,
    ) -> Result<(), TransportError> {
        let slot = self.program.handles as usize - 1;
        let bytes = self.arena.raw(leaving);
        // SAFETY: nothing writes to the region before the send was waited for, and the transport is dropped
        // before the arena.
        unsafe { self.transport.start_send(to, SHARDS, bytes, slot)? };
        self.transport.recv(from, SHARDS, self.arena.raw_mut(arriving))?;
        self.transport.wait_send(slot)
    }

    /// Adds up the gradients of parameters of which each rank has those of its slices: they are complete.
    pub(super) fn sum_slices(
        &mut self,
        stage: &StageProgram,
        kernel: &Kernel,
    ) -> Result<(), TransportError> {
        if kernel.kind != ComputationKind::WeightGradient || !kernel.reduces {
            return Ok(());
        }
        stage.gradients(kernel).try_for_each(|gradient| self.sum_within(gradient))
    }
}
