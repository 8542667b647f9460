//! Operations that only move elements: slices, permutations, joins.

use super::chunks;
use super::strides::{Walk, contiguous, sizes};
use crate::{Call, Operands};

/// A tensor as seen along one axis: `[outer, size, inner]`, samples being part of `outer`.
struct Along {
    size: usize,
    inner: usize,
}

impl Along {
    fn new(shape: &[u64], axis: usize) -> Self {
        let inner = shape[axis + 1..].iter().product::<u64>();
        Self { size: shape[axis] as usize, inner: inner as usize }
    }

    /// Elements of one step along the axes before.
    fn block(&self) -> usize {
        self.size * self.inner
    }
}

/// Every `step`-th element from `start` along an axis.
pub fn slice_forward(call: &Call, axis: usize, start: u64, step: u64, operands: Operands) {
    let from = Along::new(&call.inputs[0].shape, axis);
    let to = Along::new(&call.output.shape, axis);
    let (start, step) = (start as usize * from.inner, step as usize * from.inner);
    let x = operands.reads[0];
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], to.block(), |i, y| {
        let x = &x[i * from.block()..][..from.block()];
        if step == from.inner {
            return y.copy_from_slice(&x[start..][..to.block()]);
        }
        for (y, x) in y.chunks_exact_mut(to.inner).zip(x[start..].chunks(step)) {
            y.copy_from_slice(&x[..to.inner]);
        }
    });
}

/// The gradient goes where the elements came from; the others had no part in the output.
pub fn slice_input_gradient(call: &Call, axis: usize, start: u64, step: u64, operands: Operands) {
    let to = Along::new(&call.inputs[0].shape, axis);
    let from = Along::new(&call.output.shape, axis);
    let (start, step) = (start as usize * to.inner, step as usize * to.inner);
    let gy = operands.reads[0];
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], to.block(), |i, gx| {
        let gy = &gy[i * from.block()..][..from.block()];
        gx.fill(0.0);
        if step == to.inner {
            return gx[start..][..from.block()].copy_from_slice(gy);
        }
        for (gx, gy) in gx[start..].chunks_mut(step).zip(gy.chunks_exact(from.inner)) {
            gx[..from.inner].copy_from_slice(gy);
        }
    });
}

/// Axis `i` of the output is axis `axes[i]` of the input.
pub fn permute_forward(call: &Call, axes: &[u64], operands: Operands) {
    let own = contiguous(&call.inputs[0].shape);
    let strides = axes.iter().map(|axis| own[*axis as usize]);
    gather(call, &call.output.shape, strides, operands);
}

/// The same way back.
pub fn permute_input_gradient(call: &Call, axes: &[u64], operands: Operands) {
    let own = contiguous(&call.output.shape);
    let place = |axis| axes.iter().position(|a| *a == axis).expect("a permutation has every axis");
    let strides = (0..axes.len() as u64).map(|axis| own[place(axis)]);
    gather(call, &call.inputs[0].shape, strides, operands);
}

/// Fills a tensor of shape `shape` from one that has `strides` along its axes.
fn gather(call: &Call, shape: &[u64], strides: impl Iterator<Item = usize>, operands: Operands) {
    let own = contiguous(shape);
    let axes = sizes(shape).into_iter().zip(own).zip(strides);
    let walk = Walk::new(axes.map(|((size, own), stride)| (size, [own, stride])));
    let (len, stride) = (walk.inner_len(), walk.inner_strides()[1]);
    let x = operands.reads[0];
    let sample_len = shape.iter().product::<u64>() as usize;
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each(threads, operands.writes[0], sample_len, |sample, y| {
        let x = &x[sample * sample_len..][..sample_len];
        walk.for_each(|[to, from]| {
            let y = &mut y[to..][..len];
            if stride == 1 {
                y.copy_from_slice(&x[from..][..len]);
            } else {
                let picked = x[from..].iter().step_by(stride.max(1));
                y.iter_mut().zip(picked).for_each(|(y, x)| *y = *x);
            }
        });
    });
}

/// Inputs one after the other along an axis.
pub fn concat_forward(call: &Call, axis: usize, operands: Operands) {
    let whole = Along::new(&call.output.shape, axis);
    let reads = operands.reads;
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], whole.block(), |i, y| {
        let mut rest = y;
        for (x, spec) in reads.iter().zip(call.inputs) {
            let len = Along::new(&spec.shape, axis).block();
            let (part, after) = rest.split_at_mut(len);
            part.copy_from_slice(&x[i * len..][..len]);
            rest = after;
        }
    });
}

/// To every input that wants it, its part.
pub fn concat_input_gradient(call: &Call, axis: usize, operands: Operands) {
    let whole = Along::new(&call.output.shape, axis).block();
    let gy = operands.reads[0];
    let mut writes = operands.writes.iter_mut();
    let mut start = 0;
    for (input, spec) in call.inputs.iter().enumerate() {
        let len = Along::new(&spec.shape, axis).block();
        if call.wants(input) {
            let gx = writes.next().expect("one gradient per wanted input");
            let threads = chunks::worth(call.threads, gx.len());
            chunks::for_each(threads, gx, len, |i, gx| {
                gx.copy_from_slice(&gy[i * whole + start..][..len]);
            });
        }
        start += len;
    }
}

/// The first position of each sample: `[length, ..]` to `[..]`.
pub fn first_forward(call: &Call, operands: Operands) {
    let (whole, len) = (call.inputs[0].elements() as usize, call.output.elements() as usize);
    let samples = operands.reads[0].chunks_exact(whole);
    for (y, x) in operands.writes[0].chunks_exact_mut(len).zip(samples) {
        y.copy_from_slice(&x[..len]);
    }
}

/// Zero but for the first position.
pub fn first_input_gradient(call: &Call, operands: Operands) {
    let (whole, len) = (call.inputs[0].elements() as usize, call.output.elements() as usize);
    let samples = operands.writes[0].chunks_exact_mut(whole);
    for (gx, gy) in samples.zip(operands.reads[0].chunks_exact(len)) {
        gx[..len].copy_from_slice(gy);
        gx[len..].fill(0.0);
    }
}

/// Where the token is first, or the largest one; 0 where it is nowhere.
fn place(tokens: &[u32], token: Option<u32>) -> usize {
    let token = token.or_else(|| tokens.iter().copied().max());
    tokens.iter().position(|at| Some(*at) == token).unwrap_or(0)
}

/// The position of a token of each sample.
pub fn token_forward(call: &Call, token: Option<u32>, operands: Operands) {
    let (whole, len) = (call.inputs[0].elements() as usize, call.output.elements() as usize);
    let tokens: &[u32] = bytemuck::cast_slice(operands.reads[1]);
    let samples = operands.reads[0].chunks_exact(whole).zip(tokens.chunks_exact(whole / len));
    for (y, (x, tokens)) in operands.writes[0].chunks_exact_mut(len).zip(samples) {
        y.copy_from_slice(&x[place(tokens, token) * len..][..len]);
    }
}

/// Zero but for that position.
pub fn token_input_gradient(call: &Call, token: Option<u32>, operands: Operands) {
    let (whole, len) = (call.inputs[0].elements() as usize, call.output.elements() as usize);
    let tokens: &[u32] = bytemuck::cast_slice(operands.reads[0]);
    let samples = operands.reads[1].chunks_exact(len).zip(tokens.chunks_exact(whole / len));
    for (gx, (gy, tokens)) in operands.writes[0].chunks_exact_mut(whole).zip(samples) {
        gx.fill(0.0);
        gx[place(tokens, token) * len..][..len].copy_from_slice(gy);
    }
}
