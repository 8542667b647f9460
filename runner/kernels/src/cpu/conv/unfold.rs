//! A convolution as a matrix product: unfolding images into columns (im2col) and back (col2im).
//!
//! One group of one sample is `[channels, rows, columns]`. Its unfolded form has one row for each
//! (channel, kernel row, kernel column) and one column for each output position, row-major:
//!
//! ```text
//!               output positions (r, c) of the rows that are unfolded
//! (ch, kr, kc)  image[ch, r * stride + kr * dilation - padding, c * stride + ..]   or 0 outside
//! ```

use crate::Geometry;
use std::ops::Range;

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
            let (right, left) = (kc * g.dilation[1], g.padding[1]);
            return shifted(line, &plane[first..], g.out[1], across, right, left);
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
    width: usize,
    across: Range<usize>,
    right: usize,
    left: usize,
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
