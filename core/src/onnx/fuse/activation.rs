//! Element-wise functions that exporters write as formulas.

use super::Fused;
use super::product::{near, plus, product};
use crate::onnx::ir::Ir;
use crate::onnx::node::ValueId;
use crate::onnx::shapes::Call;

/// GELU in both forms, SiLU, hard swish.
pub(super) fn activation(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    let node = &ir.nodes[i];
    if !matches!(node.op.as_str(), "Mul" | "Div") {
        return None;
    }
    let whole = product(ir, *node.outputs.first()?);
    let [a, b] = whole.factors[..] else { return None };
    let found = |x: ValueId, gate: ValueId| {
        let op = if near(whole.scale, 0.5) {
            gelu(ir, x, gate)?
        } else if near(whole.scale, 1.0) && ir.under(gate, "Sigmoid") == Some(x) {
            "Silu"
        } else if near(whole.scale, 1.0) && hard_sigmoid(ir, gate) == Some(x)
            || near(whole.scale, 1.0 / 6.0) && relu6_plus_3(ir, gate) == Some(x)
        {
            "HardSwish"
        } else {
            return None;
        };
        Some(Fused::new(op, vec![x]))
    };
    found(a, b).or_else(|| found(b, a))
}

/// What `1 + erf(x / sqrt(2))` or `1 + tanh(..)` belongs to.
fn gelu(ir: &Ir<'_>, x: ValueId, gate: ValueId) -> Option<&'static str> {
    let inner = plus(ir, gate, 1.0)?;
    if let Some(argument) = ir.under(inner, "Erf") {
        let argument = product(ir, argument);
        let fits = argument.factors == [x] && near(argument.scale, std::f64::consts::FRAC_1_SQRT_2);
        return fits.then_some("Gelu");
    }
    let argument = product(ir, ir.under(inner, "Tanh")?);
    let scale = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
    if !near(argument.scale, scale) {
        return None;
    }
    let cubic = match argument.factors[..] {
        // x + 0.044715 x³
        [sum] => {
            let [a, b] = ir.pair_under(sum, "Add")?;
            let rest = if a == x { b } else { (b == x).then_some(a)? };
            let rest = product(ir, rest);
            near(rest.scale, 0.044_715) && rest.factors == [x; 3]
        }
        // x (1 + 0.044715 x²)
        [a, b] => {
            let rest = if a == x { b } else { (b == x).then_some(a)? };
            let rest = product(ir, plus(ir, rest, 1.0)?);
            near(rest.scale, 0.044_715) && rest.factors == [x; 2]
        }
        _ => false,
    };
    cubic.then_some("GeluTanh")
}

/// `x` of `clip(x / 6 + 1 / 2, 0, 1)`.
fn hard_sigmoid(ir: &Ir<'_>, gate: ValueId) -> Option<ValueId> {
    if let Some(node) = ir.made_by(gate, "HardSigmoid") {
        let alpha = node.attributes.float("alpha").unwrap_or(0.2);
        let beta = node.attributes.float("beta").unwrap_or(0.5);
        let fits = near(alpha.into(), 1.0 / 6.0) && near(beta.into(), 0.5);
        return if fits { node.input(0) } else { None };
    }
    let scaled = product(ir, gate);
    let [inner] = scaled.factors[..] else { return None };
    if near(scaled.scale, 1.0 / 6.0) { relu6_plus_3(ir, inner) } else { None }
}

/// `x` of `clip(x + 3, 0, 6)`.
fn relu6_plus_3(ir: &Ir<'_>, value: ValueId) -> Option<ValueId> {
    let node = ir.made_by(value, "Clip")?;
    let bound = |at: usize| ir.scalar(node.input(at)?);
    let whole = bound(1) == Some(0.0) && bound(2) == Some(6.0);
    if whole { plus(ir, node.input(0)?, 3.0) } else { None }
}

/// `silu(gate) · up`.
pub(super) fn swiglu(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    let node = &ir.nodes[i];
    let ("Mul", [Some(a), Some(b)]) = (node.op.as_str(), &node.inputs[..]) else { return None };
    let found = |silu: ValueId, up: ValueId| {
        let gate = ir.under(silu, "Silu").filter(|_| ir.once(silu))?;
        let same = ir.is_live(up) && ir.shape(gate).is_some() && ir.shape(gate) == ir.shape(up);
        same.then(|| Fused::new("SwiGlu", vec![gate, up]))
    };
    found(*a, *b).or_else(|| found(*b, *a))
}

/// Axes of a reduction that is over the last axis alone.
pub(super) fn over_last(ir: &Ir<'_>, value: ValueId, op: &str) -> Option<ValueId> {
    let node = ir.made_by(value, op)?;
    let call = Call { ir, op, attributes: &node.attributes, inputs: &node.inputs };
    let last = call.shape(0)?.len().checked_sub(1)?;
    let keep = node.attributes.int("keepdims").unwrap_or(1) != 0;
    if keep && call.along()? == [last] { node.input(0) } else { None }
}
