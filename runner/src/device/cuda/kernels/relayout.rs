//! Orders of an image's axes in memory, and copies from one to the other.
//!
//! As everywhere else an image is `[samples, channels, plane]`; channels last it is `[samples, plane, channels]`.
//! A weight's outputs are samples as well: `[outputs, channels, window]`.

use super::axes::Axes;
use super::layout::tiles;
use super::{Launch, Relayout, Source, Storage, Strided};
use crate::device::DevicePtr;

/// Sizes of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Images {
    /// How many.
    pub samples: u64,
    /// Their channels.
    pub channels: u64,
    /// Positions of a channel.
    pub plane: u64,
}

impl Images {
    /// All elements.
    pub fn elements(self) -> u64 {
        self.samples * self.channels * self.plane
    }

    /// Axes with two tensors' strides, along the first as everywhere else, along the second channels last.
    pub(super) fn axes(self) -> Axes<2> {
        let Self { samples, channels, plane } = self;
        let sample = channels * plane;
        let mut axes = Axes::<2>::new();
        axes.push(0, samples, [sample, sample]);
        axes.push(0, channels, [plane, 1]);
        axes.push(0, plane, [1, channels]);
        axes
    }
}

/// Which order images are copied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageOrder {
    /// As everywhere else.
    ChannelsFirst,
    /// Channels innermost.
    ChannelsLast,
}

/// Copies images of so wide elements from one order to the other.
pub fn reorder(width: Storage, images: Images, to: ImageOrder, [x, out]: [DevicePtr; 2]) -> Launch {
    let axes = images.axes();
    let [first, last] = axes.strides;
    let (from, to) = match to {
        ImageOrder::ChannelsLast => (first, last),
        ImageOrder::ChannelsFirst => (last, first),
    };
    let (count, rank) = (images.elements(), axes.rank as u32);
    let args = Strided { x, out, count, from, to, sizes: axes.sizes, rank, scale: 1.0 };
    let suffix = width.suffix();
    match tiles(&Axes { strides: [from, to], ..axes }, &args) {
        Some(tiles) => {
            let kernel = format!("transposed_{suffix}");
            Launch::blocks(Source::Layout, kernel, tiles.tiles, &tiles)
        }
        None => Launch::over(Source::Layout, format!("strided_{suffix}"), count, &args),
    }
}

/// Writes f32 images in the storage type with channels last: samples, which have few.
pub fn narrow_last(storage: Storage, images: Images, [x, out]: [DevicePtr; 2]) -> Launch {
    let Images { samples, channels, plane } = images;
    let args = Relayout { x, out, samples, channels, plane };
    let kernel = format!("last_samples_{}", storage.suffix());
    Launch::over(Source::ChannelsLast, kernel, samples * plane, &args)
}
