//! Numbers of trained values.

use super::{Graph, Op};
use crate::ids::ParamId;
use std::ops::Range;

impl Graph {
    /// Number of trained values, as papers count parameters: a tied parameter once.
    pub fn trainable_elements(&self) -> u64 {
        self.elements_of(0..self.nodes.len())
    }

    /// Trained values that some nodes have together: tables that several of them share once, and where a
    /// tensor group divides them whole.
    pub fn elements_of(&self, nodes: Range<usize>) -> u64 {
        let mut counted = vec![false; self.params.len()];
        let mut elements = 0;
        for node in &self.nodes[nodes] {
            for id in &node.params {
                let id = match node.op {
                    Op::TiedLinear { weight, .. } if node.params[0] == *id => weight,
                    _ => *id,
                };
                if self.param(id).trainable && !std::mem::replace(&mut counted[id.index()], true) {
                    elements += self.whole_elements(id);
                }
            }
        }
        elements
    }

    fn whole_elements(&self, id: ParamId) -> u64 {
        let shards = self.shards(id).map(|shards| shards.shape.iter().product());
        shards.unwrap_or_else(|| self.param(id).elements())
    }
}
