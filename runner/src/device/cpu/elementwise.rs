//! Element-wise operations. Loops over equal slices that the compiler turns into vector code;
//! memory, not arithmetic, sets their speed.

use super::{Call, Operands, bf16, chunks};
use pipewright_core::plan::Precision;

/// `y = max(x, 0)`; what is not a number stays so, lest a diverged run look healthy.
pub fn relu_forward(call: &Call, operands: Operands) {
    let x = operands.reads[0];
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], chunks::ELEMENTWISE, |i, y| {
        let x = &x[i * chunks::ELEMENTWISE..][..y.len()];
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = if x < 0.0 { 0.0 } else { x });
    });
}

/// `gx = gy` where `y > 0`, else 0
pub fn relu_input_gradient(call: &Call, operands: Operands) {
    let (y, gy) = (operands.reads[0], operands.reads[1]);
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], chunks::ELEMENTWISE, |i, gx| {
        let y = &y[i * chunks::ELEMENTWISE..][..gx.len()];
        let gy = &gy[i * chunks::ELEMENTWISE..][..gx.len()];
        for ((gx, &y), &gy) in gx.iter_mut().zip(y).zip(gy) {
            *gx = if y > 0.0 { gy } else { 0.0 };
        }
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
        let (first, second) = (&first[part.clone()], &second[part.clone()]);
        for ((out, a), b) in out.iter_mut().zip(first).zip(second) {
            *out = a + b;
        }
        for term in rest {
            let terms = out.iter_mut().zip(&term[part.clone()]);
            match call.precision {
                Precision::F32 => terms.for_each(|(out, term)| *out += term),
                Precision::Bf16 => terms.for_each(|(out, term)| *out = bf16::round(*out) + term),
            }
        }
    });
}
