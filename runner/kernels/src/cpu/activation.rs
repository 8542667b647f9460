//! Element-wise functions and their derivatives.

use super::chunks;
use super::gelu;
use super::math::{erf, exp, sigmoid, tanh};
use super::vector::vectorised;
use crate::{Call, Operands};
use pipewright_core::graph::Function;
use std::f32::consts::FRAC_2_SQRT_PI;

/// A function and its derivative; the latter of the output where
/// [`Function::gradient_from_output`] says so, else of the input.
trait Curve {
    fn value(x: f32) -> f32;
    fn slope(at: f32) -> f32;
}

/// Defines curves: `name: |x| value, |at| slope`.
macro_rules! curves {
    ($($name:ident: |$x:ident| $value:expr, |$at:ident| $slope:expr;)*) => {$(
        struct $name;

        impl Curve for $name {
            #[inline(always)]
            fn value($x: f32) -> f32 {
                $value
            }

            #[inline(always)]
            fn slope($at: f32) -> f32 {
                $slope
            }
        }
    )*};
}

#[inline(always)]
fn clip(x: f32, min: f32, max: f32) -> f32 {
    // Comparisons this way round leave what is not a number as it is.
    let x = if x < min { min } else { x };
    if x > max { max } else { x }
}

#[inline(always)]
fn inside(x: f32, value: f32) -> f32 {
    if x > -3.0 && x < 3.0 { value } else { 0.0 }
}

#[inline(always)]
fn silu_slope(x: f32) -> f32 {
    let s = sigmoid(x);
    s + x * s * (1.0 - s)
}

curves! {
    Silu: |x| x * sigmoid(x), |x| silu_slope(x);
    Tanh: |x| tanh(x), |y| 1.0 - y * y;
    LeakyRelu: |x| if x > 0.0 { x } else { 0.01 * x }, |y| if y > 0.0 { 1.0 } else { 0.01 };
    Sigmoid: |x| sigmoid(x), |y| y * (1.0 - y);
    Exp: |x| exp(x), |y| y;
    Log: |x| x.ln(), |x| 1.0 / x;
    HardSwish: |x| x * clip(x + 3.0, 0.0, 6.0) / 6.0,
        |x| if x >= 3.0 { 1.0 } else { inside(x, x / 3.0 + 0.5) };
    HardSigmoid: |x| clip(x / 6.0 + 0.5, 0.0, 1.0), |x| inside(x, 1.0 / 6.0);
    Erf: |x| erf(x), |x| FRAC_2_SQRT_PI * exp(-x * x);
    Square: |x| x * x, |x| 2.0 * x;
    Sqrt: |x| x.sqrt(), |y| 0.5 / y;
    Reciprocal: |x| 1.0 / x, |y| -y * y;
}

vectorised! {
    fn values<C: Curve>(y: &mut [f32], x: &[f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = C::value(*x);
        }
    }

    fn slopes<C: Curve>(gx: &mut [f32], at: &[f32], gy: &[f32]) {
        for ((gx, at), gy) in gx.iter_mut().zip(at).zip(gy) {
            *gx = C::slope(*at) * gy;
        }
    }

    fn clip_values(y: &mut [f32], x: &[f32], min: f32, max: f32) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = clip(*x, min, max));
    }

    fn clip_slopes(gx: &mut [f32], x: &[f32], gy: &[f32], min: f32, max: f32) {
        for ((gx, &x), gy) in gx.iter_mut().zip(x).zip(gy) {
            *gx = if x >= min && x <= max { *gy } else { 0.0 };
        }
    }

    fn affine_values(y: &mut [f32], x: &[f32], scale: f32, shift: f32) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = scale * x + shift);
    }

    /// `gate sigmoid(gate) up`
    fn swiglu_values(y: &mut [f32], gate: &[f32], up: &[f32]) {
        for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
            *y = gate * sigmoid(*gate) * up;
        }
    }

    fn swiglu_gate(g: &mut [f32], gate: &[f32], up: &[f32], gy: &[f32]) {
        for (((g, gate), up), gy) in g.iter_mut().zip(gate).zip(up).zip(gy) {
            *g = gy * up * silu_slope(*gate);
        }
    }
}

