//! Sums, differences, products and quotients of two tensors whose shapes broadcast, and means
//! over axes, which are the same thing backwards.
//!
//! One sample is walked along the axes of the larger tensor (see [`strides`](super::strides)).
//! Where the gradient's tensor repeats, contributions are added in the order of the walk.

use super::chunks;
use super::strides::{Walk, broadcast, sizes};
use super::sums::sum;
use super::vector::vectorised;
use crate::{Call, Operands};
use pipewright_core::graph::Op;
use smallvec::SmallVec;

/// One number from an element of each operand and, in gradients, of the output's gradient.
trait Combine {
    fn at(a: f32, b: f32, g: f32) -> f32;
}

/// Defines combinations: `name: |a, b, g| value`.
macro_rules! combinations {
    ($($name:ident: |$a:pat_param, $b:pat_param, $g:pat_param| $value:expr;)*) => {$(
        struct $name;

        impl Combine for $name {
            #[inline(always)]
            fn at($a: f32, $b: f32, $g: f32) -> f32 {
                $value
            }
        }
    )*};
}

combinations! {
    Sum: |a, b, _| a + b;
    Difference: |a, b, _| a - b;
    Product: |a, b, _| a * b;
    Quotient: |a, b, _| a / b;
    Left: |a, _, _| a;
    Same: |_, _, g| g;
    Negative: |_, _, g| -g;
    ProductLeft: |_, b, g| g * b;
    ProductRight: |a, _, g| g * a;
    QuotientLeft: |_, b, g| g / b;
    QuotientRight: |a, b, g| -g * a / (b * b);
}

vectorised! {
    /// `out = C(a, b, 0)`; `a` and `b` are of the output's length or one element that repeats.
    fn values<C: Combine>(out: &mut [f32], a: &[f32], b: &[f32]) {
        if a.len() == out.len() && b.len() == out.len() {
            for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                *out = C::at(*a, *b, 0.0);
            }
        } else if a.len() == out.len() {
            let b = b[0];
            for (out, a) in out.iter_mut().zip(a) {
                *out = C::at(*a, b, 0.0);
            }
        } else if b.len() == out.len() {
            let a = a[0];
            for (out, b) in out.iter_mut().zip(b) {
                *out = C::at(a, *b, 0.0);
            }
        } else {
            out.fill(C::at(a[0], b[0], 0.0));
        }
    }

    /// `out = C(a, b, g)`, likewise.
    fn terms<C: Combine>(out: &mut [f32], a: &[f32], b: &[f32], g: &[f32]) {
        let g = &g[..out.len()];
        if a.len() == out.len() && b.len() == out.len() {
            for (((out, a), b), g) in out.iter_mut().zip(a).zip(b).zip(g) {
                *out = C::at(*a, *b, *g);
            }
        } else if a.len() == out.len() {
            let b = b[0];
            for ((out, a), g) in out.iter_mut().zip(a).zip(g) {
                *out = C::at(*a, b, *g);
            }
        } else if b.len() == out.len() {
            let a = a[0];
            for ((out, b), g) in out.iter_mut().zip(b).zip(g) {
                *out = C::at(a, *b, *g);
            }
        } else {
            let (a, b) = (a[0], b[0]);
            for (out, g) in out.iter_mut().zip(g) {
                *out = C::at(a, b, *g);
            }
        }
    }

    fn add(out: &mut [f32], terms: &[f32]) {
        out.iter_mut().zip(terms).for_each(|(out, term)| *out += term);
    }

    fn scale(out: &mut [f32], factor: f32) {
        out.iter_mut().for_each(|out| *out *= factor);
    }
}

/// Elements that are combined before they are added to what is there.
const BLOCK: usize = 512;

/// A tensor of all samples and the shape of one.
#[derive(Clone, Copy)]
struct Tensor<'a> {
    data: &'a [f32],
    shape: &'a [u64],
}

/// Elements of one sample.
fn elements(shape: &[u64]) -> usize {
    shape.iter().product::<u64>() as usize
}

/// A walk along the axes of `whole`.
fn walk<const N: usize>(whole: &[u64], shapes: [&[u64]; N]) -> Walk<N> {
    let strides = shapes.map(|shape| broadcast(shape, whole.len()));
    let axes = sizes(whole).into_iter().enumerate();
    Walk::new(axes.map(|(i, size)| (size, std::array::from_fn(|t| strides[t][i]))))
}

