//! Merged initialisers told apart by the modules that read them.

use super::Weights;
use crate::onnx::names;
use crate::onnx::proto::{Node, Tensor};
use crate::onnx::weights::numbers;
use std::collections::BTreeMap;

/// What an operation takes a weight for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The scale of a norm.
    Scale,
    /// The shift of a norm, or a bias.
    Shift,
    /// Anything else.
    Other,
}

/// Readers in modules that the initialiser does not belong to get copies: one module, one copy. A
/// matrix that an embedding and a head read stays one: these are ties.
pub(super) fn separate(weights: &mut Weights<'_>, nodes: &mut [Node]) {
    let mut readers: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        for (slot, name) in node.input.iter().enumerate() {
            if weights.get(name).is_some() {
                readers.entry(name.clone()).or_default().push((at, slot));
            }
        }
    }
    for (name, places) in readers.into_iter().filter(|(_, places)| places.len() > 1) {
        let Some(tensor) = weights.get(&name) else { continue };
        let mergeable = uniform(tensor);
        let vector = tensor.dims.iter().filter(|n| **n != 1).count() <= 1;
        let made_up = names::is_made_up(&name);
        let mut home = name.rsplit_once('.').filter(|_| !made_up).map(|(module, _)| module);
        let scopes: Vec<String> = places.iter().map(|(at, _)| names::scope(&nodes[*at])).collect();
        for ((at, slot), scope) in places.into_iter().zip(&scopes) {
            let role = role(&nodes[at], slot);
            let home = *home.get_or_insert(scope);
            let inside =
                scope.strip_prefix(home).is_some_and(|s| s.is_empty() || s.starts_with('.'));
            let merged = match role {
                Role::Scale | Role::Shift => vector && mergeable != Some(false),
                Role::Other => mergeable == Some(true) && (vector || !made_up),
            };
            if scope.is_empty() || inside || !merged {
                continue;
            }
            let wanted = match role {
                Role::Scale => format!("{scope}.weight"),
                Role::Shift => format!("{scope}.bias"),
                Role::Other => format!("{}_of_{}", name.replace('.', "_"), scope.replace('.', "_")),
            };
            nodes[at].input[slot] = weights.copy(&name, &wanted);
        }
    }
}

/// Whether all elements are equal; none when they are not at hand.
fn uniform(tensor: &Tensor) -> Option<bool> {
    let elements = crate::onnx::tensor::count(&tensor.dims)?;
    if tensor.data_location == 1 {
        return None;
    }
    let values = numbers(tensor, usize::try_from(elements).ok()?)?;
    Some(values.windows(2).all(|pair| pair[0] == pair[1]))
}

fn role(node: &Node, slot: usize) -> Role {
    match (node.op_type.as_str(), slot) {
        ("Gemm" | "Conv" | "ConvTranspose", 2) => Role::Shift,
        (op, 1) if op.ends_with("Normalization") => Role::Scale,
        (op, 2) if op.ends_with("Normalization") => Role::Shift,
        _ => Role::Other,
    }
}
