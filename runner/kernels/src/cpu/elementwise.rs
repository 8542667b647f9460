//! Element-wise operations. Loops over equal slices that the compiler turns into vector code;
//! memory, not arithmetic, sets their speed.

use super::vector::vectorised;
use super::{chunks, packed};
use crate::{Call, Operands};
use pipewright_core::plan::Precision;

vectorised! {
    fn relu(y: &mut [f32], x: &[f32]) {
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = if x < 0.0 { 0.0 } else { x });
    }

    fn relu_gradient(gx: &mut [f32], y: &[f32], gy: &[f32]) {
        for ((gx, &y), &gy) in gx.iter_mut().zip(y).zip(gy) {
            *gx = if y > 0.0 { gy } else { 0.0 };
        }
    }

    fn sum_of_two(out: &mut [f32], a: &[f32], b: &[f32]) {
        out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = a + b);
    }

    fn add(out: &mut [f32], term: &[f32]) {
        out.iter_mut().zip(term).for_each(|(out, term)| *out += term);
    }
}

/// `y = max(x, 0)`; what is not a number stays so, lest a diverged run look healthy.
pub fn relu_forward(call: &Call, operands: Operands) {
    let x = operands.reads[0];
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], chunks::ELEMENTWISE, |i, y| {
        relu(y, &x[i * chunks::ELEMENTWISE..][..y.len()]);
    });
}

/// `gx = gy` where `y > 0`, else 0
pub fn relu_input_gradient(call: &Call, operands: Operands) {
    let (y, gy) = (operands.reads[0], operands.reads[1]);
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], chunks::ELEMENTWISE, |i, gx| {
        let part = i * chunks::ELEMENTWISE..i * chunks::ELEMENTWISE + gx.len();
        relu_gradient(gx, &y[part.clone()], &gy[part]);
    });
}

/// `((first + second) + third) + ..`: the forward pass of an addition and sums of gradients. The
/// order is part of the contract: a graph cut in two adds the same numbers in the same order.
pub fn sum(call: &Call, operands: Operands) {
    let Operands { reads, writes, .. } = operands;
    let [first, second, rest @ ..] = reads else {
        unreachable!("a sum has at least two terms");
    };
    let threads = chunks::worth(call.threads, writes[0].len());
    chunks::for_each(threads, writes[0], chunks::ELEMENTWISE, |i, out| {
        let part = i * chunks::ELEMENTWISE..i * chunks::ELEMENTWISE + out.len();
        sum_of_two(out, &first[part.clone()], &second[part.clone()]);
        for term in rest {
            let term = &term[part.clone()];
            match call.precision {
                Precision::F32 | Precision::Tf32 => add(out, term),
                precision => out.iter_mut().zip(term).for_each(|(out, term)| {
                    *out = packed::round(precision, *out) + term;
                }),
            }
        }
    });
}
