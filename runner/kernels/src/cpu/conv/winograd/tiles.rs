//! Transforms of tiles, a row of them at a time. With `d` a tile of 4 x 4 inputs, `g` a kernel of 3 x 3, `y` a tile
//! of 2 x 2 outputs and `∘` the product element by element:
//!
//! ```text
//! y = Aᵀ [(G g Gᵀ) ∘ (Bᵀ d B)] A      its gradients: gU = (A gy Aᵀ) ∘ (Bᵀ d B), gw = Gᵀ gU G
//!
//! Bᵀ = 1  0 -1  0     G = 1  0  0      Aᵀ = 1  1  1  0
//!      0  1  1  0         ½  ½  ½           0  1 -1 -1
//!      0 -1  1  0         ½ -½  ½
//!      0  1  0 -1         0  0  1
//! ```

use crate::cpu::vector::vectorised;

/// Numbers that are computed at a time.
pub(super) const LANES: usize = 16;

/// Tiles of which pixels are loaded at a time.
const WIDTH: usize = 64;

/// Pixels under a run of tiles, a row of them.
#[derive(Clone, Copy)]
struct Pixels {
    line: [f32; 2 * (WIDTH + LANES)],
    even: [f32; WIDTH + LANES],
    odd: [f32; WIDTH + LANES],
}

/// Rows of pixels, of which tiles are made.
pub struct Rows([Pixels; 4]);

impl Rows {
    pub fn new() -> Self {
        let line = [0.0; 2 * (WIDTH + LANES)];
        Self([Pixels { line, even: [0.0; WIDTH + LANES], odd: [0.0; WIDTH + LANES] }; 4])
    }
}

pub(super) type Lanes = [f32; LANES];

// Loops and no iterators or closures, which would not be compiled for the wider vectors along with their callers.

#[inline(always)]
pub(super) fn add(a: &Lanes, b: &Lanes) -> Lanes {
    let mut sum = [0.0; LANES];
    for k in 0..LANES {
        sum[k] = a[k] + b[k];
    }
    sum
}

#[inline(always)]
pub(super) fn subtract(a: &Lanes, b: &Lanes) -> Lanes {
    let mut difference = [0.0; LANES];
    for k in 0..LANES {
        difference[k] = a[k] - b[k];
    }
    difference
}

#[inline(always)]
pub(super) fn half(a: &Lanes) -> Lanes {
    let mut half = [0.0; LANES];
    for k in 0..LANES {
        half[k] = 0.5 * a[k];
    }
    half
}

/// Some numbers in a row.
#[inline(always)]
fn lanes(of: &[f32], at: usize) -> &[f32; LANES] {
    of[at..at + LANES].try_into().expect("so many")
}

#[inline(always)]
fn lanes_mut(of: &mut [f32], at: usize) -> &mut [f32; LANES] {
    (&mut of[at..at + LANES]).try_into().expect("so many")
}

impl Pixels {
    /// Takes `2 * count` pixels of `row` from column `first` on, zero where there are none, and any behind them.
    #[inline(always)]
    fn load(&mut self, row: &[f32], first: isize, count: usize) {
        let line = &mut self.line;
        let left = ((-first).max(0) as usize).min(2 * count);
        let from = first.max(0) as usize;
        let len = row.len().saturating_sub(from).min(2 * count - left);
        line[..left].fill(0.0);
        if len > 0 {
            line[left..left + len].copy_from_slice(&row[from..from + len]);
        }
        line[left + len..2 * count].fill(0.0);
        for at in (0..count).step_by(LANES) {
            let pairs: &[f32; 2 * LANES] =
                line[2 * at..2 * (at + LANES)].try_into().expect("so many");
            let (even, odd) = (lanes_mut(&mut self.even, at), lanes_mut(&mut self.odd, at));
            for k in 0..LANES {
                even[k] = pairs[2 * k];
                odd[k] = pairs[2 * k + 1];
            }
        }
    }
}

/// An image's plane, and where in it a row of tiles begins, outside of it where there is padding.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub plane: &'a [f32],
    pub width: usize,
    pub row: isize,
    pub column: isize,
}

impl Place<'_> {
    /// A row of pixels, empty outside of the image.
    #[inline(always)]
    fn row(&self, index: usize) -> &[f32] {
        let row = self.row + index as isize;
        let inside = (0..(self.plane.len() / self.width) as isize).contains(&row);
        if inside { &self.plane[row as usize * self.width..][..self.width] } else { &[] }
    }
}

/// A row of `Bᵀ d`, even and odd columns of its tiles and of the next ones, times `B`: to the frequencies that
/// begin at `to`.
#[inline(always)]
fn input_row([even, odd, next_even, next_odd]: [Lanes; 4], to: &mut [f32], stride: usize) {
    *lanes_mut(to, 0) = subtract(&even, &next_even);
    *lanes_mut(to, stride) = add(&odd, &next_even);
    *lanes_mut(to, 2 * stride) = subtract(&next_even, &odd);
    *lanes_mut(to, 3 * stride) = subtract(&odd, &next_odd);
}

/// Sums of two rows of pixels, as [`input_row`] takes them.
#[inline(always)]
fn sums(a: &Pixels, b: &Pixels, at: usize) -> [Lanes; 4] {
    let of = |a: &[f32], b: &[f32], at: usize| add(lanes(a, at), lanes(b, at));
    [
        of(&a.even, &b.even, at),
        of(&a.odd, &b.odd, at),
        of(&a.even, &b.even, at + 1),
        of(&a.odd, &b.odd, at + 1),
    ]
}

