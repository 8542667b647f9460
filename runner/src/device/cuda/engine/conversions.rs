//! Conversions of values that lie otherwise than a computation's kernels take them: in another type, or images in
//! another order. They are copied to scratch before, or from scratch afterwards.

use super::Pointers;
use crate::device::cuda::kernels::{
    DevicePtr, ImageOrder, Images, Launch, Operand, Step, Storage, is_stored, narrow, narrow_last,
    reorder, widen,
};
use crate::device::{Image, Place};
use pipewright_kernels::Call;
use smallvec::SmallVec;

/// Scratch that is divided from its beginning on, in pieces that any kernel may use.
pub(super) struct Room {
    pub base: DevicePtr,
    pub used: u64,
}

impl Room {
    pub fn take(&mut self, bytes: u64) -> DevicePtr {
        let at = self.base.after(self.used);
        self.used = (self.used + bytes).next_multiple_of(256);
        at
    }
}

/// A computation as far as its values' types and orders follow from it.
#[derive(Clone, Copy)]
pub(super) struct Taken<'a> {
    pub call: &'a Call<'a>,
    pub storage: Storage,
    /// Whether it takes images with their channels innermost.
    pub channels_last: bool,
}

/// Where a value is, and how.
#[derive(Clone, Copy)]
struct Form {
    at: DevicePtr,
    /// Whether elements are of the storage type, rather than words of four bytes.
    is_stored: bool,
    order: ImageOrder,
}

/// A value that lies otherwise than kernels take it, and scratch where it lies as they do.
#[derive(Clone, Copy)]
pub(super) struct Converted {
    lies: Form,
    taken: Form,
    elements: u64,
    /// Of an image whose order is another one.
    images: Option<Images>,
    /// Scratch between two conversions.
    between: DevicePtr,
}

impl Converted {
    /// Before a computation that reads it.
    pub fn before(&self, storage: Storage) -> SmallVec<[Step; 2]> {
        self.launches(storage, self.lies, self.taken).into_iter().map(Step::Kernel).collect()
    }

    /// After a computation that writes it.
    pub fn after(&self, storage: Storage) -> SmallVec<[Step; 2]> {
        self.launches(storage, self.taken, self.lies).into_iter().map(Step::Kernel).collect()
    }

    fn launches(&self, storage: Storage, from: Form, to: Form) -> SmallVec<[Launch; 2]> {
        let convert = if to.is_stored { narrow } else { widen };
        let width = if to.is_stored { storage } else { Storage::F32 };
        let Some(images) = self.images else {
            return SmallVec::from_iter([convert(storage, from.at, to.at, self.elements)]);
        };
        if from.is_stored == to.is_stored {
            return SmallVec::from_iter([reorder(width, images, to.order, [from.at, to.at])]);
        }
        if to.is_stored && to.order == ImageOrder::ChannelsLast {
            return SmallVec::from_iter([narrow_last(storage, images, [from.at, to.at])]);
        }
        SmallVec::from_iter([
            convert(storage, from.at, self.between, self.elements),
            reorder(width, images, to.order, [self.between, to.at]),
        ])
    }
}

impl Taken<'_> {
    /// Whether kernels take an operand in the storage type.
    fn is_stored(&self, operand: Operand) -> bool {
        self.storage != Storage::F32 && is_stored(self.call, operand)
    }

    /// Whether an image lies otherwise than the computation takes it.
    fn is_turned(&self, image: Option<Image>) -> bool {
        image.is_some_and(|image| image.channels_last != self.channels_last)
    }

    /// Whether kernels take an operand as it lies.
    pub fn is_even(&self, place: &Place, operand: Operand) -> bool {
        place.packed == self.is_stored(operand) && !self.is_turned(place.image)
    }

    /// Where kernels find values, which begin at `lies`, and those of them that are converted.
    pub fn values(
        &self,
        values: &[Place],
        lies: impl Fn(&Place) -> DevicePtr,
        operand: fn(usize) -> Operand,
        room: &mut Room,
    ) -> (Pointers, Vec<Converted>) {
        let mut converted = vec![];
        let value = |(i, place): (usize, &Place)| {
            let at = lies(place);
            if self.is_even(place, operand(i)) {
                return at;
            }
            let (elements, is_stored) = (place.elements, self.is_stored(operand(i)));
            let bytes = elements * if is_stored { self.storage.bytes() } else { 4 };
            let taken = room.take(bytes);
            let is_turned = self.is_turned(place.image);
            let between = match is_turned && is_stored != place.packed {
                true => room.take(4 * elements),
                false => DevicePtr::NULL,
            };
            let order =
                |last| if last { ImageOrder::ChannelsLast } else { ImageOrder::ChannelsFirst };
            let images =
                place.image.filter(|_| is_turned).map(|Image { channels, plane, .. }| Images {
                    samples: elements / (channels * plane),
                    channels,
                    plane,
                });
            converted.push(Converted {
                lies: Form {
                    at,
                    is_stored: place.packed,
                    order: order(place.image.is_some_and(|image| image.channels_last)),
                },
                taken: Form { at: taken, is_stored, order: order(self.channels_last) },
                elements,
                images,
                between,
            });
            taken
        };
        (values.iter().enumerate().map(value).collect(), converted)
    }
}

/// Whether a computation takes images with their channels innermost: where one of its own lies so.
pub(super) fn is_channels_last<'p>(mut places: impl Iterator<Item = &'p Place>) -> bool {
    places.any(|place| place.image.is_some_and(|image| image.channels_last))
}
