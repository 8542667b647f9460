//! Parameters in 16 bits, which kernels read: copies of the f32 ones in the arena.
//!
//! An update writes both. Whatever else writes to a parameter (a checkpoint, another replica, another
//! version of it) is told here, and the copy is made again before it is read.

use super::backend::Backend;
use super::kernels::{DevicePtr, Storage, narrow};
use crate::device::DeviceError;
use pipewright_core::plan::Region;
use std::collections::BTreeMap;
use std::ops::Range;

/// The copies of an arena's parameters, each allocated when it is first asked for.
#[derive(Debug, Default)]
pub struct Copies {
    /// By where the parameter begins in the arena. Parameters do not overlap.
    by_place: BTreeMap<u64, Copy>,
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
        let before_end = self.by_place.range_mut(..bytes.end).rev();
        for (_, copy) in before_end.take_while(|(_, copy)| copy.end > bytes.start) {
            copy.is_fresh = false;
        }
    }

    /// Where the copy of a parameter is, for somebody who writes all of it.
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
        if let Some(copy) = self.by_place.get_mut(&begin) {
            copy.is_fresh = true;
            return Ok(copy.at);
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
            let mut copies = Copies { by_place: all.clone() };
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
