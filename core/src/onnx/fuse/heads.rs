//! Attention whose queries, keys and values lie side by side: taking them apart into heads and
//! putting the heads together again are copies that one operation does without.

use super::Fused;
use super::product::near;
use super::rope::part;
use crate::onnx::ir::Ir;
use crate::onnx::node::ValueId;
use crate::onnx::shapes::Call;

/// `[batch, length, 3 · heads · d]`, parted, attended, joined to `[batch, length, heads · d]`.
pub(super) fn side_by_side(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    let node = &ir.nodes[i];
    let output = *node.outputs.first().filter(|_| node.op == "Reshape")?;
    let turned = node.input(0)?;
    let attended = heads_exchanged(ir, turned).filter(|_| ir.once(turned))?;
    let attention = ir.made_by(attended, "ScaledDotProduct").filter(|_| ir.once(attended))?;
    let [Some(q), Some(k), Some(v)] = attention.inputs[..] else { return None };
    let [batch, heads, length, d] = *ir.shape(attended)? else { return None };
    let width = heads.checked_mul(d)?;
    // The batch and the positions may be one axis: of one sample that is the same.
    let joined = [&[batch, length, width][..], &[batch.checked_mul(length)?, width]];
    if !joined.contains(&ir.shape(output)?) || attention.attributes.int("turn_keys")? != 0 {
        return None;
    }
    let scale = f64::from(attention.attributes.float("scale")?);
    if !near(scale, 1.0 / (d as f64).sqrt()) {
        return None;
    }
    let mut whole = None;
    for (at, value) in (0i64..).zip([q, k, v]) {
        let (x, start, end) = part_of_heads(ir, value, [batch, heads, length, d])?;
        let placed = start == at * width && end == start + width;
        if !placed || *whole.get_or_insert(x) != x {
            return None;
        }
    }
    let x = whole?;
    if ir.shape(x)? != [batch, length, 3 * width] {
        return None;
    }
    let mut fused = Fused::new("Attention", vec![x]);
    fused.attributes.set_int("heads", heads);
    fused.attributes.set_int("causal", attention.attributes.int("causal")?);
    Some(fused)
}

/// What a value is the heads of: `[batch, heads, length, d]` of a part of `[batch, length, ..]`.
fn part_of_heads(ir: &Ir<'_>, value: ValueId, shape: [i64; 4]) -> Option<(ValueId, i64, i64)> {
    let [batch, heads, length, d] = shape;
    let apart = heads_exchanged(ir, value).filter(|_| ir.shape(value) == Some(&shape))?;
    if ir.shape(apart)? != [batch, length, heads, d] {
        return None;
    }
    let flat = ir.under(apart, "Reshape")?;
    if ir.shape(flat)? != [batch, length, heads * d] {
        return None;
    }
    part(ir, flat)
}

/// The value with axes 1 and 2 exchanged.
fn heads_exchanged(ir: &Ir<'_>, value: ValueId) -> Option<ValueId> {
    let node = ir.made_by(value, "Transpose")?;
    let call = Call { ir, op: "Transpose", attributes: &node.attributes, inputs: &node.inputs };
    (call.perm()? == [0, 2, 1, 3]).then_some(node.input(0)?)
}
