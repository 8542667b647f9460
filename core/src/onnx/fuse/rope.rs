//! Rotary positions: `x cos + rotated(x) sin` with tables.

use super::Fused;
use super::product::near;
use crate::onnx::ir::Ir;
use crate::onnx::node::{ValueId, axis};
use crate::onnx::shapes::Call;

pub(super) fn rope(ir: &Ir<'_>, i: usize) -> Option<Fused> {
    let node = &ir.nodes[i];
    let ("Add", [Some(a), Some(b)]) = (node.op.as_str(), &node.inputs[..]) else { return None };
    let found = |straight: ValueId, turned: ValueId| {
        let (x, cos) = with_table(ir, straight)?;
        let (rotated, sin) = with_table(ir, turned)?;
        if rotated_of(ir, rotated)? != x {
            return None;
        }
        let base = base(&cos, &sin, ir.shape(x)?.iter().copied().nth_back(1)?)?;
        let mut fused = Fused::new("Rope", vec![x]);
        fused.attributes.set_float("base", base);
        Some(fused)
    };
    found(*a, *b).or_else(|| found(*b, *a))
}

/// Rows and columns of a table.
type Table = (usize, usize, Vec<f64>);

/// `x` and the table of `x · table`.
fn with_table(ir: &Ir<'_>, value: ValueId) -> Option<(ValueId, Table)> {
    let [a, b] = ir.pair_under(value, "Mul")?;
    let (x, table) = if ir.is_live(a) { (a, b) } else { (b, a) };
    let fits = ir.is_live(x) && !ir.is_live(table);
    fits.then(|| Some((x, ir.constant(table)?.matrix()?)))?
}

/// `x` of `concat(-second half, first half)` along the last axis.
fn rotated_of(ir: &Ir<'_>, value: ValueId) -> Option<ValueId> {
    let joined = ir.made_by(value, "Concat")?;
    let [Some(second), Some(first)] = joined.inputs[..] else { return None };
    let rank = ir.shape(value)?.len();
    if axis(joined.attributes.int("axis")?, rank)? != rank - 1 {
        return None;
    }
    let half = ir.shape(value)?[rank - 1] / 2;
    let (x, start, end) = part(ir, ir.under(second, "Neg")?)?;
    let (same, zero, middle) = part(ir, first)?;
    (x == same && zero == 0 && middle == half && start == half && end == 2 * half).then_some(x)
}

/// What a value is the elements `start..end` of, along the last axis.
pub(super) fn part(ir: &Ir<'_>, value: ValueId) -> Option<(ValueId, i64, i64)> {
    let node = &ir.nodes[ir.values[value].producer?];
    let call = Call { ir, op: &node.op, attributes: &node.attributes, inputs: &node.inputs };
    let x = (*node.inputs.first()?)?;
    let shape = ir.shape(x)?;
    match node.op.as_str() {
        "Slice" => {
            let ranges = call.ranges()?;
            let (last, before) = ranges.split_last()?;
            let whole = before.iter().zip(shape).all(|(r, n)| *r == (0, *n, 1)) && last.2 == 1;
            whole.then_some((x, last.0, last.1))
        }
        "Split" => {
            let (at, sizes) = call.parts(node.outputs.len())?;
            let which = node.outputs.iter().position(|o| *o == value)?;
            let start: i64 = sizes[..which].iter().sum();
            (at == shape.len() - 1).then(|| (x, start, start + sizes[which]))
        }
        _ => None,
    }
}

/// The base of the angles `position · base^(-2i/d)`, when the tables hold these and no others.
fn base(cos: &Table, sin: &Table, length: i64) -> Option<f32> {
    let (rows, columns, cosines) = cos;
    let (also, wide, sines) = sin;
    let half = columns / 2;
    if (rows, columns) != (also, wide)
        || *rows < 2
        || *columns < 4
        || columns % 2 != 0
        || i64::try_from(*rows) != Ok(length)
    {
        return None;
    }
    // The second frequency tells the base; bases are round numbers.
    let angle = sines[columns + 1].atan2(cosines[columns + 1]);
    let exact = angle.powf(-(*columns as f64) / 2.0);
    let digits = 10f64.powi(exact.log10().floor() as i32 - 2);
    let base = [(exact / digits).round() * digits, exact].into_iter().find(|b| near(*b, exact))?;
    let fits = (0..*rows).all(|position| {
        (0..*columns).all(|j| {
            let angle = position as f64 * base.powf(-2.0 * (j % half) as f64 / *columns as f64);
            let at = position * columns + j;
            // Tables of single precision lose digits with the angle.
            let error = 1e-3 + 1e-6 * angle;
            (angle.cos() - cosines[at]).abs() < error && (angle.sin() - sines[at]).abs() < error
        })
    });
    (fits && base.is_finite() && base > 1.0).then_some(base as f32)
}
