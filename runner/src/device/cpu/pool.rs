//! Pooling: `x [samples, C, H, W]` to `y [samples, C, rows, columns]`, one plane at a time.

use super::sums::sum;
use super::vector::vectorised;
use super::{Call, Operands, chunks};
use pipewright_core::graph::Window;
use std::ops::Range;

/// Sizes of one plane: rows, columns.
type Size = [usize; 2];

/// Sizes of the input's and the output's planes.
fn planes(call: &Call) -> (Size, Size) {
    let size = |shape: &[u64]| [shape[1] as usize, shape[2] as usize];
    (size(&call.inputs[0].shape), size(&call.output.shape))
}

/// The inputs along `axis` that window `index` covers, and how many elements it covers when
/// padding counts. PyTorch lets a window of `ceil_mode` end at the border of the padding.
fn covered(window: &Window, axis: usize, index: usize, size: usize) -> (Range<usize>, usize) {
    let padding = window.padding[axis] as usize;
    // Positions from the padding's first element on.
    let start = index * window.stride[axis] as usize;
    let end = (start + window.kernel[axis] as usize).min(size + 2 * padding);
    let first = start.saturating_sub(padding).min(size);
    (first..end.saturating_sub(padding).clamp(first, size), end - start)
}

/// Of the windows `outputs` in a row of `size` inputs: those whose kernel column `k` lies inside,
/// and the input of the first of them. The next window's input is one stride further.
///
/// Going over a row once per kernel column instead of over a kernel once per window leaves loops
/// without branches, long enough for vector code.
fn inside(window: &Window, k: usize, size: usize, outputs: Range<usize>) -> (Range<usize>, usize) {
    let (stride, padding) = (window.stride[1] as usize, window.padding[1] as usize);
    let first = padding.saturating_sub(k).div_ceil(stride);
    let end = (size + padding).saturating_sub(k).div_ceil(stride);
    let start = first.clamp(outputs.start, outputs.end);
    let input = (start * stride + k).saturating_sub(padding);
    (start..end.clamp(start, outputs.end), input.min(size))
}

/// Writes the maxima and, as u32, their positions in the plane (the first of equals). Padding is
/// never the maximum; what is not a number is, lest a diverged run look healthy.
pub fn max_forward(call: &Call, window: &Window, operands: Operands) {
    let (size, out) = planes(call);
    let plane_len = size[0] * size[1];
    let x = operands.reads[0];
    let [y, positions] = operands.writes else {
        unreachable!("a maximum pooling writes maxima and positions");
    };
    let positions: &mut [u32] = bytemuck::cast_slice_mut(positions);
    let len = out[0] * out[1];
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each_pair(threads, (y, positions), (len, len), |plane, y, positions| {
        let x = &x[plane * plane_len..][..plane_len];
        let rows = y.chunks_exact_mut(out[1]).zip(positions.chunks_exact_mut(out[1]));
        for (r, (y, positions)) in rows.enumerate() {
            max_row(window, x, (r, size), y, positions);
        }
    });
}

/// Windows of a block.
const LANES: usize = 16;

vectorised! {
    /// Row `r` of the output, a block of windows at a time.
    ///
    /// Which of two values is larger is a coin toss that no processor predicts. A block of fixed
    /// size has neither branches nor a remainder, so the compiler compares and selects in vectors.
    fn max_row(
        window: &Window,
        x: &[f32],
        at: (usize, Size),
        y: &mut [f32],
        positions: &mut [u32],
    ) {
        let (r, size) = at;
        let (stride, padding) = (window.stride[1] as usize, window.padding[1] as usize);
        let rows = covered(window, 0, r, size[0]).0;
        let blocks = y.chunks_mut(LANES).zip(positions.chunks_mut(LANES));
        for (start, (y, positions)) in (0..).step_by(LANES).zip(blocks) {
            let mut maxima = [f32::NEG_INFINITY; LANES];
            // Where all of a window is minus infinity no comparison succeeds: its first element
            // it is.
            let mut places: [u32; LANES] = std::array::from_fn(|lane| {
                (rows.start * size[1] + ((start + lane) * stride).saturating_sub(padding)) as u32
            });
            for row in rows.clone() {
                let x = &x[row * size[1]..][..size[1]];
                for k in 0..window.kernel[1] as usize {
                    let (columns, first) = inside(window, k, size[1], start..start + y.len());
                    let columns = columns.start - start..columns.end - start;
                    let values = gathered(&x[first..], columns, stride);
                    // Where the first window's element is, or would be in the padding.
                    let place = (row * size[1] + start * stride + k).wrapping_sub(padding) as u32;
                    for lane in 0..LANES {
                        let larger = (values[lane] > maxima[lane]) | values[lane].is_nan();
                        let here = place.wrapping_add((lane * stride) as u32);
                        places[lane] = if larger { here } else { places[lane] };
                        maxima[lane] = if larger { values[lane] } else { maxima[lane] };
                    }
                }
            }
            y.copy_from_slice(&maxima[..y.len()]);
            positions.copy_from_slice(&places[..positions.len()]);
        }
    }
}

