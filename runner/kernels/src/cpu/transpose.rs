//! Transposition of matrices, tile by tile: whole cache lines in, whole vectors out.

/// Rows and columns of a tile: 8 numbers fill a vector of AVX, and half a cache line.
const TILE: usize = 8;

/// `into[c * into_stride + r] = from[r * from_stride + c]` for `rows` and `columns` of `from`.
///
/// # Panics
/// When a slice is too short for that.
pub fn transpose(
    from: &[f32],
    from_stride: usize,
    rows: usize,
    columns: usize,
    into: &mut [f32],
    into_stride: usize,
) {
    let (whole_rows, whole_columns) = (rows / TILE * TILE, columns / TILE * TILE);
    for r in (0..whole_rows).step_by(TILE) {
        for c in (0..whole_columns).step_by(TILE) {
            let into = &mut into[c * into_stride + r..];
            tile(&from[r * from_stride + c..], from_stride, into, into_stride);
        }
    }
    let mut single = |r: usize, c: usize| into[c * into_stride + r] = from[r * from_stride + c];
    (whole_rows..rows).for_each(|r| (0..columns).for_each(|c| single(r, c)));
    (0..whole_rows).for_each(|r| (whole_columns..columns).for_each(|c| single(r, c)));
}

/// One tile of both, whose first elements are those of the slices.
fn tile(from: &[f32], from_stride: usize, into: &mut [f32], into_stride: usize) {
    let (from, into) =
        (&from[..(TILE - 1) * from_stride + TILE], &mut into[..(TILE - 1) * into_stride + TILE]);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX, and both slices have a whole tile.
        return unsafe { avx(from.as_ptr(), from_stride, into.as_mut_ptr(), into_stride) };
    }
    for r in 0..TILE {
        for c in 0..TILE {
            into[c * into_stride + r] = from[r * from_stride + c];
        }
    }
}

/// A tile in 8 vectors: pairs of rows, pairs of pairs, then halves are exchanged.
///
/// # Safety
/// The processor has AVX; `from` and `into` have [`TILE`] rows of [`TILE`] elements, as far apart as said.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn avx(from: *const f32, from_stride: usize, into: *mut f32, into_stride: usize) {
    use std::arch::x86_64::*;
    // SAFETY: rows of the tile, as the caller promises.
    let row: [__m256; TILE] =
        std::array::from_fn(|r| unsafe { _mm256_loadu_ps(from.add(r * from_stride)) });
    let pair: [__m256; TILE] = std::array::from_fn(|i| {
        let (a, b) = (row[i / 2 * 2], row[i / 2 * 2 + 1]);
        if i % 2 == 0 { _mm256_unpacklo_ps(a, b) } else { _mm256_unpackhi_ps(a, b) }
    });
    // Of four rows each: elements 0 and 4, 1 and 5, 2 and 6, 3 and 7.
    let four: [__m256; TILE] = std::array::from_fn(|i| {
        let (half, which) = (i / 4 * 4, i % 4);
        let (a, b) = (pair[half + which / 2], pair[half + 2 + which / 2]);
        if which % 2 == 0 {
            _mm256_shuffle_ps::<0b01_00_01_00>(a, b)
        } else {
            _mm256_shuffle_ps::<0b11_10_11_10>(a, b)
        }
    });
    for c in 0..TILE {
        let (a, b) = (four[c % 4], four[4 + c % 4]);
        let column = if c < 4 {
            _mm256_permute2f128_ps::<0x20>(a, b)
        } else {
            _mm256_permute2f128_ps::<0x31>(a, b)
        };
        // SAFETY: a row of the other tile, as the caller promises.
        unsafe { _mm256_storeu_ps(into.add(c * into_stride), column) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_where_it_belongs() {
        for (rows, columns) in [(1, 1), (8, 8), (7, 9), (16, 24), (21, 35), (64, 100)] {
            let (from_stride, into_stride) = (columns + 3, rows + 5);
            let from: Vec<f32> = (0..rows * from_stride).map(|i| i as f32).collect();
            let mut into = vec![-1.0; columns * into_stride];
            transpose(&from, from_stride, rows, columns, &mut into, into_stride);
            for (c, column) in into.chunks(into_stride).enumerate() {
                for (r, found) in column.iter().enumerate() {
                    let expected = if r < rows { from[r * from_stride + c] } else { -1.0 };
                    assert_eq!(*found, expected, "{rows} x {columns}: {r}, {c}");
                }
            }
        }
    }
}
