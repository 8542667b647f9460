//! `softmax(scale q kᵀ + mask) v`, with what exporters put between.

use super::product::product;
use super::{Fused, replace};
use crate::onnx::ir::Ir;
use crate::onnx::node::ValueId;
use crate::onnx::tensor::Tensor;

/// Scores at most this are no attention at all.
const MASKED: f64 = -1e4;

/// What was found.
struct Found {
    q: ValueId,
    keys_turned: ValueId,
    v: ValueId,
    scale: f64,
    causal: bool,
}

pub(super) fn attention(ir: &mut Ir<'_>) {
    for i in 0..ir.nodes.len() {
        if !ir.matters(i) {
            continue;
        }
        let Some(found) = find(ir, i) else { continue };
        let keys = unturned(ir, found.keys_turned);
        let mut fused = Fused::new(
            "ScaledDotProduct",
            vec![found.q, keys.unwrap_or(found.keys_turned), found.v],
        );
        fused.attributes.set_float("scale", found.scale as f32);
        fused.attributes.set_int("causal", found.causal.into());
        fused.attributes.set_int("turn_keys", keys.is_none().into());
        replace(ir, i, fused);
    }
    ir.count_uses();
}

fn find(ir: &Ir<'_>, i: usize) -> Option<Found> {
    let node = &ir.nodes[i];
    let ("MatMul", [Some(weights), Some(v)]) = (node.op.as_str(), &node.inputs[..]) else {
        return None;
    };
    let softmax = ir.made_by(without_nan(ir, *weights), "Softmax")?;
    let mut scores = softmax.input(0)?;
    let shape = ir.shape(scores)?;
    let last = shape.len().checked_sub(1)? as i64;
    if ![-1, last].contains(&softmax.attributes.int("axis").unwrap_or(-1)) {
        return None;
    }
    let (mut scale, mut causal) = (1.0, false);
    loop {
        let whole = product(ir, scores);
        scale *= whole.scale;
        scores = match whole.factors[..] {
            [one] => one,
            _ => return None,
        };
        if let Some((rest, mask)) = masked(ir, scores) {
            causal |= is_causal(&mask?, shape)?;
            scores = rest;
        } else if whole.scale == 1.0 {
            break;
        }
    }
    let [left, right] = ir.pair_under(scores, "MatMul")?;
    let (q, k) = (product(ir, left), product(ir, right));
    let ([q1], [k1]) = (&q.factors[..], &k.factors[..]) else { return None };
    let heads =
        |value: ValueId| ir.shape(value).and_then(|s| s.split_last_chunk::<2>()).map(|(h, _)| h);
    let alike = heads(*q1)? == heads(*k1)? && heads(*q1)? == heads(*v)? && !heads(*q1)?.is_empty();
    let live = ir.is_live(*q1) && ir.is_live(*k1) && ir.is_live(*v);
    let scale = scale * q.scale * k.scale;
    let sound = scale.is_finite() && scale > 0.0;
    (alike && live && sound).then_some(Found { q: *q1, keys_turned: *k1, v: *v, scale, causal })
}

/// A softmax whose rows without any attention are made zero.
fn without_nan(ir: &Ir<'_>, value: ValueId) -> ValueId {
    let inner = || {
        let node = ir.made_by(value, "Where")?;
        let [Some(test), Some(zero), Some(x)] = node.inputs[..] else { return None };
        let fits = ir.under(test, "IsNaN") == Some(x) && ir.scalar(zero) == Some(0.0);
        fits.then_some(x)
    };
    inner().unwrap_or(value)
}