/// Differences of two rows of pixels.
#[inline(always)]
fn differences(a: &Pixels, b: &Pixels, at: usize) -> [Lanes; 4] {
    let of = |a: &[f32], b: &[f32], at: usize| subtract(lanes(a, at), lanes(b, at));
    [
        of(&a.even, &b.even, at),
        of(&a.odd, &b.odd, at),
        of(&a.even, &b.even, at + 1),
        of(&a.odd, &b.odd, at + 1),
    ]
}

/// A row of `A gy`, even and odd columns, times `Aᵀ`.
#[inline(always)]
fn gradient_row(even: &Lanes, odd: &Lanes, to: &mut [f32], stride: usize) {
    *lanes_mut(to, 0) = *even;
    *lanes_mut(to, stride) = add(even, odd);
    *lanes_mut(to, 2 * stride) = subtract(even, odd);
    *lanes_mut(to, 3 * stride) = subtract(&[0.0; LANES], odd);
}

/// Four rows times a row of `Aᵀ`.
#[inline(always)]
fn upper(m: &[Lanes; 4]) -> Lanes {
    add(&add(&m[0], &m[1]), &m[2])
}

#[inline(always)]
fn lower(m: &[Lanes; 4]) -> Lanes {
    subtract(&subtract(&m[1], &m[2]), &m[3])
}

vectorised! {
    /// `Bᵀ d B` of `count` tiles; element `f` of tile `t` goes to `to[f * stride + t]`, and something to at most
    /// 15 places behind the last tile.
    pub fn transform_input(rows: &mut Rows, from: &Place, count: usize, to: &mut [f32], stride: usize) {
        for first in (0..count).step_by(WIDTH) {
            let n = (count - first).min(WIDTH);
            for (index, pixels) in rows.0.iter_mut().enumerate() {
                pixels.load(from.row(index), from.column + 2 * first as isize, n + 1);
            }
            let [r0, r1, r2, r3] = &rows.0;
            for at in (0..n).step_by(LANES) {
                let to = &mut to[first + at..];
                input_row(differences(r0, r2, at), to, stride);
                input_row(sums(r1, r2, at), &mut to[4 * stride..], stride);
                input_row(differences(r2, r1, at), &mut to[8 * stride..], stride);
                input_row(differences(r1, r3, at), &mut to[12 * stride..], stride);
            }
        }
    }

    /// `A gy Aᵀ` of `count` tiles, as [`transform_input`].
    pub fn transform_gradient(rows: &mut Rows, from: &Place, count: usize, to: &mut [f32], stride: usize) {
        for first in (0..count).step_by(WIDTH) {
            let n = (count - first).min(WIDTH);
            for (index, pixels) in rows.0[..2].iter_mut().enumerate() {
                pixels.load(from.row(index), from.column + 2 * first as isize, n);
            }
            let [r0, r1, ..] = &rows.0;
            for at in (0..n).step_by(LANES) {
                let to = &mut to[first + at..];
                let (even, odd) = (lanes(&r0.even, at), lanes(&r0.odd, at));
                let (even1, odd1) = (lanes(&r1.even, at), lanes(&r1.odd, at));
                gradient_row(even, odd, to, stride);
                gradient_row(&add(even, even1), &add(odd, odd1), &mut to[4 * stride..], stride);
                gradient_row(&subtract(even, even1), &subtract(odd, odd1), &mut to[8 * stride..], stride);
                let zero = [0.0; LANES];
                gradient_row(&subtract(&zero, even1), &subtract(&zero, odd1), &mut to[12 * stride..], stride);
            }
        }
    }

    /// `Aᵀ m A + bias` of a row of tiles: `to` has the one or two rows of `width` pixels that lie in the image. Element
    /// `f` of tile `t` is `from[f * stride + t]`; up to 15 more are read.
    pub fn transform_output(from: &[f32], stride: usize, bias: f32, to: &mut [f32], width: usize) {
        let (top, bottom) = to.split_at_mut(width);
        for at in (0..width.div_ceil(2)).step_by(LANES) {
            let (mut over, mut under) = ([[0.0f32; LANES]; 4], [[0.0f32; LANES]; 4]);
            for (j, (over, under)) in over.iter_mut().zip(&mut under).enumerate() {
                let mut column = [[0.0f32; LANES]; 4];
                for (i, row) in column.iter_mut().enumerate() {
                    *row = *lanes(from, (4 * i + j) * stride + at);
                }
                *over = upper(&column);
                *under = lower(&column);
            }
            write_pairs(&over, bias, top, 2 * at);
            if !bottom.is_empty() {
                write_pairs(&under, bias, bottom, 2 * at);
            }
        }
    }
}

/// A row of `Aᵀ m`, times `A`, to pixels from `at` on, as many as there are.
#[inline(always)]
fn write_pairs(sums: &[Lanes; 4], bias: f32, to: &mut [f32], at: usize) {
    let (even, odd) = (upper(sums), lower(sums));
    let mut pairs = [0.0f32; 2 * LANES];
    for k in 0..LANES {
        pairs[2 * k] = even[k] + bias;
        pairs[2 * k + 1] = odd[k] + bias;
    }
    let to = &mut to[at..];
    match to.first_chunk_mut::<{ 2 * LANES }>() {
        Some(to) => *to = pairs,
        None => to.copy_from_slice(&pairs[..to.len()]),
    }
}
