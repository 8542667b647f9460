//! The one place with pointers: matrix products by `gemm`, behind checked views.
//!
//! Threads share rows and columns of the result, never a sum. `gemm` has threads of its own, but
//! meets after every block of a sum, and packs factors on one of them.

use super::thread_pool::both;
use super::transpose::transpose;
use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

/// Tiles of `gemm`: parts that are multiples of them leave no thin edges between.
pub const COLUMN_TILE: usize = 64;
const ROW_TILE: usize = 24;

/// A product of so few rows and columns is summed in other blocks: parts stay larger.
const SMALL: usize = 64;

/// Multiplications below which one thread is as fast: some 5 microseconds.
const WORTH_SPLITTING: usize = 1 << 18;

/// Rows of a right-hand factor that are transposed at a time.
const PANEL_DEPTH: usize = 512;

/// Rows of a result from which on the transposed panels no longer pay: packing is little beside the product.
const MANY_ROWS: usize = 512;

/// A panel of so many rows and a tile of columns, or of fewer rows and more tiles: 128 KiB, which stay in the
/// second cache.
const PANEL: usize = PANEL_DEPTH * COLUMN_TILE;

thread_local! {
    static SCRATCH: RefCell<[f32; PANEL]> = const { RefCell::new([0.0; PANEL]) };
}

/// A matrix in a slice: element `(r, c)` is at `r * row_stride + c * column_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A row-major matrix of `rows` x `columns` whose rows begin `row_stride` elements apart.
    ///
    /// # Panics
    /// When the slice is too short for the shape.
    pub fn new(data: &'a [f32], (rows, columns): (usize, usize), row_stride: usize) -> Self {
        check(data.len(), (rows, columns), row_stride);
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// Rows before `row`, and from it on.
    fn cut_rows(self, row: usize) -> (Self, Self) {
        let below = &self.data[row * self.row_stride..];
        (Self { rows: row, ..self }, Self { data: below, rows: self.rows - row, ..self })
    }

    /// Columns before `column`, and from it on.
    fn cut_columns(self, column: usize) -> (Self, Self) {
        let (left, right) = self.transposed().cut_rows(column);
        (left.transposed(), right.transposed())
    }

    /// Some rows, none behind the last.
    fn rows(self, range: Range<usize>) -> Self {
        let data = &self.data[range.start * self.row_stride..];
        Self { data, rows: range.len(), ..self }
    }

    /// Some columns, none behind the last.
    fn columns(self, range: Range<usize>) -> Self {
        self.transposed().rows(range).transposed()
    }

    /// Rows become columns.
    pub fn transposed(self) -> Self {
        let Self { data, rows, columns, row_stride, column_stride } = self;
        Self {
            data,
            rows: columns,
            columns: rows,
            row_stride: column_stride,
            column_stride: row_stride,
        }
    }
}

/// A row-major matrix in a slice, to write to.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    // A pointer, because the columns of two parts lie between each other.
    data: *mut f32,
    rows: usize,
    columns: usize,
    row_stride: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: it is used as the mutable slice that it was made of, or as a part of it that no other
// matrix has.
unsafe impl Send for MatrixMut<'_> {}

impl<'a> MatrixMut<'a> {
    /// As [`Matrix::new`]; rows must not overlap.
    ///
    /// # Panics
    /// When the slice is too short for the shape, or rows overlap.
    pub fn new(data: &'a mut [f32], (rows, columns): (usize, usize), row_stride: usize) -> Self {
        check(data.len(), (rows, columns), row_stride);
        assert!(rows <= 1 || row_stride >= columns, "rows of the product overlap");
        Self { data: data.as_mut_ptr(), rows, columns, row_stride, slice: PhantomData }
    }

    /// Rows before `row`, and from it on, both with some.
    fn cut_rows(self, row: usize) -> (Self, Self) {
        assert!(0 < row && row < self.rows, "no cut");
        // SAFETY: the first element of a row that the matrix has.
        let below = unsafe { self.data.add(row * self.row_stride) };
        (Self { rows: row, ..self }, Self { data: below, rows: self.rows - row, ..self })
    }

