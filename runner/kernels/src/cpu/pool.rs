//! Pooling: `x [samples, C, H, W]` to `y [samples, C, rows, columns]`, one plane at a time.

use super::chunks;
use super::sums::sum;
use super::vector::vectorised;
use crate::{Call, Operands};
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

vectorised! {
    /// Row `r` of the output.
    fn max_row(
        window: &Window,
        x: &[f32],
        at: (usize, Size),
        y: &mut [f32],
        positions: &mut [u32],
    ) {
        let (r, size) = at;
        let (stride, padding) = (window.stride[1] as usize, window.padding[1] as usize);
        let kernel = window.kernel[1] as usize;
        let rows = covered(window, 0, r, size[0]).0;
        // The windows that no padding touches.
        let end = (size[1] + padding).checked_sub(kernel).map_or(0, |last| last / stride + 1);
        let whole = padding.div_ceil(stride)..end.min(y.len());
        let whole = if stride <= 2 && whole.len() >= FEWEST { whole } else { 0..0 };
        for c in (0..whole.start).chain(whole.end..y.len()) {
            let columns = covered(window, 1, c, size[1]).0;
            (y[c], positions[c]) = max_of_window(x, size[1], rows.clone(), columns);
        }
        let first = (whole.start * stride).saturating_sub(padding);
        let lines = Lines { x, width: size[1], rows, first, kernel };
        let (y, positions) = (&mut y[whole.clone()], &mut positions[whole]);
        match (stride, y.len()) {
            (_, 0) => {}
            (1, 16..) => max_of_blocks::<1, 16>(lines, y, positions),
            (1, 8..) => max_of_blocks::<1, 8>(lines, y, positions),
            (1, _) => max_of_blocks::<1, FEWEST>(lines, y, positions),
            (_, 16..) => max_of_blocks::<2, 16>(lines, y, positions),
            (_, 8..) => max_of_blocks::<2, 8>(lines, y, positions),
            _ => max_of_blocks::<2, FEWEST>(lines, y, positions),
        }
    }
}

/// Windows of the smallest block.
const FEWEST: usize = 4;

/// What a row of windows goes over.
struct Lines<'a> {
    /// The plane.
    x: &'a [f32],
    /// Its columns.
    width: usize,
    rows: Range<usize>,
    /// The column in which the first window begins.
    first: usize,
    /// Columns of a window.
    kernel: usize,
}

/// The maxima of a row of windows and where they are, by blocks.
#[inline(always)]
fn max_of_blocks<const STRIDE: usize, const WINDOWS: usize>(
    lines: Lines,
    y: &mut [f32],
    positions: &mut [u32],
) {
    let mut start = 0;
    while start < y.len() {
        // The last block overlaps the one before.
        let block = start.min(y.len() - WINDOWS);
        let (maxima, places) = max_of_block::<STRIDE, WINDOWS>(&lines, block);
        y[block..block + WINDOWS].copy_from_slice(&maxima);
        positions[block..block + WINDOWS].copy_from_slice(&places);
        start += WINDOWS;
    }
}

/// The maxima of the block that begins with window `block`, and where they are.
///
/// Which of two values is larger is a coin toss that no processor predicts. A block of fixed size,
/// at a stride that is a constant, has neither branches nor a remainder, so the compiler loads,
/// compares and selects vectors.
#[inline(always)]
fn max_of_block<const STRIDE: usize, const WINDOWS: usize>(
    lines: &Lines,
    block: usize,
) -> ([f32; WINDOWS], [u32; WINDOWS]) {
    let first = lines.first + block * STRIDE;
    let mut maxima = [f32::NEG_INFINITY; WINDOWS];
    // Where all of a window is minus infinity no comparison succeeds: its first element it is.
    let place = (lines.rows.start * lines.width + first) as u32;
    let mut places: [u32; WINDOWS] = std::array::from_fn(|lane| place + (lane * STRIDE) as u32);
    for row in lines.rows.clone() {
        for k in 0..lines.kernel {
            let place = row * lines.width + first + k;
            let x = &lines.x[place..][..(WINDOWS - 1) * STRIDE + 1];
            let mut values = [0.0; WINDOWS];
            for lane in 0..WINDOWS {
                values[lane] = x[lane * STRIDE];
            }
            for lane in 0..WINDOWS {
                let larger = (values[lane] > maxima[lane]) | values[lane].is_nan();
                let here = place as u32 + (lane * STRIDE) as u32;
                places[lane] = if larger { here } else { places[lane] };
                maxima[lane] = if larger { values[lane] } else { maxima[lane] };
            }
        }
    }
    (maxima, places)
}

/// Likewise of one window.
#[inline(always)]
fn max_of_window(x: &[f32], width: usize, rows: Range<usize>, columns: Range<usize>) -> (f32, u32) {
    let mut max = (f32::NEG_INFINITY, (rows.start * width + columns.start) as u32);
    for row in rows {
        for column in columns.clone() {
            let place = row * width + column;
            if x[place] > max.0 || x[place].is_nan() {
                max = (x[place], place as u32);
            }
        }
    }
    max
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
pub fn avg_forward(call: &Call, window: &Window, padding: bool, operands: Operands) {
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
pub fn avg_input_gradient(call: &Call, window: &Window, padding: bool, operands: Operands) {
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
    let x = operands.reads[0];
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each(threads, operands.writes[0], 1, |plane, y| {
        y[0] = sum(&x[plane * len..][..len]) / len as f32;
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of every width, beside one window after the other; ties, minus infinity and no numbers among them.
    #[test]
    fn windows_of_a_row_are_those_one_by_one() {
        for (width, kernel, stride) in
            (1..40).flat_map(|w| (1..4).flat_map(move |k| (1..4).map(move |s| (w, k, s))))
        {
            let values = [3.0, f32::NEG_INFINITY, 1.0, 3.0, -2.0, f32::NAN, 0.0];
            let x: Vec<f32> = (0..3 * width).map(|i| values[i * i % 11 % values.len()]).collect();
            for padding in 0..=kernel / 2 {
                let Some(room) = (width + 2 * padding).checked_sub(kernel) else { continue };
                let outputs = room / stride + 1;
                let square = |side: usize| [side as u32; 2];
                let window = Window {
                    kernel: square(kernel).map(Into::into),
                    stride: square(stride).map(Into::into),
                    padding: square(padding).map(Into::into),
                    ceil_mode: false,
                };
                let (mut y, mut positions) = (vec![0.0; outputs], vec![0; outputs]);
                max_row(&window, &x, (0, [3, width]), &mut y, &mut positions);
                let rows = covered(&window, 0, 0, 3).0;
                for c in 0..outputs {
                    let columns = covered(&window, 1, c, width).0;
                    let (max, place) = max_of_window(&x, width, rows.clone(), columns);
                    let same = (max.to_bits(), place) == (y[c].to_bits(), positions[c]);
                    assert!(same, "window {c} of {outputs}: {kernel} wide, each {stride}");
                }
            }
        }
    }
}
