//! The one place with pointers: matrix products by the crate `gemm`, behind checked views.
//!
//! For a given shape `gemm` multiplies in the same order whatever the number of threads: they
//! share rows and columns of the result, never a sum.

use gemm::Parallelism;

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
    data: &'a mut [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// As [`Matrix::new`]; rows must not overlap.
    ///
    /// # Panics
    /// When the slice is too short for the shape, or rows overlap.
    pub fn new(data: &'a mut [f32], (rows, columns): (usize, usize), row_stride: usize) -> Self {
        check(data.len(), (rows, columns), row_stride);
        assert!(rows <= 1 || row_stride >= columns, "rows of the product overlap");
        Self { data, rows, columns, row_stride }
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
    assert_eq!((out.rows, out.columns), (lhs.rows, rhs.columns), "shape of the product");
    assert_eq!(lhs.columns, rhs.rows, "shapes of the factors");
    let parallelism = if threads <= 1 { Parallelism::None } else { Parallelism::Rayon(threads) };
    let add = product == Product::Add;
    // SAFETY: every element that the three shapes and strides name lies in its slice (`check`, and
    // `transposed` swaps both together), `out` is borrowed mutably so it aliases neither factor,
    // and no two elements of `out` share an address (`MatrixMut::new`). Strides fit `isize`
    // because they are less than the length of a slice, or multiply an index that is only 0.
    unsafe {
        gemm::gemm(
            out.rows,
            out.columns,
            lhs.columns,
            out.data.as_mut_ptr(),
            1,
            out.row_stride as isize,
            add,
            lhs.data.as_ptr(),
            lhs.column_stride as isize,
            lhs.row_stride as isize,
            rhs.data.as_ptr(),
            rhs.column_stride as isize,
            rhs.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
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
    #[should_panic(expected = "does not fit")]
    fn a_short_slice_is_refused() {
        let _ = Matrix::new(&[0.0; 5], (2, 3), 3);
    }
}
