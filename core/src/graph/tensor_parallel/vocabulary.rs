//! Tables of a vocabulary, heads that tell its entries apart, and their loss.

use super::super::{Graph, Node, Op};
use super::ParallelLinear;
use super::pairs::Pairs;
use crate::ids::{NodeId, ParamId};
use std::collections::BTreeMap;

impl Pairs {
    /// Divides the tables in which the network looks its tokens up, by entries, and the head that tells as many
    /// apart, by columns, where nothing but a loss over classes reads it. A table that is tied to something else
    /// stays whole. Returns the entries of tables and loss.
    pub fn divide_vocabulary(&mut self, graph: &Graph) -> BTreeMap<NodeId, u64> {
        let mut found = BTreeMap::new();
        let head = self.head(graph);
        for (id, node) in (0..).map(NodeId).zip(&graph.nodes) {
            let Op::Embedding { entries, .. } = node.op else { continue };
            let reads_tokens = matches!(graph.node(node.inputs[0]).op, Op::Tokens { .. });
            let is_free = tied(graph, node.params[0]).all(|tied| head.map(|h| h.0) == Some(tied));
            if !reads_tokens || !is_free {
                continue;
            }
            self.linears[id.index()] = Some(ParallelLinear::Vocabulary);
            found.insert(id, entries);
        }
        let Some((head, loss)) = head else { return found };
        let features = graph.node(head).output.shape.last().copied().unwrap_or(1);
        let divides = match graph.node(head).op {
            Op::TiedLinear { weight, .. } => {
                found.keys().any(|table| graph.node(*table).params[0] == weight)
            }
            _ => found.values().any(|entries| *entries == features),
        };
        if divides {
            let at = head.index();
            self.linears[at] = Some(ParallelLinear::Column);
            self.divided[at] = true;
            self.axes[at] = graph.node(head).output.shape.len().checked_sub(1);
            found.insert(loss, features);
        }
        found
    }

    /// The product whose outputs are the logits of a loss and nothing else, and the loss.
    fn head(&self, graph: &Graph) -> Option<(NodeId, NodeId)> {
        let loss = graph.loss()?;
        let Op::SoftmaxCrossEntropy { .. } = graph.node(loss).op else { return None };
        let head = *graph.node(loss).inputs.first()?;
        let multiplies = matches!(graph.node(head).op, Op::Linear { .. } | Op::TiedLinear { .. });
        let reads = |node: &&Node| node.inputs.contains(&head);
        let is_free = self.linears[head.index()].is_none()
            && graph.nodes.iter().filter(reads).count() == 1
            && graph.node(head).inputs.iter().all(|input| !self.divided[input.index()]);
        (multiplies && is_free).then_some((head, loss))
    }
}

/// The products whose weight is a table.
fn tied(graph: &Graph, table: ParamId) -> impl Iterator<Item = NodeId> {
    let uses =
        move |node: &Node| matches!(node.op, Op::TiedLinear { weight, .. } if weight == table);
    (0..).map(NodeId).zip(&graph.nodes).filter(move |(_, node)| uses(node)).map(|(id, _)| id)
}
