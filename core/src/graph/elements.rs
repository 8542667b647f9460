//! Numbers of trained values.

use super::{Graph, Node, Op};
use crate::ids::ParamId;
use std::collections::BTreeSet;
use std::ops::Range;

impl Graph {
    /// Number of trained values, as papers count parameters: a tied parameter once.
    pub fn trainable_elements(&self) -> u64 {
        self.elements_of(0..self.nodes.len())
    }

    /// Trained values that some nodes have together: tables that several of them share once, and where a
    /// tensor group divides them whole.
    pub fn elements_of(&self, nodes: Range<usize>) -> u64 {
        let original = |node: &Node, id: ParamId| match node.op {
            Op::TiedLinear { weight, .. } if node.params.first() == Some(&id) => weight,
            _ => id,
        };
        let used = self.nodes[nodes].iter();
        let used = used.flat_map(|n| n.params.iter().map(move |id| original(n, *id)));
        let used: BTreeSet<ParamId> = used.filter(|id| self.param(*id).trainable).collect();
        used.iter().map(|id| self.whole_elements(*id)).sum()
    }

    fn whole_elements(&self, id: ParamId) -> u64 {
        let shards = self.shards(id).map(|shards| shards.shape.iter().product());
        shards.unwrap_or_else(|| self.param(id).elements())
    }
}
