//! PowerSGD (Vogels et al. 2019): a matrix as the product of two thin ones.
//!
//! One step of power iteration: P = M Q, P orthogonal by columns, Q = Mᵀ P; M is near P Qᵀ. Q of
//! this step starts the next one. Needs [`super::feedback::ErrorFeedback`].
//!
//! M rows x columns, P rows x rank, Q columns x rank, all by rows; 2 rank M operations each. A tensor
//! that is not finite has NaN for P and Q, and leaves the state. Wire: P, Q; or the values as they
//! are, if P and Q are not less than half of them.

use super::wire::{all_finite, read_f32s, write_f32s};
use super::{Codec, CodecError, wire};

/// A tensor by two factors of low rank.
#[derive(Clone, Debug)]
pub struct PowerSgd {
    values: usize,
    columns: usize,
    rank: usize,
    p: Vec<f32>,
    q: Vec<f32>,
}

impl PowerSgd {
    /// For `values` values without a shape, as a matrix that is as square as possible; its last row
    /// may be incomplete.
    pub fn flat(values: usize, rank: u32) -> Result<Self, CodecError> {
        Self::new(values, side(values as u64) as usize, rank)
    }

    fn new(values: usize, columns: usize, rank: u32) -> Result<Self, CodecError> {
        if rank == 0 {
            let what = "rank 0 sends nothing: take 1 or more";
            return Err(CodecError::Settings { codec: "power-sgd", what });
        }
        let (columns, rank) = (columns.max(1), rank as usize);
        let mut codec = Self { values, columns, rank, p: vec![], q: vec![] };
        if small_enough(values as u64, columns as u64, rank as u64) {
            codec.p = vec![0.0; values.div_ceil(columns) * rank];
            codec.q = vec![0.0; columns * rank];
        }
        Ok(codec)
    }

    /// Whether the factors are small enough to send them.
    fn pays(&self) -> bool {
        !self.q.is_empty()
    }

    /// P = M Q of the gradient `values`.
    fn project(&mut self, values: &[f32]) {
        self.prepare();
        let rank = self.rank;
        for (row, p) in values.chunks(self.columns).zip(self.p.chunks_mut(rank)) {
            p.fill(0.0);
            for (value, q) in row.iter().zip(self.q.chunks(rank)) {
                for (p, q) in p.iter_mut().zip(q) {
                    *p += value * q;
                }
            }
        }
    }

    /// Makes P orthogonal and Q = Mᵀ P.
    fn project_back(&mut self, values: &[f32]) {
        let rank = self.rank;
        orthogonalise(&mut self.p, rank);
        self.q.fill(0.0);
        for (row, p) in values.chunks(self.columns).zip(self.p.chunks(rank)) {
            for (value, q) in row.iter().zip(self.q.chunks_mut(rank)) {
                for (q, p) in q.iter_mut().zip(p) {
                    *q += value * p;
                }
            }
        }
    }

    /// Makes Q orthogonal; columns that are zero, as all are before the first step and some after a
    /// gradient of lower rank, start anew, the same on every rank.
    fn prepare(&mut self) {
        orthogonalise(&mut self.q, self.rank);
        for column in 0..self.rank {
            if self.q.iter().skip(column).step_by(self.rank).all(|q| *q == 0.0) {
                for (row, q) in self.q.chunks_mut(self.rank).enumerate() {
                    q[column] = noise(row as u64, column as u64);
                }
            }
        }
        orthogonalise(&mut self.q, self.rank);
    }

    fn check(&self, got: usize) -> Result<(), CodecError> {
        if got == self.values {
            return Ok(());
        }
        Err(CodecError::WrongCount { codec: self.name(), expected: self.values, got })
    }
}

/// Columns of the squarest matrix that holds so many values.
fn side(values: u64) -> u64 {
    let root = values.isqrt();
    root + u64::from(root * root < values)
}

/// Whether P and Q together have less than half of the values (PyTorch's `min_compression_rate`).
fn small_enough(values: u64, columns: u64, rank: u64) -> bool {
    let both = values.div_ceil(columns).saturating_add(columns).saturating_mul(rank);
    both.saturating_mul(2) < values
}

