//! A device without a GPU, which does at once what it is asked for.

use crate::emulator;
use pipewright_runner::data::{SampleBuffer, plain};
use pipewright_runner::device::DeviceError;
use pipewright_runner::device::cuda::kernels::{
    ConvolutionStep, DevicePtr, Launch, ProductStep, Storage,
};
use pipewright_runner::device::cuda::{Backend, perform};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds from a moment to the next; the last one is now.
const STEP: u64 = 1_000;

/// The emulator as a device: its memory is the processor's, at the same addresses.
#[derive(Default)]
pub struct Emulated {
    memory: Vec<Vec<u128>>,
    /// Places that bytes are staged at, and their sizes.
    places: Vec<(DevicePtr, u64)>,
    /// How many moments are noted.
    moments: usize,
    /// Launches that only write numbers in another type.
    pub converted: Arc<AtomicU64>,
    /// Products whose factors may be rounded to TF32.
    pub rounded: Arc<AtomicU64>,
    /// Products of factors in eight bits.
    pub eights: Arc<AtomicU64>,
    /// Tensors whose codes of eight bits were made.
    pub encoded: Arc<AtomicU64>,
    /// Whether it has no matrix units.
    pub plain: bool,
}

impl Emulated {
    /// A place that holds so many bytes, which it keeps as long as they are enough.
    pub fn place(&mut self, place: usize, bytes: u64) -> DevicePtr {
        self.places.resize(self.places.len().max(place + 1), (DevicePtr::NULL, 0));
        if self.places[place].1 < bytes {
            let at = self.allocate(bytes, "a place").expect("there is memory");
            self.places[place] = (at, bytes);
        }
        self.places[place].0
    }

    /// Bytes of the device's memory.
    pub fn at(&mut self, at: DevicePtr, bytes: u64) -> &mut [u8] {
        let holds = |memory: &&mut Vec<u128>| {
            let begin = memory.as_ptr() as u64;
            begin <= at.0 && at.0 + bytes <= begin + 16 * memory.len() as u64
        };
        let memory = self.memory.iter_mut().find(holds).expect("memory of the device");
        let offset = (at.0 - memory.as_ptr() as u64) as usize;
        &mut bytemuck::cast_slice_mut::<_, u8>(memory)[offset..offset + bytes as usize]
    }
}

impl Backend for Emulated {
    fn name(&self) -> &str {
        "emulator"
    }

    fn allocate(&mut self, bytes: u64, _: &str) -> Result<DevicePtr, DeviceError> {
        self.memory.push(vec![0; bytes.div_ceil(16).max(1) as usize]);
        Ok(DevicePtr(self.memory.last().expect("it was added").as_ptr() as u64))
    }

    fn upload(&mut self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        self.at(to, bytes.len() as u64).copy_from_slice(bytes);
        Ok(())
    }

    fn download(&mut self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        bytes.copy_from_slice(self.at(from, bytes.len() as u64));
        Ok(())
    }

    fn copy(&mut self, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        let copied = self.at(from, bytes).to_vec();
        self.upload(to, &copied)
    }

    fn zero(&mut self, at: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        self.at(at, bytes).fill(0);
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        let converts = ["narrow_", "widen_"].iter().any(|name| launch.kernel.starts_with(name));
        self.converted.fetch_add(converts.into(), Ordering::Relaxed);
        let encodes = ["eight_rows", "eight_columns"].contains(&&*launch.kernel);
        self.encoded.fetch_add(encodes.into(), Ordering::Relaxed);
        emulator::run(launch);
        Ok(())
    }

    fn product(&mut self, product: &ProductStep, storage: Storage) -> Result<(), DeviceError> {
        self.rounded.fetch_add(product.tf32.into(), Ordering::Relaxed);
        self.eights.fetch_add(product.fp8.is_some().into(), Ordering::Relaxed);
        product.launches(storage).iter().try_for_each(|launch| self.launch(launch))
    }

    fn convolution(
        &mut self,
        convolution: &ConvolutionStep,
        storage: Storage,
    ) -> Result<(), DeviceError> {
        convolution.steps(storage).iter().try_for_each(|step| perform(self, step, storage))
    }

    fn matrix_units(&self) -> bool {
        !self.plain
    }

    fn moment(&mut self, number: usize) -> Result<(), DeviceError> {
        assert!(number <= self.moments, "moments have numbers in their order");
        self.moments = number + 1;
        Ok(())
    }

    fn ages(&mut self, count: usize, ages: &mut Vec<u64>) -> Result<(), DeviceError> {
        assert!(count <= self.moments, "of moments that were noted");
        // Time by its own clock, which no other work on the machine can stop: a step a moment.
        ages.extend((0..count).rev().map(|later| later as u64 * STEP));
        Ok(())
    }

    fn mark(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn reached(&mut self, _: usize) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn beside(&mut self) -> Result<Option<Box<dyn Backend>>, DeviceError> {
        Ok(None)
    }

    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<DevicePtr, DeviceError> {
        let at = self.place(place, bytes);
        let mut coming = plain(bytes.div_ceil(4) as usize);
        fill(&mut coming);
        self.at(at, bytes).copy_from_slice(&bytemuck::cast_slice(coming.words())[..bytes as usize]);
        Ok(at)
    }

    fn arrived(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn taken(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }
}
