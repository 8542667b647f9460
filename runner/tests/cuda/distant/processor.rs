//! A device that is this processor again, with memory of its own: bytes that nobody copied are not there.

use pipewright_core::plan::{Precision, Region};
use pipewright_core::units::Bytes;
use pipewright_kernels::cpu::{launch, packed, squares};
use pipewright_kernels::{Call, Operands, Parameter, Rule, Update};
use pipewright_runner::data::{SampleBuffer, plain};
use pipewright_runner::device::{
    Accelerator, Coder, DeviceError, DevicePtr, FusedOp, ParameterPlaces, Place, Places,
};
use pipewright_runner::execute::Arena;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The device.
pub struct Distant {
    memory: Arena,
    copied: Arc<AtomicU64>,
    kept: Vec<u8>,
    staged: Vec<Vec<u8>>,
    saved: Vec<Vec<f32>>,
    /// Fails when so many computations are done.
    pub fails_after: Option<u64>,
    /// Tells that moments were so many nanoseconds apart, the last one just now.
    pub apart: Option<u64>,
    moments: Vec<Instant>,
    /// Whether it does chains of computations together; what these need not store is no number then.
    pub fuses: bool,
}

impl Distant {
    /// With so much memory; counts bytes that are copied.
    pub fn new(bytes: Bytes, copied: Arc<AtomicU64>) -> Self {
        Self {
            memory: Arena::new(bytes),
            copied,
            kept: vec![],
            saved: vec![],
            staged: vec![],
            fails_after: None,
            apart: None,
            moments: vec![],
            fuses: true,
        }
    }

    /// Where its memory begins.
    pub fn address(&mut self) -> DevicePtr {
        let first = Region { offset: Bytes(0), bytes: Bytes(4) };
        DevicePtr(self.memory.floats(first).as_ptr() as u64)
    }

    /// A value as f32.
    fn unpacked(&mut self, precision: Precision, place: &Place) -> Vec<f32> {
        let lies = self.memory.floats(place.region);
        let mut values = vec![0.0; place.elements as usize];
        match place.packed {
            true => packed::unpack(precision, 1, lies, &mut values),
            false => values.copy_from_slice(lies),
        }
        values
    }

    /// Launches on values as f32.
    fn compute(
        &mut self,
        call: &Call,
        places: &Places,
        (reads, writes): (&[Vec<f32>], &mut [Vec<f32>]),
    ) {
        let lists = [places.params, places.gradients, places.deferred];
        let written = lists.into_iter().flatten().chain(&places.workspace).copied();
        let (_, mut all) = self.memory.views([].into_iter(), written);
        let mut rest = &mut all[..];
        let [params, gradients, deferred] = lists.map(|list| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(list.len());
            rest = others;
            own
        });
        let workspace = rest.first_mut().map_or(&mut [][..], |slice| &mut **slice);
        let reads: Vec<&[f32]> = reads.iter().map(|values| &values[..]).collect();
        let mut writes: Vec<&mut [f32]> = writes.iter_mut().map(|values| &mut values[..]).collect();
        let (reads, writes) = (&reads[..], &mut writes[..]);
        let operands = Operands { reads, writes, params, gradients, deferred, workspace };
        launch(call, operands);
    }

    fn region(offset: u64, bytes: usize) -> Region {
        Region { offset: Bytes(offset), bytes: Bytes(bytes as u64) }
    }
}

impl Accelerator for Distant {
    fn upload(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.copied.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.memory.raw_mut(Self::region(offset, bytes.len())).copy_from_slice(bytes);
        Ok(())
    }

    fn download(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.copied.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        bytes.copy_from_slice(self.memory.raw(Self::region(offset, bytes.len())));
        Ok(())
    }

    fn launch(&mut self, call: &Call, places: &Places) -> Result<(), DeviceError> {
        if let Some(left) = &mut self.fails_after {
            *left = left.checked_sub(1).ok_or_else(|| DeviceError::Failed {
                device: "distant:0".into(),
                what: call.op.name().into(),
                why: "it is meant to".into(),
            })?;
        }
        // The processor's kernels know f32 alone.
        let reads: Vec<Vec<f32>> =
            places.reads.iter().map(|place| self.unpacked(call.precision, place)).collect();
        let mut writes: Vec<Vec<f32>> =
            places.writes.iter().map(|place| self.unpacked(call.precision, place)).collect();
        self.compute(call, places, (&reads, &mut writes));
        for (place, values) in places.writes.iter().zip(&writes) {
            let lies = self.memory.floats(place.region);
            match place.packed {
                true => packed::pack(call.precision, 1, values, lies),
                false => lies.copy_from_slice(values),
            }
        }
        Ok(())
    }