pub fn forward(call: &Call, function: Function, operands: Operands) {
    let run = match function {
        Function::Gelu => gelu::values::<gelu::Erf>,
        Function::Silu => values::<Silu>,
        Function::Tanh => values::<Tanh>,
        Function::LeakyRelu => values::<LeakyRelu>,
        Function::GeluTanh => gelu::values::<gelu::Tanh>,
        Function::Sigmoid => values::<Sigmoid>,
        Function::Exp => values::<Exp>,
        Function::Log => values::<Log>,
        Function::HardSwish => values::<HardSwish>,
        Function::HardSigmoid => values::<HardSigmoid>,
        Function::Erf => values::<Erf>,
        Function::Square => values::<Square>,
        Function::Sqrt => values::<Sqrt>,
        Function::Reciprocal => values::<Reciprocal>,
    };
    one(call, operands, run);
}

/// `gx = f'(x) gy`
pub fn input_gradient(call: &Call, function: Function, operands: Operands) {
    let run = match function {
        Function::Gelu => gelu::slopes::<gelu::Erf>,
        Function::Silu => slopes::<Silu>,
        Function::Tanh => slopes::<Tanh>,
        Function::LeakyRelu => slopes::<LeakyRelu>,
        Function::GeluTanh => gelu::slopes::<gelu::Tanh>,
        Function::Sigmoid => slopes::<Sigmoid>,
        Function::Exp => slopes::<Exp>,
        Function::Log => slopes::<Log>,
        Function::HardSwish => slopes::<HardSwish>,
        Function::HardSigmoid => slopes::<HardSigmoid>,
        Function::Erf => slopes::<Erf>,
        Function::Square => slopes::<Square>,
        Function::Sqrt => slopes::<Sqrt>,
        Function::Reciprocal => slopes::<Reciprocal>,
    };
    two(call, operands, run);
}

pub fn clip_forward(call: &Call, min: f32, max: f32, operands: Operands) {
    one(call, operands, |y, x| clip_values(y, x, min, max));
}

pub fn clip_input_gradient(call: &Call, min: f32, max: f32, operands: Operands) {
    two(call, operands, |gx, x, gy| clip_slopes(gx, x, gy, min, max));
}

pub fn affine_forward(call: &Call, scale: f32, shift: f32, operands: Operands) {
    one(call, operands, |y, x| affine_values(y, x, scale, shift));
}

pub fn affine_input_gradient(call: &Call, scale: f32, operands: Operands) {
    one(call, operands, |gx, gy| affine_values(gx, gy, scale, 0.0));
}

pub fn swiglu_forward(call: &Call, operands: Operands) {
    two(call, operands, swiglu_values);
}

pub fn swiglu_input_gradient(call: &Call, operands: Operands) {
    let [gate, up, gy] = operands.reads else {
        unreachable!("a gated product's gradient reads gate, up and gy");
    };
    let mut writes = operands.writes.iter_mut();
    if call.wants(0) {
        let write = writes.next().expect("one gradient per wanted input");
        each(call, write, |out, part| {
            swiglu_gate(out, &gate[part.clone()], &up[part.clone()], &gy[part]);
        });
    }
    if call.wants(1) {
        let write = writes.next().expect("one gradient per wanted input");
        each(call, write, |out, part| {
            swiglu_values(out, &gate[part.clone()], &gy[part]);
        });
    }
}

/// Chunk by chunk from one tensor to one.
fn one(call: &Call, operands: Operands, run: impl Fn(&mut [f32], &[f32]) + Sync) {
    let x = operands.reads[0];
    each(call, operands.writes[0], |out, part| run(out, &x[part]));
}

/// Chunk by chunk from two tensors to one.
fn two(call: &Call, operands: Operands, run: impl Fn(&mut [f32], &[f32], &[f32]) + Sync) {
    let (a, b) = (operands.reads[0], operands.reads[1]);
    each(call, operands.writes[0], |out, part| run(out, &a[part.clone()], &b[part]));
}

/// Runs `work(chunk, where it lies)` for all chunks of a tensor.
fn each(call: &Call, data: &mut [f32], work: impl Fn(&mut [f32], std::ops::Range<usize>) + Sync) {
    let threads = chunks::worth(call.threads, data.len());
    chunks::for_each(threads, data, chunks::ELEMENTWISE, |i, out| {
        let start = i * chunks::ELEMENTWISE;
        let part = start..start + out.len();
        work(out, part);
    });
}
