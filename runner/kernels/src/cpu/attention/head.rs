//! One head's attention, a block of queries at a time. With `L` the saved logarithm of a query's
//! sum of exponentials:
//!
//! ```text
//! forward   S = scale q kᵀ    P = exp(S - max) / Σ    y = P v    L = max + log Σ
//! backward  P = exp(S - L)    gv += Pᵀ gy    D = Σ gy y by rows
//!           gS = scale P (gy vᵀ - D)    gq = gS k    gk += gSᵀ q
//! ```
//!
//! Of a causal head, keys beyond the block's last query are left out of all products.

use crate::cpu::matmul::{Matrix, MatrixMut, Product, matmul};
use crate::cpu::softmax::{row_dot, row_exp_in_place, row_max, row_scale};
use crate::cpu::vector::vectorised;
use std::ops::Range;

/// Sizes of a head.
pub struct Head {
    /// Queries.
    pub n: usize,
    /// Keys.
    pub s: usize,
    /// Elements of a query and of a key.
    pub d: usize,
    /// Elements of a value.
    pub e: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Whether query `i` sees only keys `j <= i`.
    pub causal: bool,
    /// Queries of a block.
    pub rows: usize,
}

/// Vectors that lie `stride` apart.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub data: &'a [f32],
    pub stride: usize,
}

impl<'a> Rows<'a> {
    fn matrix(&self, rows: Range<usize>, columns: usize) -> Matrix<'a> {
        let data = &self.data[rows.start * self.stride..];
        Matrix::new(data, (rows.len(), columns), self.stride)
    }

    fn row(&self, row: usize, columns: usize) -> &'a [f32] {
        &self.data[row * self.stride..][..columns]
    }
}

