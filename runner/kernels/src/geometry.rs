//! Geometry: the sizes of a convolution, as its kernels need them.

use crate::Call;
use pipewright_core::graph::Op;
use std::ops::Range;

/// The sizes of a convolution. Pairs are (rows, columns).
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub groups: usize,
    /// Channels of one group.
    pub channels: usize,
    /// Output channels of one group.
    pub out_channels: usize,
    pub size: [usize; 2],
    pub out: [usize; 2],
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
}

impl Geometry {
    /// The sizes of the convolution that a call is for; of a transposed one those of the
    /// convolution whose input gradient it is.
    pub fn new(call: &Call) -> Self {
        let (input, output) = (&call.inputs[0].shape, &call.output.shape);
        let no_dilation = &[1, 1];
        // A transposed convolution goes from the output of the other one to its input.
        let (kernel, stride, padding, dilation, groups, input, output) = match call.op {
            Op::Conv2d { kernel, stride, padding, dilation, groups, .. } => {
                (kernel, stride, padding, dilation, groups, input, output)
            }
            Op::ConvTranspose2d { kernel, stride, padding, groups, .. } => {
                (kernel, stride, padding, no_dilation, groups, output, input)
            }
            other => unreachable!("{} is no convolution", other.name()),
        };
        let pair = |p: &[u64]| [p[0] as usize, p[1] as usize];
        Self {
            groups: *groups as usize,
            channels: (input[0] / groups) as usize,
            out_channels: (output[0] / groups) as usize,
            size: pair(&input[1..]),
            out: pair(&output[1..]),
            kernel: pair(kernel),
            stride: pair(stride),
            padding: pair(padding),
            dilation: pair(dilation),
        }
    }

    /// Whether the image is its own unfolded form.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    /// Rows of the unfolded form.
    pub fn unfolded_rows(&self) -> usize {
        self.channels * self.kernel[0] * self.kernel[1]
    }

    /// Output positions of one channel.
    pub fn positions(&self) -> usize {
        self.out[0] * self.out[1]
    }

    /// Elements of one group of one sample: of the input, of the output.
    pub fn group_len(&self) -> (usize, usize) {
        (self.channels * self.size[0] * self.size[1], self.out_channels * self.positions())
    }

    /// Along `axis`, the outputs among `outputs` whose input at kernel element `k` lies inside.
    #[inline]
    pub fn inside(&self, axis: usize, k: usize, outputs: Range<usize>) -> Range<usize> {
        let (stride, padding) = (self.stride[axis], self.padding[axis]);
        let offset = k * self.dilation[axis];
        let first = padding.saturating_sub(offset).div_ceil(stride);
        let end = (self.size[axis] + padding).saturating_sub(offset).div_ceil(stride);
        let start = first.clamp(outputs.start, outputs.end);
        start..end.clamp(start, outputs.end)
    }

    /// Calls `visit(unfolded row, channel, kernel row, kernel column)` for every unfolded row.
    pub(crate) fn for_each_row(&self, mut visit: impl FnMut(usize, usize, usize, usize)) {
        let mut row = 0;
        for channel in 0..self.channels {
            for kr in 0..self.kernel[0] {
                for kc in 0..self.kernel[1] {
                    visit(row, channel, kr, kc);
                    row += 1;
                }
            }
        }
    }
}