/// The elements of `x`, `stride` apart, in the lanes `lanes`; minus infinity in the others.
#[inline(always)]
fn gathered(x: &[f32], lanes: Range<usize>, stride: usize) -> [f32; LANES] {
    // Usual windows well inside of an image: loads and shuffles instead of single elements.
    if lanes.len() == LANES && stride == 2 && x.len() >= 2 * LANES {
        let x = &x[..2 * LANES];
        return std::array::from_fn(|lane| x[2 * lane]);
    }
    if lanes.len() == LANES && stride == 1 {
        let x = &x[..LANES];
        return std::array::from_fn(|lane| x[lane]);
    }
    let mut values = [f32::NEG_INFINITY; LANES];
    let inputs = x.iter().step_by(stride);
    values[lanes].iter_mut().zip(inputs).for_each(|(value, x)| *value = *x);
    values
}

/// Every output's gradient goes to where its maximum was.
pub fn max_input_gradient(call: &Call, operands: Operands) {
    let (size, out) = planes(call);
    let positions: &[u32] = bytemuck::cast_slice(operands.reads[0]);
    let gy = operands.reads[1];
    let len = out[0] * out[1];
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], size[0] * size[1], |plane, gx| {
        gx.fill(0.0);
        let part = plane * len..(plane + 1) * len;
        for (position, g) in positions[part.clone()].iter().zip(&gy[part]) {
            gx[*position as usize] += g;
        }
    });
}

/// Elements that the mean of a window along one axis is over.
fn counted(window: &Window, axis: usize, index: usize, size: usize, padding: bool) -> usize {
    let (inside, all) = covered(window, axis, index, size);
    if padding { all } else { inside.len() }
}

/// Means of the windows; padding counts as zeros, or not at all.
pub fn avg_forward(call: &Call, (window, padding): (&Window, bool), operands: Operands) {
    let (size, out) = planes(call);
    let plane_len = size[0] * size[1];
    let x = operands.reads[0];
    let stride = window.stride[1] as usize;
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], out[0] * out[1], |plane, y| {
        let x = &x[plane * plane_len..][..plane_len];
        for (r, y) in y.chunks_exact_mut(out[1]).enumerate() {
            let rows = covered(window, 0, r, size[0]).0;
            let height = counted(window, 0, r, size[0], padding);
            y.fill(0.0);
            for row in rows {
                for k in 0..window.kernel[1] as usize {
                    let (columns, first) = inside(window, k, size[1], 0..out[1]);
                    let inputs = x[row * size[1]..][first..size[1]].iter();
                    let outputs = y[columns].iter_mut();
                    outputs.zip(inputs.step_by(stride)).for_each(|(y, x)| *y += x);
                }
            }
            for (c, y) in y.iter_mut().enumerate() {
                *y /= (height * counted(window, 1, c, size[1], padding)) as f32;
            }
        }
    });
}

/// Every output's gradient is spread evenly over its window.
pub fn avg_input_gradient(call: &Call, (window, padding): (&Window, bool), operands: Operands) {
    let (size, out) = planes(call);
    let gy = operands.reads[0];
    let len = out[0] * out[1];
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], size[0] * size[1], |plane, gx| {
        gx.fill(0.0);
        for (r, gy) in gy[plane * len..][..len].chunks_exact(out[1]).enumerate() {
            let rows = covered(window, 0, r, size[0]).0;
            let height = counted(window, 0, r, size[0], padding);
            for (c, gy) in gy.iter().enumerate() {
                let columns = covered(window, 1, c, size[1]).0;
                let width = counted(window, 1, c, size[1], padding);
                let share = gy / (height * width) as f32;
                for row in rows.clone() {
                    let gx = &mut gx[row * size[1]..][columns.clone()];
                    gx.iter_mut().for_each(|gx| *gx += share);
                }
            }
        }
    });
}

/// `[C, H, W]` to the means of the planes, `[C, 1, 1]`.
pub fn global_avg_forward(call: &Call, operands: Operands) {
    let (size, _) = planes(call);
    let len = size[0] * size[1];
    let x = operands.reads[0].chunks_exact(len);
    operands.writes[0].iter_mut().zip(x).for_each(|(y, x)| *y = sum(x) / len as f32);
}

/// The gradient of a mean, spread evenly over its plane.
pub fn global_avg_input_gradient(call: &Call, operands: Operands) {
    let (size, _) = planes(call);
    let len = size[0] * size[1];
    let gy = operands.reads[0];
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], len, |plane, gx| {
        gx.fill(gy[plane] / len as f32);
    });
}
