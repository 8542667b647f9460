//! Transforms of weights and of their gradients: kernels of 3 x 3 to tiles of 4 x 4 and back.

use super::tiles::{LANES, Lanes, add, half, subtract};
use super::{pitch, stride};
use crate::cpu::chunks;
use crate::cpu::vector::vectorised;

/// Elements of a kernel.
const KERNEL: usize = 9;

/// `G w Gᵀ` of all kernels: `weight [rows, width, 3, 3]` to `[rows, 16, width]`, with the strides of so many tiles.
pub fn transform(threads: usize, weight: &[f32], width: usize, to: &mut [f32]) {
    let threads = chunks::worth(threads, to.len());
    chunks::for_each(threads, to, pitch(width), |row, to| {
        transform_row(&weight[row * width * KERNEL..][..width * KERNEL], to, stride(width));
    });
}

/// `w += Gᵀ n G` of all kernels: `from [16, rows, width]`, whose rows have the stride of so many tiles.
pub fn add_back(threads: usize, from: &[f32], width: usize, weight: &mut [f32]) {
    let threads = chunks::worth(threads, from.len());
    let between = weight.len() / (KERNEL * width) * stride(width);
    chunks::for_each(threads, weight, KERNEL * width, |row, weight| {
        add_row(&from[row * stride(width)..], between, weight);
    });
}

/// `G w`: a row, half of its sum with the two others with either sign of the middle one, and the last.
#[inline(always)]
fn spread(a: &Lanes, b: &Lanes, c: &Lanes) -> [Lanes; 4] {
    let outer = add(a, c);
    [*a, half(&add(&outer, b)), half(&subtract(&outer, b)), *c]
}

/// `Gᵀ n`
#[inline(always)]
fn gather(n: [&Lanes; 4]) -> [Lanes; 3] {
    let (sum, difference) = (half(&add(n[1], n[2])), half(&subtract(n[1], n[2])));
    [add(n[0], &sum), difference, add(&sum, n[3])]
}

vectorised! {
    fn transform_row(weight: &[f32], to: &mut [f32], stride: usize) {
        for (at, kernels) in weight.chunks(LANES * KERNEL).enumerate() {
            let mut all = [0.0f32; LANES * KERNEL];
            let kernels: &[f32; LANES * KERNEL] = match kernels.try_into() {
                Ok(kernels) => kernels,
                Err(_) => {
                    all[..kernels.len()].copy_from_slice(kernels);
                    &all
                }
            };
            let mut columns = [[[0.0f32; LANES]; 4]; 3];
            for (at, column) in columns.iter_mut().enumerate() {
                let mut w = [[0.0f32; LANES]; 3];
                for (r, row) in w.iter_mut().enumerate() {
                    for (k, value) in row.iter_mut().enumerate() {
                        *value = kernels[KERNEL * k + 3 * r + at];
                    }
                }
                *column = spread(&w[0], &w[1], &w[2]);
            }
            for i in 0..4 {
                let row = spread(&columns[0][i], &columns[1][i], &columns[2][i]);
                for j in 0..4 {
                    to[(4 * i + j) * stride + LANES * at..][..LANES].copy_from_slice(&row[j]);
                }
            }
        }
    }

    fn add_row(from: &[f32], between: usize, weight: &mut [f32]) {
        for (at, kernels) in weight.chunks_mut(LANES * KERNEL).enumerate() {
            let tile = |i: usize, j: usize| -> &Lanes {
                from[(4 * i + j) * between + LANES * at..][..LANES].try_into().expect("so many")
            };
            let mut columns = [[[0.0f32; LANES]; 3]; 4];
            for (j, column) in columns.iter_mut().enumerate() {
                *column = gather([tile(0, j), tile(1, j), tile(2, j), tile(3, j)]);
            }
            let mut sums = [[0.0f32; LANES]; KERNEL];
            for r in 0..3 {
                let [c0, c1, c2, c3] = &columns;
                let row = gather([&c0[r], &c1[r], &c2[r], &c3[r]]);
                sums[3 * r..3 * r + 3].copy_from_slice(&row);
            }
            for (k, kernel) in kernels.chunks_exact_mut(KERNEL).enumerate() {
                for (value, sums) in kernel.iter_mut().zip(&sums) {
                    *value += sums[k];
                }
            }
        }
    }
}
