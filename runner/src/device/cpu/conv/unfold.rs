//! A convolution as a matrix product: unfolding images into columns (im2col) and back (col2im).
//!
//! One group of one sample is `[channels, rows, columns]`. Its unfolded form has one row for each
//! (channel, kernel row, kernel column) and one column for each output position, row-major:
//!
//! ```text
//!               output positions (r, c) of the rows that are unfolded
//! (ch, kr, kc)  image[ch, r * stride + kr * dilation - padding, c * stride + ..]   or 0 outside
//! ```

use crate::device::cpu::Call;
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
    fn for_each_row(&self, mut visit: impl FnMut(usize, usize, usize, usize)) {
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

/// Unfolds the output rows `rows` of one group of one sample: `image [channels, size]` to
/// `unfolded [unfolded_rows, rows x out columns]`, whose rows begin `stride` elements apart.
pub fn unfold(
    g: &Geometry,
    image: &[f32],
    rows: Range<usize>,
    (unfolded, stride): (&mut [f32], usize),
) {
    let columns = rows.len() * g.out[1];
    let same_width = g.stride == [1, 1] && g.out[1] == g.size[1];
    g.for_each_row(|row, channel, kr, kc| {
        let line = &mut unfolded[row * stride..][..columns];
        let plane = &image[channel * g.size[0] * g.size[1]..][..g.size[0] * g.size[1]];
        let inside = g.inside(0, kr, rows.clone());
        let across = g.inside(1, kc, 0..g.out[1]);
        line[..(inside.start - rows.start) * g.out[1]].fill(0.0);
        line[(inside.end - rows.start) * g.out[1]..].fill(0.0);
        if same_width && !inside.is_empty() {
            let first = (inside.start + kr * g.dilation[0] - g.padding[0]) * g.size[1];
            let line =
                &mut line[(inside.start - rows.start) * g.out[1]..][..inside.len() * g.out[1]];
            let shift = (kc * g.dilation[1], g.padding[1]);
            return shifted(line, &plane[first..], (g.out[1], across), shift);
        }
        for r in inside {
            let out = &mut line[(r - rows.start) * g.out[1]..][..g.out[1]];
            out[..across.start].fill(0.0);
            out[across.end..].fill(0.0);
            if across.is_empty() {
                continue;
            }
            let image_row = r * g.stride[0] + kr * g.dilation[0] - g.padding[0];
            let first = across.start * g.stride[1] + kc * g.dilation[1] - g.padding[1];
            let source = &plane[image_row * g.size[1]..][first..g.size[1]];
            let out = &mut out[across.clone()];
            if g.stride[1] == 1 {
                out.copy_from_slice(&source[..out.len()]);
            } else {
                let picked = source.iter().step_by(g.stride[1]);
                out.iter_mut().zip(picked).for_each(|(out, x)| *out = *x);
            }
        }
    });
}

/// Rows of `width` whose neighbours in the image are neighbours in `line` as well: one copy of all
/// of them from `x`, `right - left` elements on, then zeros outside of the columns `across`.
fn shifted(
    line: &mut [f32],
    x: &[f32],
    (width, across): (usize, Range<usize>),
    (right, left): (usize, usize),
) {
    let len = line.len();
    let to = &mut line[left.saturating_sub(right).min(len)..];
    let from = &x[right.saturating_sub(left).min(x.len())..];
    let len = to.len().min(from.len());
    to[..len].copy_from_slice(&from[..len]);
    for row in line.chunks_exact_mut(width) {
        row[..across.start].fill(0.0);
        row[across.end..].fill(0.0);
    }
}

/// The transposed operation: adds the unfolded gradient of the output rows `rows` to the
/// gradient of the image.
pub fn fold_add(
    g: &Geometry,
    (unfolded, stride): (&[f32], usize),
    rows: Range<usize>,
    image: &mut [f32],
) {
    let columns = rows.len() * g.out[1];
    g.for_each_row(|row, channel, kr, kc| {
        let line = &unfolded[row * stride..][..columns];
        let plane = &mut image[channel * g.size[0] * g.size[1]..][..g.size[0] * g.size[1]];
        let across = g.inside(1, kc, 0..g.out[1]);
        if across.is_empty() {
            return;
        }
        for r in g.inside(0, kr, rows.clone()) {
            let gradient = &line[(r - rows.start) * g.out[1]..][across.clone()];
            let image_row = r * g.stride[0] + kr * g.dilation[0] - g.padding[0];
            let first = across.start * g.stride[1] + kc * g.dilation[1] - g.padding[1];
            let target = &mut plane[image_row * g.size[1]..][first..g.size[1]];
            if g.stride[1] == 1 {
                target.iter_mut().zip(gradient).for_each(|(x, g)| *x += g);
            } else {
                let picked = target.iter_mut().step_by(g.stride[1]);
                picked.zip(gradient).for_each(|(x, g)| *x += g);
            }
        }
    });
}
