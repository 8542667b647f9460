//! Steps that do nothing, or that are one step.

use super::Fused;
use crate::onnx::ir::Ir;
use crate::onnx::node::ValueId;
use crate::onnx::shapes::Call;

/// All that only changes the shape becomes `Reshape` to the known shape.
pub(super) fn reshapes(ir: &mut Ir<'_>) {
    for i in 0..ir.nodes.len() {
        let node = &ir.nodes[i];
        let view = matches!(node.op.as_str(), "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten");
        if view && node.outputs.first().is_some_and(|o| ir.shape(*o).is_some()) {
            ir.nodes[i].op = "Reshape".into();
            ir.nodes[i].inputs.truncate(1);
        }
    }
}

/// Joins reshapes with reshapes and transposes with transposes; drops those that change nothing.
pub(super) fn tidy(ir: &mut Ir<'_>) {
    // What readers of a value read instead; nodes come after what they read.
    let mut instead: Vec<ValueId> = (0..ir.values.len()).collect();
    for i in 0..ir.nodes.len() {
        for input in ir.nodes[i].inputs.iter_mut().flatten() {
            *input = instead[*input];
        }
        let (Some(Some(x)), Some(output)) =
            (ir.nodes[i].inputs.first().copied(), ir.nodes[i].outputs.first().copied())
        else {
            continue;
        };
        if let Some(same) = join(ir, i, x, output) {
            instead[output] = same;
        }
    }
    ir.outputs.iter_mut().for_each(|output| *output = instead[*output]);
    ir.count_uses();
}

/// Joins a node with the one before it; the value that it hands on when that changes nothing.
fn join(ir: &mut Ir<'_>, i: usize, x: ValueId, output: ValueId) -> Option<ValueId> {
    match ir.nodes[i].op.as_str() {
        "Reshape" => {
            let before = ir.under(x, "Reshape").filter(|before| ir.shape(*before).is_some());
            let x = before.unwrap_or(x);
            ir.nodes[i].inputs = vec![Some(x)];
            (ir.is_live(x) && ir.shape(x) == ir.shape(output)).then_some(x)
        }
        "Transpose" => {
            let outer = perm(ir, i)?;
            let inner = ir.under(x, "Transpose").zip(ir.values[x].producer);
            let joined = inner.and_then(|(before, node)| {
                let inner = perm(ir, node)?;
                Some((before, outer.iter().map(|at| inner[*at]).collect::<Vec<usize>>()))
            });
            let (before, whole) = joined.unwrap_or((x, outer));
            if ir.is_live(before) && whole.iter().copied().eq(0..whole.len()) {
                return Some(before);
            }
            let numbers = whole.into_iter().map(|at| at as i64).collect();
            ir.nodes[i].attributes.set_ints("perm", numbers);
            ir.nodes[i].inputs = vec![Some(before)];
            None
        }
        "AveragePool" | "MaxPool" => is_nothing(ir, i).then_some(x),
        "Expand" | "Tile" => (ir.is_live(x) && ir.shape(x) == ir.shape(output)).then_some(x),
        _ => None,
    }
}

/// A window of one pixel.
fn is_nothing(ir: &Ir<'_>, i: usize) -> bool {
    let attributes = &ir.nodes[i].attributes;
    let all = |name: &str, n: i64| attributes.ints(name).is_none_or(|v| v.iter().all(|x| *x == n));
    attributes.ints("kernel_shape").is_some_and(|k| k.iter().all(|x| *x == 1))
        && all("strides", 1)
        && all("pads", 0)
}

fn perm(ir: &Ir<'_>, i: usize) -> Option<Vec<usize>> {
    let node = &ir.nodes[i];
    Call { ir, op: &node.op, attributes: &node.attributes, inputs: &node.inputs }.perm()
}

/// Zeros put around an image by a node of their own become the padding of the convolution.
pub(super) fn pad(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    let node = &ir.nodes[i];
    let padded = (*node.inputs.first()?)?;
    let pad = ir.made_by(padded, "Pad").filter(|_| node.op == "Conv")?;
    let call = Call { ir, op: "Pad", attributes: &pad.attributes, inputs: &pad.inputs };
    let [0, 0, top, left, 0, 0, bottom, right] = call.ints(1, "pads")?[..] else { return None };
    let zeros = pad.attributes.text("mode").is_none_or(|mode| mode == "constant")
        && pad.inputs.get(2).copied().flatten().is_none_or(|v| ir.scalar(v) == Some(0.0))
        && pad.attributes.float("value").is_none_or(|value| value == 0.0)
        && pad.inputs.len() <= 3;
    if !zeros || !matches!(node.attributes.text("auto_pad"), None | Some("" | "NOTSET" | "VALID")) {
        return None;
    }
    // `VALID` is no padding of its own, whatever `pads` says.
    let valid = node.attributes.text("auto_pad") == Some("VALID");
    let own = node.attributes.ints("pads").filter(|_| !valid).unwrap_or(&[0; 4]);
    let sums = own.iter().zip([top, left, bottom, right]).map(|(a, b)| a.checked_add(b));
    let mut inputs: Vec<ValueId> = node.inputs.iter().copied().collect::<Option<_>>()?;
    *inputs.first_mut()? = pad.input(0)?;
    let mut attributes = node.attributes.clone();
    attributes.set_ints("pads", sums.collect::<Option<_>>()?);
    // An empty text is as good as none.
    attributes.set_int("auto_pad", 0);
    Some(Fused { op: "Conv", inputs, attributes })
}

/// The log likelihood of a log softmax is cross entropy.
pub(super) fn cross_entropy(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    let node = &ir.nodes[i];
    let ("NegativeLogLikelihoodLoss", [Some(scores), Some(labels)]) =
        (node.op.as_str(), &node.inputs[..])
    else {
        return None;
    };
    let softmax = ir.made_by(*scores, "LogSoftmax")?;
    let rank = ir.shape(*scores)?.len() as i64;
    // Both are over the classes, which are axis 1.
    if ![1, 1 - rank].contains(&softmax.attributes.int("axis").unwrap_or(-1)) {
        return None;
    }
    let logits = ir.under(*scores, "LogSoftmax")?;
    let (inputs, attributes) = (vec![logits, *labels], node.attributes.clone());
    Some(Fused { op: "SoftmaxCrossEntropyLoss", inputs, attributes })
}