/// Whether nothing repeats: the samples too are then walked in one go.
fn is_flat<const N: usize>(walk: &Walk<N>, whole: &[u64]) -> bool {
    walk.inner_len() == elements(whole) && walk.inner_strides() == [1; N]
}

/// The elements from `offset` that a pass of `len` along an axis with `stride` 0 or 1 reads.
fn along(x: &[f32], offset: usize, stride: usize, len: usize) -> &[f32] {
    &x[offset..][..if stride == 0 { 1 } else { len }]
}

/// Writes `C(a, b)` to a tensor of shape `whole`.
fn forward<C: Combine>(call: &Call, out: &mut [f32], whole: &[u64], a: Tensor, b: Tensor) {
    let threads = chunks::worth(call.threads, out.len());
    let walk = walk(whole, [whole, a.shape, b.shape]);
    if is_flat(&walk, whole) {
        let size = chunks::ELEMENTWISE;
        return chunks::for_each(threads, out, size, |i, out| {
            let part = i * size..i * size + out.len();
            values::<C>(out, &a.data[part.clone()], &b.data[part]);
        });
    }
    let (len, strides) = (walk.inner_len(), walk.inner_strides());
    let (a_len, b_len) = (elements(a.shape), elements(b.shape));
    chunks::for_each(threads, out, elements(whole), |sample, out| {
        let (a, b) = (&a.data[sample * a_len..], &b.data[sample * b_len..]);
        walk.for_each(|[at, in_a, in_b]| {
            let (a, b) = (along(a, in_a, strides[1], len), along(b, in_b, strides[2], len));
            values::<C>(&mut out[at..][..len], a, b);
        });
    });
}

/// Writes `C(a, b, g)` to a tensor of shape `shape`, added up where it repeats in `g`, which has
/// the shape of the walk.
fn gradient<C: Combine>(
    call: &Call,
    (out, shape): (&mut [f32], &[u64]),
    (a, b): (Tensor, Tensor),
    g: Tensor,
) {
    let threads = chunks::worth(call.threads, g.data.len());
    let walk = walk(g.shape, [shape, a.shape, b.shape, g.shape]);
    if is_flat(&walk, g.shape) {
        let size = chunks::ELEMENTWISE;
        return chunks::for_each(threads, out, size, |i, out| {
            let part = i * size..i * size + out.len();
            terms::<C>(out, &a.data[part.clone()], &b.data[part.clone()], &g.data[part]);
        });
    }
    let (len, strides) = (walk.inner_len(), walk.inner_strides());
    let [a_len, b_len, g_len] = [a.shape, b.shape, g.shape].map(elements);
    let summed = elements(shape) < g_len;
    chunks::for_each(threads, out, elements(shape), |sample, out| {
        let (a, b) = (&a.data[sample * a_len..], &b.data[sample * b_len..]);
        let g = &g.data[sample * g_len..];
        if summed {
            out.fill(0.0);
        }
        walk.for_each(|[at, in_a, in_b, in_g]| {
            let (a, b) = (along(a, in_a, strides[1], len), along(b, in_b, strides[2], len));
            let g = &g[in_g..][..len];
            match (summed, strides[0]) {
                (false, _) => terms::<C>(&mut out[at..][..len], a, b, g),
                (true, 0) => each_block::<C>(a, b, g, |_, terms| out[at] += sum(terms)),
                (true, _) => each_block::<C>(a, b, g, |from, terms| {
                    add(&mut out[at + from..][..terms.len()], terms);
                }),
            }
        });
    });
}

/// Runs `work(first element, combined elements)` block by block.
fn each_block<C: Combine>(a: &[f32], b: &[f32], g: &[f32], mut work: impl FnMut(usize, &[f32])) {
    let mut block = [0.0; BLOCK];
    let whole = g.len();
    for (i, g) in g.chunks(BLOCK).enumerate() {
        let from = i * BLOCK;
        let part = |x: &[f32]| if x.len() == whole { from..from + g.len() } else { 0..1 };
        let out = &mut block[..g.len()];
        terms::<C>(out, &a[part(a)], &b[part(b)], g);
        work(from, out);
    }
}

