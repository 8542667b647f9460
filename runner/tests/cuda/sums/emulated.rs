//! The emulator as a device with two queues of work, which counts what travels.

use crate::direct::world::Memory;
use crate::emulator;
use pipewright_core::plan::Region;
use pipewright_runner::data::{SampleBuffer, plain};
use pipewright_runner::device::DeviceError;
use pipewright_runner::device::cuda::kernels::{
    ConvolutionStep, DevicePtr, Launch, ProductStep, Storage,
};
use pipewright_runner::device::cuda::{Backend, perform};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Its memory is the processor's, at the same addresses. Clones are the same device.
#[derive(Clone, Default)]
pub struct Emulated {
    memory: Arc<Mutex<Vec<Vec<u128>>>>,
    /// Where marks were made that nobody has reached yet: they are reached when asked for twice.
    marks: Arc<Mutex<Vec<bool>>>,
    /// Whether marks are reached that are in other streams; none where it is none of them.
    pub elsewhere: Arc<Mutex<Option<Elsewhere>>>,
    /// Places that bytes are staged at, and their sizes.
    places: Vec<(DevicePtr, u64)>,
    /// What travels by the first queue, and by the one beside it.
    pub traffic: Arc<[Traffic; 2]>,
    is_beside: bool,
    /// Whether it has no second queue.
    is_alone: bool,
    /// Fails at so many launches from now, of codecs.
    pub fails_after: Arc<Mutex<Option<u64>>>,
}

type Elsewhere = Box<dyn Fn(usize) -> Option<bool> + Send>;

/// An arena, as those reach it who talk to the device.
pub struct Reached(pub Emulated, pub DevicePtr);

impl Memory for Reached {
    fn read(&self, region: Region) -> Vec<u8> {
        let Self(device, arena) = self;
        device.with(arena.after(region.offset.0), region.bytes.0, |memory| memory.to_vec())
    }

    fn write(&self, region: Region, bytes: &[u8]) {
        let Self(device, arena) = self;
        let at = arena.after(region.offset.0);
        device.with(at, region.bytes.0, |memory| memory.copy_from_slice(bytes));
    }
}

/// Bytes.
#[derive(Debug, Default)]
pub struct Traffic {
    up: AtomicU64,
    down: AtomicU64,
}

impl Traffic {
    /// To the device and from it so far.
    pub fn bytes(&self) -> [u64; 2] {
        [self.up.load(Relaxed), self.down.load(Relaxed)]
    }
}

impl Emulated {
    /// One with a queue beside the first, or one that is alone.
    pub fn new(is_alone: bool) -> Self {
        Self { is_alone, ..Self::default() }
    }

    /// Does something with bytes of the device's memory.
    fn with<R>(&self, at: DevicePtr, bytes: u64, work: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut all = self.memory.lock().unwrap();
        let holds = |memory: &&mut Vec<u128>| {
            let begin = memory.as_ptr() as u64;
            begin <= at.0 && at.0 + bytes <= begin + 16 * memory.len() as u64
        };
        let memory = all.iter_mut().find(holds).expect("memory of the device");
        let offset = (at.0 - memory.as_ptr() as u64) as usize;
        work(&mut bytemuck::cast_slice_mut::<_, u8>(memory)[offset..offset + bytes as usize])
    }

    fn counts(&self) -> &Traffic {
        &self.traffic[usize::from(self.is_beside)]
    }
}

impl Backend for Emulated {
    fn name(&self) -> &str {
        "emulator"
    }

    fn allocate(&mut self, bytes: u64, _: &str) -> Result<DevicePtr, DeviceError> {
        let mut all = self.memory.lock().unwrap();
        all.push(vec![0; bytes.div_ceil(16).max(1) as usize]);
        Ok(DevicePtr(all.last().expect("it was added").as_ptr() as u64))
    }

    fn upload(&mut self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        self.counts().up.fetch_add(bytes.len() as u64, Relaxed);
        self.with(to, bytes.len() as u64, |memory| memory.copy_from_slice(bytes));
        Ok(())
    }

    fn download(&mut self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.counts().down.fetch_add(bytes.len() as u64, Relaxed);
        self.with(from, bytes.len() as u64, |memory| bytes.copy_from_slice(memory));
        Ok(())
    }

    fn copy(&mut self, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        let copied = self.with(from, bytes, |memory| memory.to_vec());
        self.with(to, bytes, |memory| memory.copy_from_slice(&copied));
        Ok(())
    }

    fn zero(&mut self, at: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        self.with(at, bytes, |memory| memory.fill(0));
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        if let Some(left) = self.fails_after.lock().unwrap().as_mut().filter(|_| self.is_beside) {
            *left = left.checked_sub(1).ok_or_else(|| DeviceError::Failed {
                device: self.name().into(),
                what: launch.kernel.clone(),
                why: "it is meant to".into(),
            })?;
        }
        emulator::run(launch);
        Ok(())
    }

    fn product(&mut self, product: &ProductStep, storage: Storage) -> Result<(), DeviceError> {
        product.launches(storage).iter().try_for_each(|launch| self.launch(launch))
    }

    fn convolution(
        &mut self,
        convolution: &ConvolutionStep,
        storage: Storage,
    ) -> Result<(), DeviceError> {
        convolution.steps(storage).iter().try_for_each(|step| perform(self, step, storage))
    }

    fn moment(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn ages(&mut self, count: usize, ages: &mut Vec<u64>) -> Result<(), DeviceError> {
        ages.resize(count, 0);
        Ok(())
    }

    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<DevicePtr, DeviceError> {
        self.places.resize(self.places.len().max(place + 1), (DevicePtr::NULL, 0));
        if self.places[place].1 < bytes {
            self.places[place] = (self.allocate(bytes, "a place")?, bytes);
        }
        let at = self.places[place].0;
        self.counts().up.fetch_add(bytes, Relaxed);
        let mut coming = plain(bytes.div_ceil(4) as usize);
        fill(&mut coming);
        let coming: &[u8] = bytemuck::cast_slice(coming.words());
        self.with(at, bytes, |memory| memory.copy_from_slice(&coming[..bytes as usize]));
        Ok(at)
    }

    fn arrived(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn taken(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        let mut marks = self.marks.lock().unwrap();
        let len = marks.len().max(number + 1);
        marks.resize(len, false);
        marks[number] = true;
        Ok(())
    }

    fn reached(&mut self, number: usize) -> Result<bool, DeviceError> {
        if let Some(elsewhere) = &*self.elsewhere.lock().unwrap()
            && let Some(reached) = elsewhere(number)
        {
            return Ok(reached);
        }
        let mut marks = self.marks.lock().unwrap();
        let is_new = marks.get_mut(number).map(std::mem::take);
        Ok(!is_new.expect("a mark is made before it is asked for"))
    }

    fn beside(&mut self) -> Result<Option<Box<dyn Backend>>, DeviceError> {
        Ok((!self.is_alone).then(|| Box::new(Self { is_beside: true, ..self.clone() }) as Box<_>))
    }
}
