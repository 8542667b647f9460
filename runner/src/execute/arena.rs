//! The memory of one rank: allocated once, divided as the plan says.
//!
//! A device with memory of its own has a copy of it, laid out alike; see [`newest`] for who has what. All
//! that the host does with tensors, messages, samples and checkpoints, stays as it is.

mod host;
mod messages;
mod newest;

use crate::data::{SampleBuffer, plain};
use crate::device::{Accelerator, Coder, DeviceError, DeviceReport, Graphs};
use host::{LINE, Line, Lines};
use messages::DeviceChannel;
use newest::{Access, Newest, Side};
use pipewright_core::plan::{Precision, Region};
use pipewright_core::units::Bytes;
use smallvec::SmallVec;

/// Bytes of the host that a device takes without waiting for anything.
const AT_ONCE: u64 = 64 << 10;

/// Slices of the arena; more than a kernel of today has, so that none of them allocates.
pub type Slices<T> = SmallVec<[T; 16]>;

/// All tensors of a rank.
pub struct Arena {
    lines: Lines,
    device: Option<Distant>,
}

/// The device's copy.
struct Distant {
    // Before the memory that messages lie in.
    channel: Option<DeviceChannel>,
    accelerator: Box<dyn Accelerator>,
    newest: Newest,
    /// The first thing that went wrong; nothing on either side means anything after it.
    fault: Option<DeviceError>,
}

impl Distant {
    /// The host is about to touch a region: fetches what only the device has.
    fn fetch(&mut self, lines: &mut [Line], region: Region, access: Access) {
        let all: &mut [u8] = bytemuck::cast_slice_mut(lines);
        let Self { channel, accelerator, newest, .. } = self;
        let mut channel = channel.as_mut();
        let fetched = newest.touch(bytes_of(region), (Side::Host, access), |part| {
            if let Some(channel) = channel.take() {
                accelerator.flush()?;
                channel.fabric.settle()?;
            }
            accelerator.download(part.start, &mut all[part.start as usize..part.end as usize])
        });
        self.note(fetched);
    }

    /// The device is about to touch a region: hands it what only the host has.
    fn hand_over(&mut self, lines: &[Line], region: Region, access: Access) {
        let all: &[u8] = bytemuck::cast_slice(lines);
        let Self { channel, accelerator, newest, .. } = self;
        let handed = newest.touch(bytes_of(region), (Side::Device, access), |part| {
            // The driver may wait for the device before it takes so many bytes.
            if let Some(channel) = channel.as_mut().filter(|_| part.end - part.start > AT_ONCE) {
                accelerator.flush()?;
                channel.fabric.settle()?;
            }
            accelerator.upload(part.start, &all[part.start as usize..part.end as usize])
        });
        self.note(handed);
    }

    /// The host is about to wait for the device: looks meanwhile whether others live whom it waits for.
    fn settle(&mut self) {
        let Self { channel, accelerator, fault: None, .. } = self else { return };
        let Some(channel) = channel else { return };
        let flushed = accelerator.flush();
        let settled = flushed.and_then(|()| Ok(channel.fabric.settle()?));
        self.note(settled);
    }

    fn note(&mut self, result: Result<(), DeviceError>) {
        if let Err(error) = result {
            self.fault.get_or_insert(error);
        }
    }
}

fn bytes_of(region: Region) -> std::ops::Range<u64> {
    region.offset.0..region.offset.0 + region.bytes.0
}

fn lines_of(bytes: Bytes) -> usize {
    assert_eq!(bytes.0 % LINE, 0, "arenas are whole cache lines");
    (bytes.0 / LINE) as usize
}

impl Arena {
    /// Zeroed memory of `bytes`, a multiple of 64.
    ///
    /// # Panics
    /// When it is no multiple: plans are laid out in such units.
    pub fn new(bytes: Bytes) -> Self {
        Self { lines: Lines::own(lines_of(bytes)), device: None }
    }

    /// The same with a copy on a device, whose memory is as large and zeroed.
    pub fn with_copy(bytes: Bytes, accelerator: Box<dyn Accelerator>) -> Self {
        let device = Distant { channel: None, accelerator, newest: Newest::default(), fault: None };
        Self { lines: Lines::beside_a_device(lines_of(bytes)), device: Some(device) }
    }

