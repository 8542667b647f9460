//! Normalisations that exporters write as formulas.

use super::Fused;
use super::activation::over_last;
use super::product::product;
use crate::onnx::ir::Ir;
use crate::onnx::node::ValueId;
use crate::onnx::tensor::count;

/// `(x - mean) / sqrt(var + eps) · scale + shift` over the last axis.
pub(super) fn layer_norm(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    if ir.nodes[i].op != "Add" {
        return None;
    }
    let output = *ir.nodes[i].outputs.first()?;
    let (scaled, shift) = with_weight(ir, output, "Add")?;
    let (normal, scale) = with_weight(ir, scaled, "Mul")?;
    let (centred, eps, square) = divided_by_root(ir, normal)?;
    let x = centred_of(ir, centred)?;
    if square != centred && centred_of(ir, square) != Some(x) {
        return None;
    }
    let mut fused = Fused::new("LayerNormalization", vec![x, scale, shift]);
    fused.attributes.set_float("epsilon", eps as f32);
    fused.attributes.set_int("axis", -1);
    Some(fused)
}

/// `x / sqrt(mean(x²) + eps) · scale` over the last axis.
pub(super) fn rms_norm(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    if ir.nodes[i].op != "Mul" {
        return None;
    }
    let (normal, scale) = with_weight(ir, *ir.nodes[i].outputs.first()?, "Mul")?;
    let (x, eps, square) = divided_by_root(ir, normal)?;
    if square != x {
        return None;
    }
    let mut fused = Fused::new("RMSNormalization", vec![x, scale]);
    fused.attributes.set_float("epsilon", eps as f32);
    Some(fused)
}

/// The two operands of `op`: a live one, and a weight over its last axis.
fn with_weight(ir: &Ir<'_>, value: ValueId, op: &str) -> Option<(ValueId, ValueId)> {
    let [a, b] = ir.pair_under(value, op)?;
    let (live, weight) = if ir.is_live(a) { (a, b) } else { (b, a) };
    let last = ir.shape(live)?.last()?;
    let fits = ir.is_given(weight) && ir.is_live(live) && ir.shape(weight)? == [*last];
    fits.then_some((live, weight))
}

/// Numerator, `eps`, and what is squared under the root: `n / sqrt(mean(s²) + eps)`.
fn divided_by_root(ir: &Ir<'_>, value: ValueId) -> Option<(ValueId, f64, ValueId)> {
    let (numerator, root) = if let Some([n, root]) = ir.pair_under(value, "Div") {
        (n, ir.under(root, "Sqrt").or_else(|| power_under(ir, root, 0.5))?)
    } else {
        let [a, b] = ir.pair_under(value, "Mul")?;
        match (inverse_root(ir, a), inverse_root(ir, b)) {
            (Some(root), _) => (b, root),
            (_, Some(root)) => (a, root),
            _ => return None,
        }
    };
    let [a, b] = ir.pair_under(root, "Add")?;
    let (mean, eps) = match (ir.scalar(a), ir.scalar(b)) {
        (Some(eps), _) => (b, eps),
        (_, Some(eps)) => (a, eps),
        _ => return None,
    };
    let square = product(ir, over_last(ir, mean, "ReduceMean")?);
    match square.factors[..] {
        [a, b] if a == b && square.scale == 1.0 => Some((numerator, eps, a)),
        _ => None,
    }
}

/// `y` of `1 / sqrt(y)`.
fn inverse_root(ir: &Ir<'_>, value: ValueId) -> Option<ValueId> {
    let inverse = ir.under(value, "Reciprocal").or_else(|| {
        let [one, y] = ir.pair_under(value, "Div")?;
        (ir.scalar(one) == Some(1.0)).then_some(y)
    });
    match inverse {
        Some(root) => ir.under(root, "Sqrt").or_else(|| power_under(ir, root, 0.5)),
        None => power_under(ir, value, -0.5),
    }
}

fn power_under(ir: &Ir<'_>, value: ValueId, power: f64) -> Option<ValueId> {
    let [x, p] = ir.pair_under(value, "Pow")?;
    (ir.scalar(p) == Some(power)).then_some(x)
}

/// `x` of `x - mean(x)`.
fn centred_of(ir: &Ir<'_>, value: ValueId) -> Option<ValueId> {
    let [x, mean] = ir.pair_under(value, "Sub")?;
    (over_last(ir, mean, "ReduceMean") == Some(x)).then_some(x)
}

/// Group norm, which exporters write as instance norm of `[batch, groups, rest]` between reshapes,
/// followed by a scale and a shift per channel.
pub(super) fn group_norm(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    if ir.nodes[i].op != "Add" {
        return None;
    }
    let output = *ir.nodes[i].outputs.first()?;
    let channels = *ir.shape(output)?.get(1)?;
    let per_channel = |value: ValueId, op: &str| {
        let [a, b] = ir.pair_under(value, op)?;
        let (live, weight) = if ir.is_live(a) { (a, b) } else { (b, a) };
        let shape = ir.shape(weight)?;
        let rank = ir.shape(live)?.len();
        // [C, 1, 1], aligned at the last axis
        let place = (shape.len() + 1).checked_sub(rank)?;
        let fits = shape.get(place) == Some(&channels) && count(shape) == Some(channels);
        (fits && ir.is_given(weight)).then_some((live, weight))
    };
    let (scaled, shift) = per_channel(output, "Add")?;
    let (back, scale) = per_channel(scaled, "Mul")?;
    let normal = ir.under(back, "Reshape")?;
    let node = ir.made_by(normal, "InstanceNormalization")?;
    let [Some(grouped), Some(ones), Some(zeros)] = node.inputs[..] else { return None };
    let all = |value: ValueId, number: f64| {
        ir.constant(value).and_then(|t| t.values()).is_some_and(|v| v.iter().all(|x| *x == number))
    };
    if !all(ones, 1.0) || !all(zeros, 0.0) {
        return None;
    }
    let x = ir.under(grouped, "Reshape")?;
    let groups = *ir.shape(grouped)?.get(1)?;
    if ir.shape(x)? != ir.shape(output)? || channels % groups != 0 {
        return None;
    }
    let mut fused = Fused::new("GroupNormalization", vec![x, scale, shift]);
    fused.attributes.set_int("num_groups", groups);
    fused.attributes.set_float("epsilon", node.attributes.float("epsilon").unwrap_or(1e-5));
    Some(fused)
}
