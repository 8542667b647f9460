//! Transposed copies of weights and of their gradients. `gemm` packs a factor whose sums do not
//! run along its rows anew in every product; here it is turned once for all products of a call.

use crate::cpu::chunks;

/// Rows and columns of a square that stays in the first-level cache.
const SQUARE: usize = 32;

/// `to[column, row] = from[row, column]`, or adds it to what is there; `from` is `rows` x
/// `columns`.
pub fn transpose(
    threads: usize,
    from: &[f32],
    rows: usize,
    columns: usize,
    to: &mut [f32],
    add: bool,
) {
    let threads = chunks::worth(threads, to.len());
    chunks::for_each(threads, to, SQUARE * rows, |strip, to| {
        let strip = strip * SQUARE;
        for first in (0..rows).step_by(SQUARE) {
            let end = (first + SQUARE).min(rows);
            for (column, to) in (strip..columns).zip(to.chunks_exact_mut(rows)) {
                let from = from[first * columns + column..].iter().step_by(columns);
                for (to, from) in to[first..end].iter_mut().zip(from) {
                    *to = if add { *to + from } else { *from };
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_finds_its_place() {
        for (rows, columns) in [(1, 1), (33, 70), (5, 200), (64, 32)] {
            let from: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
            let mut to = vec![1.0; rows * columns];
            transpose(1, &from, rows, columns, &mut to, true);
            transpose(1, &to.clone(), columns, rows, &mut to, false);
            let expected: Vec<f32> = from.iter().map(|x| x + 1.0).collect();
            assert_eq!(to, expected, "{rows} x {columns}");
        }
    }
}
