//! Fusion: what exporters take apart is put together again.
//!
//! Each pass looks at the nodes from the first to the last and rewrites the node that ends a
//! pattern; the others stay and are read no more. Names with a capital that ONNX does not have,
//! such as `Linear` or `ScaledDotProduct`, are ours.

mod activation;
mod attention;
mod heads;
mod linear;
mod norm;
mod position;
mod product;
mod rope;
mod tidy;

use super::ir::Ir;
use super::node::{Attributes, ValueId};

/// A rewritten node.
struct Fused {
    op: &'static str,
    inputs: Vec<ValueId>,
    attributes: Attributes,
}

impl Fused {
    fn new(op: &'static str, inputs: Vec<ValueId>) -> Self {
        Self { op, inputs, attributes: Attributes::default() }
    }
}

/// Runs all passes.
pub(super) fn fuse(ir: &mut Ir<'_>) {
    ir.count_uses();
    tidy::reshapes(ir);
    pass(ir, tidy::pad);
    pass(ir, tidy::cross_entropy);
    pass(ir, linear::product);
    pass(ir, linear::bias);
    linear::unmerge(ir);
    pass(ir, norm::layer_norm);
    pass(ir, norm::rms_norm);
    pass(ir, norm::group_norm);
    pass(ir, activation::activation);
    pass(ir, activation::swiglu);
    pass(ir, rope::rope);
    pass(ir, position::token_position);
    attention::attention(ir);
    tidy::tidy(ir);
    pass(ir, heads::side_by_side);
}

/// Rewrites every node for which `find` finds something.
fn pass(ir: &mut Ir<'_>, find: impl Fn(&Ir<'_>, usize) -> Option<Fused>) {
    for i in 0..ir.nodes.len() {
        if ir.matters(i)
            && let Some(fused) = find(ir, i)
        {
            replace(ir, i, fused);
        }
    }
    ir.count_uses();
}

fn replace(ir: &mut Ir<'_>, i: usize, fused: Fused) {
    let node = &mut ir.nodes[i];
    node.op = fused.op.into();
    node.inputs = fused.inputs.into_iter().map(Some).collect();
    node.attributes = fused.attributes;
}
