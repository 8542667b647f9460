//! Products with a weight.

use super::Fused;
use crate::onnx::ir::Ir;
use crate::onnx::tensor::count;

/// `MatMul` and `Gemm` with a weight become `Linear`, with `transB` as in `Gemm`.
pub(super) fn product(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    let node = &ir.nodes[i];
    let (x, w) = ((*node.inputs.first()?)?, (*node.inputs.get(1)?)?);
    let weight = ir.is_given(w) && ir.shape(w)?.len() == 2;
    if !ir.is_live(x) || !weight {
        return None;
    }
    let mut inputs = vec![x, w];
    let mut turned = 0;
    match node.op.as_str() {
        "MatMul" => {}
        "Gemm" => {
            let plain = |name: &str| node.attributes.float(name).is_none_or(|f| f == 1.0);
            if node.attributes.int("transA").unwrap_or(0) != 0 || !plain("alpha") || !plain("beta")
            {
                return None;
            }
            turned = node.attributes.int("transB").unwrap_or(0);
            if let Some(bias) = node.inputs.get(2).copied().flatten() {
                let outputs = *ir.shape(node.outputs[0])?.last()?;
                if !ir.is_given(bias) || count(ir.shape(bias)?) != Some(outputs) {
                    return None;
                }
                inputs.push(bias);
            }
        }
        _ => return None,
    }
    let mut fused = Fused::new("Linear", inputs);
    fused.attributes.set_int("transB", turned);
    Some(fused)
}

/// A weight added to the output of a `Linear` that nobody else reads is its bias.
pub(super) fn bias(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    let node = &ir.nodes[i];
    let ("Add", [Some(a), Some(b)]) = (node.op.as_str(), &node.inputs[..]) else { return None };
    let (y, bias) = if ir.is_live(*a) { (*a, *b) } else { (*b, *a) };
    let linear = ir.made_by(y, "Linear").filter(|_| ir.once(y))?;
    let outputs = *ir.shape(y)?.last()?;
    let [Some(x), Some(w)] = linear.inputs[..] else { return None };
    if !ir.is_given(bias) || ir.shape(bias)? != [outputs] {
        return None;
    }
    let attributes = linear.attributes.clone();
    Some(Fused { op: "Linear", inputs: vec![x, w, bias], attributes })
}

/// `[length, batch, features]` made `[length · batch, features]` for a product and parted again
/// behind it, as multi-head attention does: a linear layer takes any number of axes, so the joint is
/// left out; in it the batch would not be the outer axis.
pub(super) fn unmerge(ir: &mut Ir<'_>) {
    for i in 0..ir.nodes.len() {
        if let Some((reshape, shape)) = merged(ir, i) {
            let output = ir.nodes[i].outputs[0];
            let mut wide = shape.clone();
            if let (Some(last), Some(features)) =
                (wide.last_mut(), ir.shape(output).and_then(|s| s.last().copied()))
            {
                *last = features;
            }
            let joined = ir.nodes[reshape].outputs[0];
            ir.values[joined].shape = Some(shape);
            ir.values[output].shape = Some(wide);
        }
    }
}

/// The reshape before a `Linear` and the shape that it would have without joining axes.
fn merged(ir: &Ir<'_>, i: usize) -> Option<(usize, Vec<i64>)> {
    let node = &ir.nodes[i];
    if node.op != "Linear" || !ir.matters(i) {
        return None;
    }
    let joined = node.input(0)?;
    let [rows, features] = *ir.shape(joined)? else { return None };
    let before = ir.under(joined, "Reshape").filter(|_| ir.once(joined))?;
    let axes = ir.shape(before)?;
    let at = (2..axes.len()).find(|at| count(&axes[..*at]) == Some(rows))?;
    let output = *node.outputs.first()?;
    let readers = ir
        .nodes
        .iter()
        .enumerate()
        .filter(|(r, n)| ir.matters(*r) && n.inputs.contains(&Some(output)));
    let parted = readers.map(|(_, n)| n.op == "Reshape").reduce(|a, b| a && b).unwrap_or(false);
    let whole = parted && !ir.outputs.contains(&output);
    let shape = [&axes[..at], &[features]].concat();
    whole.then_some((ir.values[joined].producer?, shape))
}
