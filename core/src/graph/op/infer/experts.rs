//! Shapes of a mixture of experts.

use super::layout::floats;
use crate::graph::tensor::TensorSpec;

/// Shares of the largest.
pub(super) fn top_k(logits: &TensorSpec, k: u64) -> Result<TensorSpec, String> {
    match floats(logits)?.shape.last() {
        Some(experts) if (1..=*experts).contains(&k) => Ok(logits.clone()),
        _ => Err(format!("cannot take {k} of the last axis of {logits}")),
    }
}

/// Tokens as rows of experts.
pub(super) fn dispatch(
    x: &TensorSpec,
    shares: &TensorSpec,
    [experts, capacity]: [u64; 2],
) -> Result<TensorSpec, String> {
    match (&floats(x)?.shape[..], &floats(shares)?.shape[..]) {
        ([tokens, features], [others, all]) if tokens == others && divides(experts, *all) => {
            match (1..=*tokens).contains(&capacity) {
                true => Ok(TensorSpec::f32(vec![experts, capacity, *features])),
                false => Err(format!("a capacity of {capacity} rows is not among 1 to {tokens}")),
            }
        }
        _ => Err(format!(
            "needs [tokens, features] and shares [tokens, {experts} experts], got {x} and {shares}"
        )),
    }
}

/// A product for each expert.
pub(super) fn grouped(x: &TensorSpec, out_features: u64) -> Result<TensorSpec, String> {
    match floats(x)?.shape[..] {
        [experts, rows, features] if features > 0 && out_features > 0 => {
            Ok(TensorSpec::f32(vec![experts, rows, out_features]))
        }
        _ => Err(format!("needs [experts, rows, features], got {x}")),
    }
}

/// Rows of experts as tokens.
pub(super) fn combine(shares: &TensorSpec, rows: &TensorSpec) -> Result<TensorSpec, String> {
    match (&floats(shares)?.shape[..], &floats(rows)?.shape[..]) {
        ([tokens, all], [experts, _, features]) if divides(*experts, *all) => {
            Ok(TensorSpec::f32(vec![*tokens, *features]))
        }
        _ => Err(format!(
            "needs shares [tokens, experts] and [experts, rows, features], got {shares} and {rows}"
        )),
    }
}

/// Whether each rank of some group has so many of all experts.
fn divides(experts: u64, all: u64) -> bool {
    experts > 0 && all.is_multiple_of(experts)
}
