//! Operations on tensors whose values are known.

mod elementwise;
mod index;
mod layout;

pub(super) use layout::{permutation, reshaped};

use super::node::Attributes;
use super::tensor::Tensor;

/// The outputs of an operation, when it is one that is computed here and its inputs fit.
pub(super) fn fold(
    op: &str,
    attributes: &Attributes,
    inputs: &[Option<&Tensor>],
) -> Option<Vec<Tensor>> {
    if op == "Split" {
        return layout::split(attributes, inputs);
    }
    let one = elementwise::fold(op, attributes, inputs)
        .or_else(|| layout::fold(op, attributes, inputs))
        .or_else(|| index::fold(op, attributes, inputs))?;
    Some(vec![one])
}