/// A binary operation.
pub fn binary_forward(call: &Call, operands: Operands) {
    let [a, b] = operands.reads else {
        unreachable!("a binary operation reads two tensors");
    };
    let (a, b) = (
        Tensor { data: a, shape: &call.inputs[0].shape },
        Tensor { data: b, shape: &call.inputs[1].shape },
    );
    let (out, whole) = (&mut *operands.writes[0], &call.output.shape[..]);
    match call.op {
        Op::Add => forward::<Sum>(call, out, whole, a, b),
        Op::Subtract => forward::<Difference>(call, out, whole, a, b),
        Op::Multiply => forward::<Product>(call, out, whole, a, b),
        Op::Divide => forward::<Quotient>(call, out, whole, a, b),
        other => unreachable!("{} is no binary operation", other.name()),
    }
}

/// The gradients of a binary operation's inputs, those that are wanted. A sum and a difference
/// read the output's gradient alone.
pub fn binary_input_gradient(call: &Call, operands: Operands) {
    let g = Tensor { data: operands.reads[operands.reads.len() - 1], shape: &call.output.shape };
    let (a, b) = match operands.reads {
        [a, b, _] => (
            Tensor { data: a, shape: &call.inputs[0].shape },
            Tensor { data: b, shape: &call.inputs[1].shape },
        ),
        _ => (g, g),
    };
    let wanted = (0..2).filter(|input| call.wants(*input));
    for (input, out) in wanted.zip(operands.writes) {
        let out = (&mut **out, &call.inputs[input].shape[..]);
        match (call.op, input) {
            (Op::Add, _) | (Op::Subtract, 0) => gradient::<Same>(call, out, (a, b), g),
            (Op::Subtract, _) => gradient::<Negative>(call, out, (a, b), g),
            (Op::Multiply, 0) => gradient::<ProductLeft>(call, out, (a, b), g),
            (Op::Multiply, _) => gradient::<ProductRight>(call, out, (a, b), g),
            (Op::Divide, 0) => gradient::<QuotientLeft>(call, out, (a, b), g),
            (Op::Divide, _) => gradient::<QuotientRight>(call, out, (a, b), g),
            (other, _) => unreachable!("{} is no binary operation", other.name()),
        }
    }
}

/// The shape of a mean whose axes stay with size 1.
fn kept(call: &Call, axes: &[u64]) -> SmallVec<[u64; 8]> {
    let size = |(axis, size): (u64, &u64)| if axes.contains(&axis) { 1 } else { *size };
    (0..).zip(&call.inputs[0].shape).map(size).collect()
}

/// Elements that one mean is made of.
fn count(call: &Call) -> f32 {
    (call.inputs[0].elements() / call.output.elements()) as f32
}

/// Means over `axes`.
pub fn mean_forward(call: &Call, axes: &[u64], operands: Operands) {
    let x = Tensor { data: operands.reads[0], shape: &call.inputs[0].shape };
    let out = &mut *operands.writes[0];
    gradient::<Same>(call, (&mut *out, &kept(call, axes)), (x, x), x);
    scale(out, 1.0 / count(call));
}

/// The gradient of a mean, spread evenly over what it is made of.
pub fn mean_input_gradient(call: &Call, axes: &[u64], operands: Operands) {
    let kept = kept(call, axes);
    let g = Tensor { data: operands.reads[0], shape: &kept };
    let out = &mut *operands.writes[0];
    forward::<Left>(call, out, &call.inputs[0].shape, g, g);
    scale(out, 1.0 / count(call));
}

/// The same tensor for every sample.
pub fn parameter_forward(call: &Call, operands: Operands) {
    let weight = &*operands.params[0];
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], weight.len(), |_, y| y.copy_from_slice(weight));
}

/// Sums over the samples, in their order.
pub fn parameter_weight_gradient(call: &Call, operands: Operands) {
    let gy = operands.reads[0];
    let gradient = &mut *operands.gradients[0];
    let len = gradient.len();
    let threads = chunks::worth(call.threads, gy.len());
    chunks::for_each(threads, gradient, chunks::ELEMENTWISE, |i, out| {
        for sample in gy.chunks_exact(len) {
            add(out, &sample[i * chunks::ELEMENTWISE..][..out.len()]);
        }
    });
}