/// Bytes on the wire of `values` values without a shape.
pub(super) fn flat_wire_bytes(values: u64, rank: u32) -> u64 {
    let (columns, rank) = (side(values).max(1), u64::from(rank));
    if small_enough(values, columns, rank) {
        return 4 * rank * (values.div_ceil(columns) + columns);
    }
    4 * values
}

/// `values[r, c] = Σ_k p[r, k] q[c, k]`.
fn product(
    values: &mut [f32],
    columns: usize,
    rank: usize,
    p: impl Fn(usize) -> f32,
    q: impl Fn(usize) -> f32,
) {
    for (r, row) in values.chunks_mut(columns).enumerate() {
        for (c, value) in row.iter_mut().enumerate() {
            *value = (0..rank).map(|k| p(r * rank + k) * q(c * rank + k)).sum();
        }
    }
}

/// Gram-Schmidt by columns, as PyTorch's hook does it: each column is divided by its norm and taken
/// out of those behind it; a column of norm zero stays zero. `matrix` by rows, `columns` wide.
fn orthogonalise(matrix: &mut [f32], columns: usize) {
    for i in 0..columns {
        let squares: f64 = matrix.chunks(columns).map(|r| f64::from(r[i]) * f64::from(r[i])).sum();
        let scale = if squares > 0.0 { squares.sqrt().recip() } else { 0.0 };
        for row in matrix.chunks_mut(columns) {
            row[i] = (f64::from(row[i]) * scale) as f32;
        }
        for j in i + 1..columns {
            let dot =
                matrix.chunks(columns).map(|r| f64::from(r[i]) * f64::from(r[j])).sum::<f64>();
            for row in matrix.chunks_mut(columns) {
                row[j] -= dot as f32 * row[i];
            }
        }
    }
}

/// A number in [-1, 1) for a place, by SplitMix64.
fn noise(row: u64, column: u64) -> f32 {
    let mut z = (row << 32 | column).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

impl Codec for PowerSgd {
    fn name(&self) -> &'static str {
        "power-sgd"
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        if self.pays() { 4 * (self.p.len() + self.q.len()) as u64 } else { 4 * values }
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        self.check(values.len())?;
        let wire = wire::space(self, values.len(), wire)?;
        if !self.pays() {
            write_f32s(values, wire);
        } else if all_finite(values) {
            self.project(values);
            self.project_back(values);
            let (p, q) = wire.split_at_mut(4 * self.p.len());
            write_f32s(&self.p, p);
            write_f32s(&self.q, q);
        } else {
            wire.as_chunks_mut().0.fill(f32::NAN.to_le_bytes());
        }
        Ok(wire.len())
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        self.check(values.len())?;
        wire::whole(self, wire, values.len())?;
        if !self.pays() {
            read_f32s(wire, values);
            return Ok(());
        }
        let (p, q) = wire.split_at(4 * self.p.len());
        let (p, q) = (p.as_chunks::<4>().0, q.as_chunks::<4>().0);
        let number = |bytes: [u8; 4]| f32::from_le_bytes(bytes);
        product(values, self.columns, self.rank, |i| number(p[i]), |i| number(q[i]));
        Ok(())
    }

    fn visit_state(&mut self, visit: &mut dyn FnMut(&'static str, &mut [f32])) {
        if self.pays() {
            visit("q", &mut self.q);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(count: usize, seed: usize) -> Vec<f32> {
        let value = |i: usize| ((i * 7919 + seed * 104_729) % 10_007) as f32 / 10_007.0 - 0.5;
        (0..count).map(|i| value(i).powi(3)).collect()
    }

    #[test]
    fn columns_become_orthonormal() {
        let mut matrix = wave(50 * 3, 4);
        orthogonalise(&mut matrix, 3);
        let dot = |i: usize, j: usize| matrix.chunks(3).map(|r| r[i] * r[j]).sum::<f32>();
        for i in 0..3 {
            for j in 0..3 {
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((dot(i, j) - expected).abs() < 1e-5, "columns {i} and {j}: {}", dot(i, j));
            }
        }
        let mut zero = vec![0.0; 6];
        orthogonalise(&mut zero, 2);
        assert_eq!(zero, vec![0.0; 6]);
    }
}