    /// Some columns.
    fn columns(&mut self, range: Range<usize>) -> MatrixMut<'_> {
        assert!(range.start < range.end && range.end <= self.columns, "no columns");
        // SAFETY: an element of the first row.
        let data = unsafe { self.data.add(range.start) };
        MatrixMut { data, columns: range.len(), ..*self }
    }

    /// Columns before `column`, and from it on, both with some.
    fn cut_columns(self, column: usize) -> (Self, Self) {
        assert!(0 < column && column < self.columns, "no cut");
        // SAFETY: an element of the first row.
        let right = unsafe { self.data.add(column) };
        let columns = self.columns - column;
        (Self { columns: column, ..self }, Self { data: right, columns, ..self })
    }
}

/// Whether the last element of the matrix lies in a slice of `len`.
fn check(len: usize, (rows, columns): (usize, usize), row_stride: usize) {
    assert!(rows > 0 && columns > 0, "a matrix of {rows} x {columns} has no elements");
    let last = (rows - 1).checked_mul(row_stride).and_then(|end| end.checked_add(columns - 1));
    assert!(last.is_some_and(|last| last < len), "{rows} x {columns} does not fit {len} words");
}

/// What happens to the numbers that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// `out = lhs rhs`; what was there is not read.
    Overwrite,
    /// `out = out + lhs rhs`.
    Add,
}

/// `out = lhs rhs` or `out += lhs rhs`.
///
/// # Panics
/// When the shapes do not agree.
pub fn matmul(out: MatrixMut, lhs: Matrix, rhs: Matrix, product: Product, threads: usize) {
    // Of the whole product, so that its parts are summed in one way whatever the number of threads.
    let few = (2..MANY_ROWS).contains(&out.rows);
    let run =
        if few && rhs.row_stride == 1 && rhs.rows >= COLUMN_TILE { by_panels } else { multiply };
    share(out, lhs, rhs, threads, &|out, lhs, rhs| run(out, lhs, rhs, product));
}

/// As [`matmul`], with a right-hand factor whose columns are contiguous and so short that the library packs them as fast
/// as they could be transposed.
///
/// # Panics
/// As [`matmul`].
pub fn matmul_short(out: MatrixMut, lhs: Matrix, rhs: Matrix, product: Product, threads: usize) {
    share(out, lhs, rhs, threads, &|out, lhs, rhs| multiply(out, lhs, rhs, product));
}

fn share(
    out: MatrixMut,
    lhs: Matrix,
    rhs: Matrix,
    threads: usize,
    run: &(impl Fn(MatrixMut, Matrix, Matrix) + Sync),
) {
    assert_eq!((out.rows, out.columns), (lhs.rows, rhs.columns), "shape of the product");
    assert_eq!(lhs.columns, rhs.rows, "shapes of the factors");
    let work = out.rows * out.columns * lhs.columns;
    shared(out, lhs, rhs, if work < WORTH_SPLITTING { 1 } else { threads }, run);
}

/// Cuts the product over threads: columns as long as each thread has several tiles of them, for
/// `gemm` packs the right-hand factor anew in each part; then rows.
fn shared(
    out: MatrixMut,
    lhs: Matrix,
    rhs: Matrix,
    threads: usize,
    run: &(impl Fn(MatrixMut, Matrix, Matrix) + Sync),
) {
    let (rows, columns) = (out.rows, out.columns);
    let cut = |len: usize, tile: usize| (len * (threads / 2) / threads.max(1)) / tile * tile;
    let (row, column) = (cut(rows, ROW_TILE), cut(columns, COLUMN_TILE));
    if threads > 1 && column >= 2 * COLUMN_TILE {
        let ((left, right), (of_left, of_right)) =
            (out.cut_columns(column), rhs.cut_columns(column));
        both(
            || shared(left, lhs, of_left, threads / 2, run),
            || shared(right, lhs, of_right, threads - threads / 2, run),
        );
    } else if threads > 1 && row >= 2 * ROW_TILE && (columns > SMALL || row > SMALL) {
        let ((top, bottom), (of_top, of_bottom)) = (out.cut_rows(row), lhs.cut_rows(row));
        both(
            || shared(top, of_top, rhs, threads / 2, run),
            || shared(bottom, of_bottom, rhs, threads - threads / 2, run),
        );
    } else {
        run(out, lhs, rhs);
    }
}

