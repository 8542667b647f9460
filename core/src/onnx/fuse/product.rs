//! Products and sums, whatever the order in which an exporter writes them.

use crate::onnx::ir::Ir;
use crate::onnx::node::ValueId;

/// Factors of a product, and products within products, beyond which nothing is looked for.
const MOST: usize = 6;

/// `scale · factor · factor ..`
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub scale: f64,
    pub factors: Vec<ValueId>,
}

/// A value as a product; its parts are taken apart when nobody else reads them.
pub(super) fn product(ir: &Ir<'_>, value: ValueId) -> Product {
    let mut product = Product { scale: 1.0, factors: vec![] };
    split(ir, value, 0, &mut product);
    product
}

fn split(ir: &Ir<'_>, value: ValueId, depth: usize, product: &mut Product) {
    if let Some(number) = ir.scalar(value) {
        product.scale *= number;
        return;
    }
    if product.factors.len() < MOST && depth < MOST && (depth == 0 || ir.once(value)) {
        if let Some([a, b]) = ir.pair_under(value, "Mul") {
            // x · x is one value that two slots read: `once` does not hold, yet it may be split.
            split(ir, a, depth + 1, product);
            split(ir, b, depth + 1, product);
            return;
        }
        if let Some([a, b]) = ir.pair_under(value, "Div")
            && let Some(number) = ir.scalar(b)
        {
            product.scale /= number;
            split(ir, a, depth + 1, product);
            return;
        }
        if let Some([x, power]) = ir.pair_under(value, "Pow")
            && let Some(power) = ir.scalar(power)
            && (power == 2.0 || power == 3.0)
        {
            product.factors.extend(vec![x; power as usize]);
            return;
        }
    }
    product.factors.push(value);
}

/// The other summand of a sum with a number.
pub(super) fn plus(ir: &Ir<'_>, value: ValueId, number: f64) -> Option<ValueId> {
    let [a, b] = ir.pair_under(value, "Add")?;
    let is = |v: ValueId| ir.scalar(v).is_some_and(|n| near(n, number));
    match (is(a), is(b)) {
        (true, _) => Some(b),
        (_, true) => Some(a),
        _ => None,
    }
}

/// Equal but for the rounding of single precision.
pub(super) fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * b.abs().max(1e-3)
}
