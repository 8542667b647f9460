//! Facts of the whole graph that gradients need, however it is divided into stages.

use crate::graph::{Graph, Node};
use crate::ids::NodeId;

/// Where gradients flow, and who reads what.
pub(super) struct Flow {
    /// Whether gradients flow through a node.
    pub differentiable: Vec<bool>,
    /// Where the readers of each node begin in `readers`; the end of all.
    first: Vec<u32>,
    /// (Reader, its input's index), ascending for each node.
    readers: Vec<(NodeId, u32)>,
}

impl Flow {
    /// Linear in nodes and their inputs.
    pub fn new(graph: &Graph) -> Self {
        let nodes = graph.nodes();
        let mut first = vec![0u32; nodes.len() + 1];
        // Inputs that no gradient flows to have no readers in that sense.
        let read = |node: &Node, slot: u32| node.op.differentiates(slot);
        for node in nodes {
            for (slot, input) in (0..).zip(&node.inputs) {
                first[input.index() + 1] += u32::from(read(node, slot));
            }
        }
        for at in 0..nodes.len() {
            first[at + 1] += first[at];
        }
        let mut free = first.clone();
        let mut readers = vec![(NodeId(0), 0); first[nodes.len()] as usize];
        for (reader, node) in (0..).map(NodeId).zip(nodes) {
            for (slot, input) in (0..).zip(&node.inputs).filter(|(slot, _)| read(node, *slot)) {
                readers[free[input.index()] as usize] = (reader, slot);
                free[input.index()] += 1;
            }
        }
        Self { differentiable: differentiable(graph), first, readers }
    }

    /// Readers of a node that contribute to its gradient, ascending.
    pub fn uses(&self, node: NodeId) -> &[(NodeId, u32)] {
        let [from, to] = [node.index(), node.index() + 1].map(|at| self.first[at] as usize);
        &self.readers[from..to]
    }
}

/// Inputs that gradients flow to.
pub(super) fn inputs(node: &Node) -> impl Iterator<Item = NodeId> {
    let inputs = (0..).zip(&node.inputs).filter(|(slot, _)| node.op.differentiates(*slot));
    inputs.map(|(_, input)| *input)
}

/// Whether gradients flow through each node: a trained parameter lies at or before it, and the
/// loss at or after it.
fn differentiable(graph: &Graph) -> Vec<bool> {
    let nodes = graph.nodes();
    let trained = |n: &Node| n.params.iter().any(|p| graph.param(*p).trainable);
    let mut behind = vec![false; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        behind[i] = trained(node) || inputs(node).any(|input| behind[input.index()]);
    }
    let mut ahead = vec![false; nodes.len()];
    for (i, node) in nodes.iter().enumerate().rev() {
        ahead[i] |= node.op.is_loss();
        for input in inputs(node) {
            ahead[input.index()] |= ahead[i];
        }
    }
    behind.iter().zip(&ahead).map(|(b, a)| *b && *a).collect()
}