/// A product with a factor whose columns are contiguous, as weights of linear layers are. It is transposed panel by
/// panel: `gemm` would pick its elements one by one, each from another cache line.
fn by_panels(mut out: MatrixMut, lhs: Matrix, rhs: Matrix, product: Product) {
    let (depth, columns) = (rhs.rows, rhs.columns);
    let stride = PANEL / depth.min(PANEL_DEPTH) / COLUMN_TILE * COLUMN_TILE;
    SCRATCH.with_borrow_mut(|panel| {
        for column in (0..columns).step_by(stride) {
            let range = column..columns.min(column + stride);
            for row in (0..depth).step_by(PANEL_DEPTH) {
                let rows = row..depth.min(row + PANEL_DEPTH);
                let part = rhs.columns(range.clone()).rows(rows.clone());
                let shape = (part.rows, part.columns);
                transpose(part.data, part.column_stride, part.columns, part.rows, panel, stride);
                let part = Matrix::new(&*panel, shape, stride);
                let product = if row == 0 { product } else { Product::Add };
                multiply(out.columns(range.clone()), lhs.columns(rows), part, product);
            }
        }
    });
}

fn multiply(out: MatrixMut, lhs: Matrix, rhs: Matrix, product: Product) {
    let (down, across) = (out.row_stride as isize, 1);
    let left = (lhs.data.as_ptr(), lhs.column_stride as isize, lhs.row_stride as isize);
    let right = (rhs.data.as_ptr(), rhs.column_stride as isize, rhs.row_stride as isize);
    let turned = |(data, column, row)| (data, row, column);
    // The kernels want a result whose columns are far apart: rows that are become columns.
    let (rows, columns, (column, row), (left, right)) = if across < down {
        (out.columns, out.rows, (down, across), (turned(right), turned(left)))
    } else {
        (out.rows, out.columns, (across, down), (left, right))
    };
    let add = product == Product::Add;
    // SAFETY: every element that the three shapes and strides name is one that `Matrix::new` or
    // `MatrixMut::new` found in its slice (`check`; `transposed` swaps shape and strides together,
    // as does the turn above, cuts name fewer elements), `out` is borrowed mutably so it aliases
    // neither factor, no two elements of `out` share an address (`MatrixMut::new`), and the two
    // sides of a cut share none. Strides fit `isize` because they are less than the length of a
    // slice, or multiply an index that is only 0; none is negative.
    unsafe {
        get_gemm_fn()(
            rows,
            columns,
            lhs.columns,
            out.data,
            column,
            row,
            add,
            left.0,
            left.1,
            left.2,
            right.0,
            right.1,
            right.2,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::thread_pool;
    use super::*;

    #[test]
    fn a_product_by_hand() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.0, 2.0, -1.0, 1.0, 1.0]);
        let mut out = [10.0; 5];
        let (lhs, rhs) = (Matrix::new(&a, (2, 3), 3), Matrix::new(&b, (2, 3), 3).transposed());
        matmul(MatrixMut::new(&mut out, (2, 2), 3), lhs, rhs, Product::Add, 1);
        assert_eq!(out, [17.0, 14.0, 10.0, 26.0, 17.0]);
        matmul(MatrixMut::new(&mut out, (2, 2), 3), lhs, rhs, Product::Overwrite, 1);
        assert_eq!(out, [7.0, 4.0, 10.0, 16.0, 7.0]);
    }

    #[test]
    fn the_same_bits_whatever_the_number_of_threads() {
        let numbers = |n: usize| -> Vec<f32> { (0..n).map(|i| (i as f32 * 0.37).sin()).collect() };
        let run = move || {
            thread_pool::join(4).expect("threads");
            for (m, n, k) in [
                (100, 1000, 600),
                (1000, 130, 70),
                (300, 70, 2000),
                (7, 500, 900),
                (700, 500, 1100),
            ] {
                let (a, b) = (numbers(m * k), numbers(k * n));
                let outs = [1, 2, 3, 4].map(|threads| {
                    let mut out = numbers(m * n);
                    let (lhs, rhs) = (Matrix::new(&a, (m, k), k), Matrix::new(&b, (n, k), k));
                    let to = MatrixMut::new(&mut out, (m, n), n);
                    matmul(to, lhs, rhs.transposed(), Product::Add, threads);
                    out
                });
                assert!(outs.iter().all(|out| *out == outs[0]), "{m} x {n} x {k}");
            }
        };
        std::thread::spawn(run).join().expect("no panic");
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_short_slice_is_refused() {
        let _ = Matrix::new(&[0.0; 5], (2, 3), 3);
    }
}