/// Where the gradients of queries, keys and values go.
pub enum Gradients<'a> {
    /// Each to its own tensor of that stride, empty when nobody wants it.
    Separate([(&'a mut [f32], usize); 3]),
    /// Into one tensor, from these places in its first position on.
    Packed { data: &'a mut [f32], starts: [usize; 3], stride: usize },
}

impl Gradients<'_> {
    fn matrix(
        &mut self,
        which: usize,
        rows: Range<usize>,
        columns: usize,
    ) -> Option<MatrixMut<'_>> {
        let (data, start, stride) = match self {
            Self::Separate(parts) => {
                let (data, stride) = &mut parts[which];
                (&mut **data, 0, *stride)
            }
            Self::Packed { data, starts, stride } => (&mut **data, starts[which], *stride),
        };
        if data.is_empty() {
            return None;
        }
        let data = &mut data[start + rows.start * stride..];
        Some(MatrixMut::new(data, (rows.len(), columns), stride))
    }
}

vectorised! {
    /// `p = exp(scale p - log_sum)`
    fn probabilities(p: &mut [f32], scale: f32, log_sum: f32) {
        for p in p.iter_mut() {
            *p = crate::cpu::math::exp(*p * scale - log_sum);
        }
    }

    /// `g = scale p (g - mean)`
    fn score_gradient(g: &mut [f32], p: &[f32], scale: f32, mean: f32) {
        g.iter_mut().zip(p).for_each(|(g, p)| *g = scale * p * (*g - mean));
    }
}

impl Head {
    /// Words that a block's scores and their gradients take.
    pub fn scratch(&self) -> usize {
        2 * self.rows * self.s
    }

    /// Blocks of queries, and how many keys each looks at.
    fn blocks(&self) -> impl Iterator<Item = (Range<usize>, usize)> + use<> {
        let (n, s, rows, causal) = (self.n, self.s, self.rows, self.causal);
        (0..n).step_by(rows).map(move |first| {
            let end = (first + rows).min(n);
            (first..end, if causal { end.min(s) } else { s })
        })
    }

    /// Keys that a query sees.
    fn seen(&self, query: usize) -> usize {
        if self.causal { (query + 1).min(self.s) } else { self.s }
    }

    /// Writes the output, of stride `y.1`, and a log-sum-exp per query.
    pub fn forward(
        &self,
        [q, k, v]: [Rows; 3],
        y: (&mut [f32], usize),
        saved: &mut [f32],
        scratch: &mut [f32],
        threads: usize,
    ) {
        let mut sums = [0.0; MOST_ROWS];
        for (queries, keys) in self.blocks() {
            let scores = &mut scratch[..queries.len() * keys];
            let shape = (queries.len(), keys);
            let (lhs, rhs) = (q.matrix(queries.clone(), self.d), k.matrix(0..keys, self.d));
            let out = MatrixMut::new(scores, shape, keys);
            matmul(out, lhs, rhs.transposed(), Product::Overwrite, threads);
            for ((query, row), sum) in
                queries.clone().zip(scores.chunks_exact_mut(keys)).zip(&mut sums)
            {
                let (seen, hidden) = row.split_at_mut(self.seen(query));
                hidden.fill(0.0);
                row_scale(seen, self.scale);
                let max = row_max(seen);
                *sum = row_exp_in_place(seen, 1.0, max);
                saved[query] = max + sum.ln();
            }
            let y = (&mut y.0[queries.start * y.1..], y.1);
            let out = MatrixMut::new(&mut *y.0, (queries.len(), self.e), y.1);
            let weights = Matrix::new(scores, shape, keys);
            matmul(out, weights, v.matrix(0..keys, self.e), Product::Overwrite, threads);
            // Dividing the sums is less work than dividing the weights.
            for (row, sum) in y.0.chunks_mut(y.1).zip(&sums[..queries.len()]) {
                row_scale(&mut row[..self.e], 1.0 / sum);
            }
        }
    }

    /// Writes the gradient of the queries and adds to those of keys and values.
    pub fn input_gradient(
        &self,
        [q, k, v, y, gy]: [Rows; 5],
        saved: &[f32],
        mut gradients: Gradients,
        scratch: &mut [f32],
        threads: usize,
    ) {
        let (weights, slopes) = scratch.split_at_mut(self.rows * self.s);
        for (queries, keys) in self.blocks() {
            let shape = (queries.len(), keys);
            let weights = &mut weights[..shape.0 * keys];
            let slopes = &mut slopes[..shape.0 * keys];
            let out = MatrixMut::new(&mut *weights, shape, keys);
            let rhs = k.matrix(0..keys, self.d).transposed();
            matmul(out, q.matrix(queries.clone(), self.d), rhs, Product::Overwrite, threads);
            let out = MatrixMut::new(&mut *slopes, shape, keys);
            let rhs = v.matrix(0..keys, self.e).transposed();
            matmul(out, gy.matrix(queries.clone(), self.e), rhs, Product::Overwrite, threads);
            let rows = weights.chunks_exact_mut(keys).zip(slopes.chunks_exact_mut(keys));
            for (query, (p, g)) in queries.clone().zip(rows) {
                let (p, hidden) = p.split_at_mut(self.seen(query));
                hidden.fill(0.0);
                g[p.len()..].fill(0.0);
                probabilities(p, self.scale, saved[query]);
                let mean = row_dot(gy.row(query, self.e), y.row(query, self.e));
                score_gradient(&mut g[..p.len()], p, self.scale, mean);
            }
            let weights = Matrix::new(weights, shape, keys);
            let slopes = Matrix::new(slopes, shape, keys);
            if let Some(gq) = gradients.matrix(0, queries.clone(), self.d) {
                matmul(gq, slopes, k.matrix(0..keys, self.d), Product::Overwrite, threads);
            }
            if let Some(gk) = gradients.matrix(1, 0..keys, self.d) {
                let q = q.matrix(queries.clone(), self.d);
                matmul(gk, slopes.transposed(), q, Product::Add, threads);
            }
            if let Some(gv) = gradients.matrix(2, 0..keys, self.e) {
                let gy = gy.matrix(queries.clone(), self.e);
                matmul(gv, weights.transposed(), gy, Product::Add, threads);
            }
        }
    }
}

/// Most queries in a block.
const MOST_ROWS: usize = 64;
