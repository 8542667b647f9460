//! Batched matrix products: `a [.., m, k]`, `b [.., k, n]` (or `[.., n, k]`) to `[.., m, n]`.

use super::chunks;
use super::matmul::{Matrix, MatrixMut, Product, matmul};
use crate::{Call, Operands};
use pipewright_core::graph::Op;

struct ProductShape {
    m: usize,
    k: usize,
    n: usize,
    transpose_b: bool,
}

impl ProductShape {
    fn new(call: &Call) -> Self {
        let Op::MatMul { transpose_b } = call.op else {
            unreachable!("{} is no matrix product", call.op.name());
        };
        let last =
            |shape: &[u64]| [shape[shape.len() - 2] as usize, shape[shape.len() - 1] as usize];
        let ([m, k], [_, n]) = (last(&call.inputs[0].shape), last(&call.output.shape));
        Self { m, k, n, transpose_b: *transpose_b }
    }

    fn a<'a>(&self, data: &'a [f32], i: usize) -> Matrix<'a> {
        Matrix::new(&data[i * self.m * self.k..], (self.m, self.k), self.k)
    }

    /// `b` as `[k, n]`, however it lies.
    fn b<'a>(&self, data: &'a [f32], i: usize) -> Matrix<'a> {
        let data = &data[i * self.k * self.n..];
        match self.transpose_b {
            true => Matrix::new(data, (self.n, self.k), self.k).transposed(),
            false => Matrix::new(data, (self.k, self.n), self.n),
        }
    }

    fn y<'a>(&self, data: &'a [f32], i: usize) -> Matrix<'a> {
        Matrix::new(&data[i * self.m * self.n..], (self.m, self.n), self.n)
    }
}

/// Runs `work(index, product, threads in it)` for every product of `shape`; several products are
/// shared out among threads, a lone one is cut by the product itself.
pub(super) fn each(
    call: &Call,
    out: &mut [f32],
    shape: (usize, usize),
    work: impl Fn(usize, MatrixMut, usize) + Sync,
) {
    let len = shape.0 * shape.1;
    let threads = chunks::worth(call.threads, out.len());
    let (lanes, inside) = if out.len() / len >= threads { (threads, 1) } else { (1, threads) };
    chunks::for_each(lanes, out, len, |i, out| {
        work(i, MatrixMut::new(out, shape, shape.1), inside);
    });
}

pub fn forward(call: &Call, operands: Operands) {
    let shape = ProductShape::new(call);
    let (a, b) = (operands.reads[0], operands.reads[1]);
    each(call, operands.writes[0], (shape.m, shape.n), |i, y, threads| {
        matmul(y, shape.a(a, i), shape.b(b, i), Product::Overwrite, threads);
    });
}

/// `ga = gy bᵀ`, `gb = aᵀ gy`
pub fn input_gradient(call: &Call, operands: Operands) {
    let shape = ProductShape::new(call);
    let [a, b, gy] = operands.reads else {
        unreachable!("a product's gradient reads both factors and gy");
    };
    let mut writes = operands.writes.iter_mut();
    if call.wants(0) {
        let ga = writes.next().expect("one gradient per wanted input");
        each(call, ga, (shape.m, shape.k), |i, ga, threads| {
            let (gy, b) = (shape.y(gy, i), shape.b(b, i));
            matmul(ga, gy, b.transposed(), Product::Overwrite, threads);
        });
    }
    if call.wants(1) {
        let gb = writes.next().expect("one gradient per wanted input");
        let (rows, columns) =
            if shape.transpose_b { (shape.n, shape.k) } else { (shape.k, shape.n) };
        each(call, gb, (rows, columns), |i, gb, threads| {
            let (gy, a) = (shape.y(gy, i), shape.a(a, i));
            let (lhs, rhs) =
                if shape.transpose_b { (gy.transposed(), a) } else { (a.transposed(), gy) };
            matmul(gb, lhs, rhs, Product::Overwrite, threads);
        });
    }
}