    fn fuses(&self) -> bool {
        self.fuses
    }

    fn rehearses(&self) -> bool {
        true
    }

    fn launch_fused(&mut self, ops: &[FusedOp]) -> Result<(), DeviceError> {
        let mut handed_on = None;
        for op in ops {
            self.launch(&op.call, &op.places)?;
            let Some(value) = op.places.writes.first() else { continue };
            // What comes behind may write where the last value was.
            if let Some(region) = handed_on.take() {
                self.memory.raw_mut(region).fill(0xff);
            }
            handed_on = (!op.stored).then_some(value.region);
        }
        Ok(())
    }

    fn update(
        &mut self,
        rule: &Rule,
        update: &Update,
        _: Precision,
        parameters: &[ParameterPlaces],
    ) -> Result<(), DeviceError> {
        for ParameterPlaces { weight, gradient, state, axes } in parameters {
            let written = [*weight, *gradient].into_iter().chain(state.iter().flatten().copied());
            let (_, mut slices) = self.memory.views([].into_iter(), written);
            let [weight, gradient, state @ ..] = &mut slices[..] else { unreachable!() };
            rule.update(update, Parameter { weight, gradient, state, axes: *axes });
        }
        Ok(())
    }

    fn copy(&mut self, from: Region, into: Region) -> Result<(), DeviceError> {
        self.memory.convert(from, into, |from, into| into.copy_from_slice(from));
        Ok(())
    }

    fn zero(&mut self, region: Region) -> Result<(), DeviceError> {
        self.memory.floats(region).fill(0.0);
        Ok(())
    }

    fn moment(&mut self) -> Result<(), DeviceError> {
        self.moments.push(Instant::now());
        Ok(())
    }

    fn ages(&mut self, ages: &mut Vec<u64>) -> Result<(), DeviceError> {
        let (now, count) = (Instant::now(), self.moments.len() as u64);
        let marks = (1..).zip(self.moments.drain(..));
        ages.extend(marks.map(|(number, mark)| match self.apart {
            Some(apart) => (count - number) * apart,
            None => (now - mark).as_nanos() as u64,
        }));
        Ok(())
    }

    fn keep(&mut self, from: Region, at: u64) -> Result<(), DeviceError> {
        let (at, bytes) = (at as usize, self.memory.raw(from).to_vec());
        self.kept.resize(self.kept.len().max(at + bytes.len()), 0);
        self.kept[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn kept(&mut self, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.copied.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        bytes.copy_from_slice(&self.kept[..bytes.len()]);
        Ok(())
    }

    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<(), DeviceError> {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
        self.staged.resize(self.staged.len().max(place + 1), vec![]);
        let mut coming = plain(bytes.div_ceil(4) as usize);
        fill(&mut coming);
        self.staged[place] = bytemuck::cast_slice(coming.words())[..bytes as usize].to_vec();
        Ok(())
    }

    fn take(&mut self, place: usize, into: Region) -> Result<(), DeviceError> {
        self.memory.raw_mut(into).copy_from_slice(&self.staged[place]);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn end_batch(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn squares(&mut self, regions: &[Region], sums: &mut [f64]) -> Result<(), DeviceError> {
        for (region, sum) in regions.iter().zip(sums) {
            *sum = squares(1, self.memory.floats(*region));
        }
        Ok(())
    }

    fn save(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        self.saved = regions.iter().map(|region| self.memory.floats(*region).to_vec()).collect();
        Ok(())
    }

    fn restore(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        for (region, kept) in regions.iter().zip(&self.saved) {
            self.memory.floats(*region).copy_from_slice(kept);
        }
        Ok(())
    }

    fn mark(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn coder(&mut self) -> Result<Option<Box<dyn Coder>>, DeviceError> {
        Ok(None)
    }
}
