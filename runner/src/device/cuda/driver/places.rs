//! Bytes that travel to the device while it computes.
//!
//! ```text
//! host:      fill the pinned words, or exchange them        fill them again, when they have left
//! bringing:        wait for `taken`  copy  `arrived`              wait for `taken`  copy  ..
//! computing:                              wait for `arrived`  read  `taken`
//! ```

use super::pinned::Pinned;
use super::{Driver, failed};
use crate::data::SampleBuffer;
use crate::device::DeviceError;
use crate::device::cuda::backend::Backend;
use crate::device::cuda::kernels::DevicePtr;
use cudarc::driver::{CudaEvent, result};

/// A place on the device, with the bytes that go there.
pub struct Place {
    at: DevicePtr,
    bytes: u64,
    pinned: Box<dyn SampleBuffer>,
    /// The bytes are there; they may be written over on the host.
    arrived: CudaEvent,
    /// The bytes were read; they may be written over on the device.
    taken: CudaEvent,
}

impl Driver {
    /// A place of so many bytes, which nothing is under way to.
    fn new_place(&mut self, bytes: u64) -> Result<Place, DeviceError> {
        let at = self.allocate(bytes, "samples on their way")?;
        let pinned = self.pinned(bytes.div_ceil(4) as usize)?;
        let make = || {
            let [arrived, taken] = [self.context.new_event(None)?, self.context.new_event(None)?];
            // The place is zeroed by the stream that computes.
            taken.record(&self.stream)?;
            Ok(Place { at, bytes, pinned, arrived, taken })
        };
        make().map_err(|error| failed(&self.name, "make memory that samples leave from", &error))
    }

    /// As [`Backend::buffer`].
    pub(super) fn pinned(&mut self, words: usize) -> Result<Box<dyn SampleBuffer>, DeviceError> {
        self.current()?;
        let made = Pinned::new(&self.context, 4 * words);
        Ok(Box::new(self.told("make memory that samples leave from", made)?))
    }

    /// As [`Backend::stage`].
    pub(super) fn stage_at(
        &mut self,
        number: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<DevicePtr, DeviceError> {
        self.current()?;
        if self.places.len() <= number {
            self.places.resize_with(number + 1, || None);
        }
        let found = self.places[number].take();
        if let Some(place) = &found {
            self.told("wait for samples to leave", place.arrived.synchronize())?;
        }
        let mut place = match found.filter(|place| place.bytes >= bytes) {
            Some(place) => place,
            None => self.new_place(bytes)?,
        };
        fill(&mut place.pinned);
        let leaving = &bytemuck::cast_slice::<u32, u8>(place.pinned.words())[..bytes as usize];
        let bring = || {
            self.bringing.wait(&place.taken)?;
            // SAFETY: the place is as large, and the bytes stay until `arrived` was waited for: whoever takes
            // them in exchange has waited for that.
            unsafe { result::memcpy_htod_async(place.at.0, leaving, self.bringing.cu_stream()) }?;
            place.arrived.record(&self.bringing)
        };
        let brought = bring();
        let at = place.at;
        self.places[number] = Some(place);
        self.told("bring samples to the device", brought).map(|()| at)
    }

    /// As [`Backend::arrived`].
    pub(super) fn arrived_at(&mut self, number: usize) -> Result<(), DeviceError> {
        self.current()?;
        let Some(Some(place)) = self.places.get(number) else { return Ok(()) };
        self.told("wait for samples", self.stream.wait(&place.arrived))
    }

    /// As [`Backend::taken`].
    pub(super) fn taken_from(&mut self, number: usize) -> Result<(), DeviceError> {
        self.current()?;
        let Some(Some(place)) = self.places.get(number) else { return Ok(()) };
        self.told("say that samples were read", place.taken.record(&self.stream))
    }
}
