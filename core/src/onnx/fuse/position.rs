//! Positions that tokens tell: `x[batch, tokens.argmax()]`, CLIP's end of text.

use super::Fused;
use crate::onnx::ir::Ir;
use crate::onnx::node::{ValueId, axis};
use crate::onnx::tensor::Elem;

/// Features of each sample at the place that its tokens tell, in the form of both exporters.
pub(super) fn token_position(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    let node = &ir.nodes[i];
    let [Some(from), Some(indexes)] = node.inputs[..] else { return None };
    let (x, place) = match node.op.as_str() {
        "GatherND" if node.attributes.int("batch_dims").unwrap_or(0) == 0 => {
            (from, beside_samples(ir, indexes)?)
        }
        "Gather" if node.attributes.int("axis").unwrap_or(0) == 0 => {
            let x = ir.under(from, "Reshape")?;
            let [_, length, features] = *ir.shape(x)? else { return None };
            let joined = ir.shape(from)?.last() == Some(&features) && ir.shape(from)?.len() == 2;
            let [a, b] = ir.pair_under(indexes, "Add").filter(|_| joined)?;
            let place =
                if counts(ir, b, length) { a } else { counts(ir, a, length).then_some(b)? };
            (x, place)
        }
        _ => return None,
    };
    let [_, length, _] = *ir.shape(x)? else { return None };
    let (tokens, token) = largest(ir, place)?;
    if *ir.shape(tokens)?.last()? != length || ir.shape(tokens)?.len() != 2 {
        return None;
    }
    let mut fused = Fused::new("TokenPosition", vec![x, tokens]);
    token.into_iter().for_each(|token| fused.attributes.set_int("token", token));
    Some(fused)
}

/// `place` of `concat([0, 1, 2, ..], place)`, a row for each sample.
fn beside_samples(ir: &Ir<'_>, indexes: ValueId) -> Option<ValueId> {
    let joined = ir.made_by(indexes, "Concat")?;
    let [Some(samples), Some(place)] = joined.inputs[..] else { return None };
    let rank = ir.shape(indexes)?.len();
    let last = axis(joined.attributes.int("axis")?, rank)? == rank - 1;
    (last && counts(ir, samples, 1)).then_some(place)
}

/// What a value is without changes of its shape and of the kind of its numbers.
fn plain(ir: &Ir<'_>, mut value: ValueId) -> ValueId {
    while let Some(inner) = ["Reshape", "Cast"].iter().find_map(|op| ir.under(value, op)) {
        value = inner;
    }
    value
}

/// Whether a value is `0, step, 2 step, ..`, a number for each sample.
fn counts(ir: &Ir<'_>, value: ValueId, step: i64) -> bool {
    let value = plain(ir, value);
    if let Some(known) = ir.constant(value) {
        return known.counts(step);
    }
    if let Some(range) = ir.made_by(value, "Range") {
        let number = |at: usize| ir.scalar(range.input(at)?);
        return step == 1 && number(0) == Some(0.0) && number(2) == Some(1.0);
    }
    let Some([a, b]) = ir.pair_under(value, "Mul") else { return false };
    let is = |v: ValueId| ir.scalar(v) == Some(step as f64);
    is(a) && counts(ir, b, 1) || is(b) && counts(ir, a, 1)
}

/// The tokens whose first largest one a place is; or the token that it is the first of.
fn largest(ir: &Ir<'_>, place: ValueId) -> Option<(ValueId, Option<i64>)> {
    let argmax = ir.made_by(plain(ir, place), "ArgMax")?;
    let of = argmax.input(0)?;
    let rank = ir.shape(of)?.len();
    let last = axis(argmax.attributes.int("axis").unwrap_or(0), rank)? == rank - 1;
    if !last || argmax.attributes.int("select_last_index").unwrap_or(0) != 0 {
        return None;
    }
    let inner = plain(ir, of);
    let (tokens, token) = match ir.pair_under(inner, "Equal") {
        Some([tokens, token]) => (plain(ir, tokens), Some(ir.scalar(token)? as i64)),
        None => (inner, None),
    };
    (ir.values[tokens].elem == Elem::Int && ir.is_live(tokens)).then_some((tokens, token))
}