    /// Whether a device computes.
    pub fn is_distant(&self) -> bool {
        self.device.is_some()
    }

    /// Whether a device computes that does chains of computations together.
    pub fn fuses(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.accelerator.fuses())
    }

    /// Whether a device computes that wants images with their channels innermost.
    pub fn channels_last(&self, precision: Precision) -> bool {
        self.device.as_ref().is_some_and(|device| device.accelerator.channels_last(precision))
    }

    /// The device's codecs, where a device computes and has some.
    ///
    /// # Errors
    /// When it has failed.
    pub fn coder(&mut self) -> Result<Option<Box<dyn Coder>>, DeviceError> {
        self.device.as_mut().map_or(Ok(None), |device| device.accelerator.coder())
    }

    /// Has the device do something that reads and writes these regions; what it writes, it may also
    /// read. What goes wrong is told by [`Self::check`].
    ///
    /// # Panics
    /// Without a device.
    pub fn compute(
        &mut self,
        reads: &[Region],
        writes: &[Region],
        work: impl FnOnce(&mut dyn Accelerator) -> Result<(), DeviceError>,
    ) {
        let device = self.device.as_mut().expect("a device computes");
        for region in reads {
            device.hand_over(&self.lines, *region, Access::Read);
        }
        for region in writes {
            device.hand_over(&self.lines, *region, Access::ReadWrite);
        }
        if device.fault.is_none() {
            let done = work(&mut *device.accelerator);
            device.note(done);
        }
        if let Some(channel) = &mut device.channel {
            channel.touch(reads);
            channel.touch(writes);
        }
    }

    /// Notes the moment at which the device has done all that it was asked for so far.
    ///
    /// # Panics
    /// Without a device.
    pub fn moment(&mut self) {
        let device = self.device.as_mut().expect("a device computes");
        let noted = device.accelerator.moment();
        device.note(noted);
    }

    /// Waits for the device; how many nanoseconds ago each of the moments was that were noted since the
    /// last call. When the device has failed, they mean nothing.
    ///
    /// # Panics
    /// Without a device.
    pub fn ages(&mut self, ages: &mut Vec<u64>) {
        ages.clear();
        let device = self.device.as_mut().expect("a device computes");
        device.settle();
        if device.fault.is_some() {
            return;
        }
        let told = device.accelerator.ages(ages);
        device.note(told);
    }

    /// Has the device, if there is one, do something with none of the arena's bytes, unless it has failed.
    fn ask(&mut self, work: impl FnOnce(&mut dyn Accelerator) -> Result<(), DeviceError>) {
        if let Some(device) = self.device.as_mut().filter(|device| device.fault.is_none()) {
            let done = work(&mut *device.accelerator);
            device.note(done);
        }
    }

    /// The host is about to wait for the device in what it asks for next.
    pub fn settle(&mut self) {
        if let Some(device) = &mut self.device {
            device.settle();
        }
    }

    /// Has the device begin with what it was asked for: the host is about to wait for somebody else.
    pub fn flush(&mut self) {
        self.ask(|device| device.flush());
    }

    /// The same at the end of a mini-batch.
    pub fn end_batch(&mut self) {
        self.ask(|device| device.end_batch());
    }

    /// Whether a device computes that wants to see a step's work before the first one.
    pub fn rehearses(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.accelerator.rehearses())
    }

    /// The device has seen it.
    pub fn rehearsed(&mut self) {
        if let Some(device) = &mut self.device {
            device.accelerator.rehearsed();
        }
    }

    /// Zeros again, as in the beginning, on a device whose host has touched nothing.
    pub fn forget(&mut self) {
        let all = Region { offset: Bytes(0), bytes: self.bytes() };
        self.ask(|device| device.zero(all));
        if let Some(device) = &mut self.device {
            device.newest = Newest::default();
        }
    }

    /// A buffer of so many words that samples are read into: one that the device takes them from.
    pub fn buffer(&mut self, words: usize) -> Box<dyn SampleBuffer> {
        let mut made = None;
        self.ask(|device| {
            made = Some(device.buffer(words)?);
            Ok(())
        });
        // Of a device that has failed nobody reads any.
        made.unwrap_or_else(|| plain(words))
    }

    /// Sets bytes on their way to the device, beside the arena; `fill` writes them. It is not called on a
    /// device that has failed.
    pub fn stage(
        &mut self,
        place: usize,
        bytes: Bytes,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) {
        self.ask(|device| device.stage(place, bytes.0, fill));
    }

    /// Has the device write all of a region from what was staged.
    ///
    /// # Panics
    /// Without a device.
    pub fn take(&mut self, place: usize, into: Region) {
        let device = self.device.as_mut().expect("a device computes");
        device.hand_over(&self.lines, into, Access::Overwrite);
        self.ask(|device| device.take(place, into));
        if let Some(channel) = self.device.as_mut().and_then(|device| device.channel.as_mut()) {
            channel.touch(&[into]);
        }
    }

    /// Has the device keep a region as it is now, for [`Self::kept`].
    pub fn keep(&mut self, from: Region, at: u64) {
        self.compute(&[from], &[], |device| device.keep(from, at));
    }

    /// What was kept, when it is there; zeros on a device that has failed.
    pub fn kept(&mut self, bytes: &mut [u8]) {
        self.settle();
        self.ask(|device| device.kept(bytes));
    }

    /// What the device tells of its work.
    pub fn report(&mut self) -> DeviceReport {
        let Some(device) = &mut self.device else { return DeviceReport::default() };
        let device = &mut device.accelerator;
        let (graphs, no_fp8) = (device.graphs(), device.no_fp8());
        DeviceReport { graphs, algorithms: device.algorithms(), no_fp8 }
    }

    /// How much of the device's work is replayed.
    pub fn graphs(&self) -> Option<Graphs> {
        self.device.as_ref().and_then(|device| device.accelerator.graphs())
    }

    /// What went wrong on the device since it was asked last.
    ///
    /// # Errors
    /// That.
    pub fn check(&mut self) -> Result<(), DeviceError> {
        match self.device.as_mut().and_then(|device| device.fault.take()) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    fn touch(&mut self, region: Region, access: Access) {
        if let Some(device) = &mut self.device {
            device.fetch(&mut self.lines, region, access);
        }
    }

    /// What was allocated.
    pub fn bytes(&self) -> Bytes {
        Bytes(size_of_val(&*self.lines) as u64)
    }

    fn words(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }

    /// Has the host have a region, for [`Self::at_home`].
    pub fn fetch(&mut self, region: Region) {
        self.touch(region, Access::Read);
    }

    /// Nobody reads again what is in a region: before it is written to nothing is copied.
    pub fn discard(&mut self, region: Region) {
        if let Some(device) = &mut self.device {
            device.newest.forget(&bytes_of(region));
        }
    }

    /// A region as bytes, to send.
    pub fn raw(&mut self, region: Region) -> &[u8] {
        self.fetch(region);
        self.at_home(region)
    }

    /// A region as bytes that the host has: nothing but the host wrote there since it was fetched.
    pub fn at_home(&self, region: Region) -> &[u8] {
        let all: &[u8] = bytemuck::cast_slice(&self.lines);
        &all[region.offset.0 as usize..][..region.bytes.0 as usize]
    }

    /// A region as bytes, to write all of them.
    pub fn raw_mut(&mut self, region: Region) -> &mut [u8] {
        self.touch(region, Access::Overwrite);
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut self.lines);
        &mut all[region.offset.0 as usize..][..region.bytes.0 as usize]
    }

    /// A region as numbers.
    pub fn floats(&mut self, region: Region) -> &mut [f32] {
        self.touch(region, Access::ReadWrite);
        let (start, len) = words_of(region);
        &mut self.words()[start..start + len]
    }

    /// A region as numbers and another one as bytes.
    ///
    /// # Panics
    /// When they overlap: a defect of the memory plan.
    pub fn values_and_bytes(&mut self, values: Region, bytes: Region) -> (&mut [f32], &mut [u8]) {
        self.touch(values, Access::ReadWrite);
        self.touch(bytes, Access::ReadWrite);
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut self.lines);
        let [a, b] = [values, bytes].map(|region| {
            let start = region.offset.0 as usize;
            start..start + region.bytes.0 as usize
        });
        let [values, bytes] = all.get_disjoint_mut([a, b]).expect("buffers lie apart");
        (bytemuck::cast_slice_mut(values), bytes)
    }

    /// Writes one region from another, which it does not overlap.
    pub fn convert(&mut self, from: Region, into: Region, work: impl Fn(&[f32], &mut [f32])) {
        let (reads, mut writes) = self.views([from].into_iter(), [into].into_iter());
        work(reads[0], writes[0]);
    }

    /// Several regions at once: `reads` may overlap each other, `writes` overlap nothing.
    ///
    /// # Panics
    /// When a region ends outside of the arena or a written one overlaps another: a defect of the
    /// memory plan.
    pub fn views(
        &mut self,
        reads: impl Iterator<Item = Region>,
        writes: impl Iterator<Item = Region>,
    ) -> (Slices<&[f32]>, Slices<&mut [f32]>) {
        let reads: Slices<Region> = reads.collect();
        let writes: Slices<Region> = writes.collect();
        reads.iter().for_each(|region| self.touch(*region, Access::Read));
        writes.iter().for_each(|region| self.touch(*region, Access::ReadWrite));
        let words = self.words();
        let (base, count) = (words.as_mut_ptr(), words.len());
        let reads: Slices<(usize, usize)> = reads.into_iter().map(words_of).collect();
        let writes: Slices<(usize, usize)> = writes.into_iter().map(words_of).collect();
        let apart = |a: &(usize, usize), b: &(usize, usize)| {
            a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0 || a.1 == 0 || b.1 == 0
        };
        for (i, write) in writes.iter().enumerate() {
            let others = reads.iter().chain(&writes[..i]);
            assert!(others.into_iter().all(|other| apart(write, other)), "buffers overlap");
        }
        for (start, len) in reads.iter().chain(&writes) {
            assert!(start + len <= count, "buffer outside of the arena");
        }
        // SAFETY: inside of the arena and, as checked, no written slice overlaps another slice;
        // the mutable borrow of the arena lasts as long as they do.
        let read = |&(start, len): &(usize, usize)| unsafe {
            std::slice::from_raw_parts(base.add(start).cast_const(), len)
        };
        // SAFETY: as above.
        let write = |&(start, len): &(usize, usize)| unsafe {
            std::slice::from_raw_parts_mut(base.add(start), len)
        };
        (reads.iter().map(read).collect(), writes.iter().map(write).collect())
    }
}

