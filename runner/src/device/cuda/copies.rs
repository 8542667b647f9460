//! Copies of the f32 parameters in the arena: in 16 bits, which kernels read, of convolutions' weights with
//! their channels innermost, which cuDNN takes where those of images are, and of linear layers' weights in 8 bits.
//!
//! An update writes parameters and their copies in 16 bits. Whatever else writes to a parameter (a checkpoint,
//! another replica, another version of it) is told here, and the copy is made again before it is read.

use super::backend::Backend;
use super::kernels::fp8::WeightCodes;
use super::kernels::{DevicePtr, ImageOrder, Images, Launch, Storage, narrow, reorder};
use crate::device::DeviceError;
use pipewright_core::plan::Region;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use std::ops::Range;

/// The copies of an arena's parameters, each allocated when it is first asked for.
#[derive(Debug, Default)]
pub struct Copies {
    /// By where the parameter begins in the arena. Parameters do not overlap.
    by_place: BTreeMap<u64, Copy>,
    /// Those with channels innermost, of the type that kernels read.
    turned: BTreeMap<u64, Copy>,
    /// Codes of rows, and of columns.
    codes: [BTreeMap<u64, Copy>; 2],
}

/// Where a copy is that `launches` make where `place` says: made again if need be.
fn made<B: Backend>(
    copies: &mut BTreeMap<u64, Copy>,
    backend: &mut B,
    parameter: &Region,
    place: impl FnOnce(&mut B) -> Result<DevicePtr, DeviceError>,
    launches: impl FnOnce(DevicePtr) -> SmallVec<[Launch; 2]>,
) -> Result<DevicePtr, DeviceError> {
    let begin = parameter.offset.0;
    let at = match copies.get(&begin) {
        Some(Copy { at, is_fresh: true, .. }) => return Ok(*at),
        Some(Copy { at, .. }) => *at,
        None => place(backend)?,
    };
    copies.insert(begin, Copy { end: begin + parameter.bytes.0, at, is_fresh: true });
    launches(at).iter().try_for_each(|launch| backend.launch(launch))?;
    Ok(at)
}

/// Copies of these bytes are not what they should be.
fn stale(copies: &mut BTreeMap<u64, Copy>, bytes: &Range<u64>) {
    let before_end = copies.range_mut(..bytes.end).rev();
    for (_, copy) in before_end.take_while(|(_, copy)| copy.end > bytes.start) {
        copy.is_fresh = false;
    }
}

#[derive(Clone, Copy, Debug)]
struct Copy {
    /// Where the parameter ends in the arena.
    end: u64,
    at: DevicePtr,
    /// Whether it is what the parameter rounds to.
    is_fresh: bool,
}

impl Copies {
    /// Somebody writes to these bytes of the arena. O(log copies + copies touched).
    pub fn written(&mut self, bytes: Range<u64>) {
        stale(&mut self.by_place, &bytes);
        self.stale_orders(&bytes);
    }

    /// What is made of copies in 16 bits is not what it should be.
    fn stale_orders(&mut self, bytes: &Range<u64>) {
        stale(&mut self.turned, bytes);
        self.codes.iter_mut().for_each(|codes| stale(codes, bytes));
    }

    /// Where the copy of a parameter is, for somebody who writes all of it; none of a part of a parameter, whose
    /// copy is made again.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn overwritten(
        &mut self,
        backend: &mut impl Backend,
        parameter: &Region,
        storage: Storage,
    ) -> Result<DevicePtr, DeviceError> {
        let (begin, bytes) = (parameter.offset.0, parameter.bytes.0);
        self.stale_orders(&(begin..begin + bytes));
        if let Some((first, copy)) = self.by_place.range_mut(..begin + bytes).next_back()
            && copy.end > begin
        {
            let is_whole = (*first, copy.end) == (begin, begin + bytes);
            copy.is_fresh = is_whole;
            return Ok(if is_whole { copy.at } else { DevicePtr::NULL });
        }
        let what = "copies of parameters in 16 bits";
        let at = backend.allocate(bytes / 4 * storage.bytes(), what)?;
        self.by_place.insert(begin, Copy { end: begin + bytes, at, is_fresh: true });
        Ok(at)
    }

    /// Where the copy of a parameter at `from` is, for somebody who reads it: made again if need be.
    ///
    /// # Errors
    /// When the device has no memory for it, or has failed.
    pub fn read(
        &mut self,
        backend: &mut impl Backend,
        (parameter, from): (&Region, DevicePtr),
        storage: Storage,
    ) -> Result<DevicePtr, DeviceError> {
        if let Some(Copy { at, is_fresh: true, .. }) = self.by_place.get(&parameter.offset.0) {
            return Ok(*at);
        }
        let at = self.overwritten(backend, parameter, storage)?;
        backend.launch(&narrow(storage, from, at, parameter.bytes.0 / 4))?;
        Ok(at)
    }

    /// Where a weight lies with its channels innermost, of what kernels read of it at `from`: made again if need be.
    ///
    /// # Errors
    /// When the device has no memory for it, or has failed.
    pub fn turned(
        &mut self,
        backend: &mut impl Backend,
        (parameter, from): (&Region, DevicePtr),
        storage: Storage,
        images: Images,
    ) -> Result<DevicePtr, DeviceError> {
        const WHAT: &str = "copies of weights with channels innermost";
        let bytes = images.elements() * storage.bytes();
        let launches =
            |at| smallvec![reorder(storage, images, ImageOrder::ChannelsLast, [from, at])];
        made(&mut self.turned, backend, parameter, |b| b.allocate(bytes, WHAT), launches)
    }

    /// Where a weight's codes are: made again if need be.
    ///
    /// # Errors
    /// When the device has no memory for them, or has failed.
    pub fn codes(
        &mut self,
        backend: &mut impl Backend,
        parameter: &Region,
        codes: WeightCodes,
    ) -> Result<DevicePtr, DeviceError> {
        const WHAT: &str = "codes of weights in 8 bits";
        let kept = &mut self.codes[usize::from(codes.are_turned())];
        let launches = |at| codes.launches(at).into();
        made(kept, backend, parameter, |b| b.allocate(codes.bytes(), WHAT), launches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_touched_is_made_again() {
        let at = DevicePtr(1);
        let copy = |begin, end| (begin, Copy { end, at, is_fresh: true });
        let all = BTreeMap::from([copy(0, 8), copy(64, 128), copy(128, 192), copy(256, 260)]);
        let stale = |bytes: Range<u64>| {
            let mut copies = Copies { by_place: all.clone(), ..Copies::default() };
            copies.written(bytes);
            let stale = copies.by_place.iter().filter(|(_, copy)| !copy.is_fresh);
            stale.map(|(begin, _)| *begin).collect::<Vec<u64>>()
        };
        assert_eq!(stale(0..300), [0, 64, 128, 256]);
        assert_eq!(stale(100..101), [64]);
        assert_eq!(stale(127..129), [64, 128]);
        assert!(stale(192..256).is_empty());
        assert!(stale(8..64).is_empty());
        assert_eq!(stale(259..1000), [256]);
    }
}
