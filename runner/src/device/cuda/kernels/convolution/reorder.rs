//! A convolution of images with their channels innermost, for who knows none: they are copied to the usual order,
//! and what comes out is copied back.

use super::{ConvolutionPass, ConvolutionShape, ConvolutionStep};
use crate::device::cuda::kernels::relayout::{ImageOrder, Images, reorder};
use crate::device::cuda::kernels::{DevicePtr, Launch, Storage};

/// Places in scratch are multiples of so many bytes.
const ALIGNMENT: u64 = 256;

impl ConvolutionShape {
    /// The images of `x` and of `y`.
    pub fn images(&self) -> [Images; 2] {
        let images = |channels: u32, [rows, columns]: [u32; 2]| Images {
            samples: self.samples,
            channels: u64::from(self.groups) * u64::from(channels),
            plane: u64::from(rows) * u64::from(columns),
        };
        [images(self.channels, self.size), images(self.outputs, self.out_size)]
    }

    /// The weight's windows, an image for each output.
    pub fn windows(&self) -> Images {
        Images {
            samples: u64::from(self.groups) * u64::from(self.outputs),
            channels: self.channels.into(),
            plane: u64::from(self.kernel[0]) * u64::from(self.kernel[1]),
        }
    }
}

impl ConvolutionStep {
    /// The three tensors with their images: x, the weight, y.
    fn tensors(&self) -> [(DevicePtr, Images); 3] {
        let [x, y] = self.shape.images();
        [(self.x, x), (self.weight, self.shape.windows()), (self.y, y)]
    }

    /// Where the copy of each begins in scratch, and where the last ends. The weight's gradient has none.
    fn offsets(&self, storage: Storage) -> [u64; 4] {
        let mut offsets = [0; 4];
        for (place, (_, images)) in self.tensors().into_iter().enumerate() {
            let is_copied = place != 1 || self.pass != ConvolutionPass::WeightGradient;
            let bytes = if is_copied { images.elements() * storage.bytes() } else { 0 };
            offsets[place + 1] = (offsets[place] + bytes).next_multiple_of(ALIGNMENT);
        }
        offsets
    }

    /// Bytes of scratch of all copies.
    pub fn reordered_bytes(&self, storage: Storage) -> u64 {
        self.offsets(storage)[3]
    }

    /// The same of the copies in scratch, in the usual order.
    pub fn reordered(&self, storage: Storage, scratch: DevicePtr) -> Self {
        let [x, weight, y, _] = self.offsets(storage).map(|offset| scratch.after(offset));
        let is_gradient = self.pass == ConvolutionPass::WeightGradient;
        let weight = if is_gradient { self.weight } else { weight };
        Self { x, weight, y, channels_last: false, ..*self }
    }

    /// What makes the copies, and what copies the result back.
    pub fn reorders(&self, storage: Storage, scratch: DevicePtr) -> [Vec<Launch>; 2] {
        let copies = self.reordered(storage, scratch);
        let mut launches = [vec![], vec![]];
        let pairs = self.tensors().into_iter().zip([copies.x, copies.weight, copies.y]);
        let (written, gradient) = match self.pass {
            ConvolutionPass::InputGradient => (Some(0), false),
            ConvolutionPass::Forward => (Some(2), false),
            ConvolutionPass::WeightGradient => (None, true),
        };
        for (place, ((lies, images), copy)) in pairs.enumerate() {
            if written == Some(place) {
                let places = [copy, lies];
                launches[1].push(reorder(storage, images, ImageOrder::ChannelsLast, places));
            } else if place != 1 || !gradient {
                launches[0].push(reorder(storage, images, ImageOrder::ChannelsFirst, [lies, copy]));
            }
        }
        launches
    }
}