/// First word and number of words; regions begin and end at whole words.
fn words_of(region: Region) -> (usize, usize) {
    debug_assert!((region.offset.0 | region.bytes.0).is_multiple_of(4));
    (region.offset.0 as usize / 4, region.bytes.0 as usize / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(offset: u64, bytes: u64) -> Region {
        Region { offset: Bytes(offset), bytes: Bytes(bytes) }
    }

    #[test]
    fn views_of_disjoint_regions() {
        let mut arena = Arena::new(Bytes(256));
        arena.floats(region(64, 8)).copy_from_slice(&[1.0, 2.0]);
        let (reads, mut writes) =
            arena.views([region(64, 8), region(64, 8)].into_iter(), [region(0, 8)].into_iter());
        writes[0].copy_from_slice(reads[1]);
        drop((reads, writes));
        assert_eq!(arena.floats(region(0, 8)), [1.0, 2.0]);
    }

    #[test]
    #[should_panic(expected = "buffers overlap")]
    fn a_written_region_overlaps_nothing() {
        let mut arena = Arena::new(Bytes(256));
        arena.views([region(0, 64)].into_iter(), [region(32, 64)].into_iter());
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn regions_lie_inside() {
        let mut arena = Arena::new(Bytes(256));
        arena.views([region(192, 128)].into_iter(), [].into_iter());
    }
}