/// Scores without their mask, and the mask as numbers to add when it is known.
fn masked(ir: &Ir<'_>, scores: ValueId) -> Option<(ValueId, Option<Tensor>)> {
    if let Some([a, b]) = ir.pair_under(scores, "Add") {
        let (rest, mask) = if ir.is_live(a) { (a, b) } else { (b, a) };
        let known = ir.is_live(rest) && !ir.is_live(mask) && !is_bias(ir, mask);
        return known.then(|| (rest, ir.constant(mask).map(|m| (*m).clone())));
    }
    let node = ir.made_by(scores, "Where")?;
    let [Some(test), Some(a), Some(b)] = node.inputs[..] else { return None };
    let test = ir.constant(test);
    let (rest, filled, seen) = match (ir.scalar(a), ir.scalar(b)) {
        (None, Some(filled)) => (a, filled, 1.0),
        (Some(filled), None) => (b, filled, 0.0),
        _ => return None,
    };
    let mask = test.map(|test| {
        let hidden = |x: f64| if f64::from(x != 0.0) == seen { 0.0 } else { filled };
        test.map(crate::onnx::tensor::Elem::Float, hidden)
    });
    ir.is_live(rest).then_some((rest, mask))
}

/// Whether a summand of the scores is learnt: a weight, or computed from one, that differs from head
/// to head, as relative positions do. Masks are the same for all heads.
fn is_bias(ir: &Ir<'_>, mask: ValueId) -> bool {
    let value = &ir.values[mask];
    let learnt = value.param.is_some() || value.producer.is_some();
    let heads = ir.shape(mask).and_then(|s| s.len().checked_sub(3).map(|at| s[at]));
    learnt && heads.is_some_and(|n| n > 1)
}

/// Whether a mask hides just what comes later; none when it hides anything else.
fn is_causal(mask: &Tensor, scores: &[i64]) -> Option<bool> {
    let whole = crate::onnx::tensor::broadcast(&mask.shape, &[1, 1])?;
    let (rows, columns, values) = mask.expand(&whole)?.matrix()?;
    if values.iter().all(|x| *x == 0.0) {
        return Some(false);
    }
    let [.., n, s] = *scores else { return None };
    let square = i64::try_from(rows) == Ok(n) && i64::try_from(columns) == Ok(s) && n == s;
    let fits = |at: usize, x: f64| match at % columns <= at / columns {
        true => x == 0.0,
        false => x <= MASKED,
    };
    (square && values.iter().enumerate().all(|(at, x)| fits(at, *x))).then_some(true)
}

/// The keys `[.., s, d]` of `[.., d, s]`, when the last step before was to turn them.
fn unturned(ir: &mut Ir<'_>, turned: ValueId) -> Option<ValueId> {
    let producer = ir.values[turned].producer?;
    let shape = ir.shape(turned)?.to_vec();
    let (d, s) = (shape.len() - 2, shape.len() - 1);
    let mut keys = shape.clone();
    keys.swap(d, s);
    if let Some(x) = ir.under(turned, "Transpose") {
        let mut perm = perm(ir, producer)?;
        perm.swap(d, s);
        if perm.iter().copied().eq(0..perm.len()) {
            return Some(x);
        }
        if !ir.once(turned) {
            return None;
        }
        let perm = perm.into_iter().map(|i| i as i64).collect();
        ir.nodes[producer].attributes.set_ints("perm", perm);
        ir.values[turned].shape = Some(keys);
        return Some(turned);
    }
    // Heads joined with the batch, turned, and parted again.
    let inner = ir.under(turned, "Reshape").filter(|_| ir.once(turned))?;
    let x = ir.under(inner, "Transpose")?;
    let from = ir.shape(inner)?;
    let rank = from.len();
    let same_ends = rank >= 2 && from[rank - 2..] == shape[d..];
    let mut perm = perm(ir, ir.values[inner].producer?)?;
    perm.swap(rank - 2, rank - 1);
    if !same_ends || !perm.iter().copied().eq(0..rank) {
        return None;
    }
    ir.nodes[producer].inputs = vec![Some(x)];
    ir.values[turned].shape = Some(keys);
    Some(turned)
}

fn perm(ir: &Ir<'_>, node: usize) -> Option<Vec<usize>> {
    let node = &ir.nodes[node];
    crate::onnx::shapes::Call {
        ir,
        op: &node.op,
        attributes: &node.attributes,
        inputs: &node.inputs,
    }
    .perm()
}
