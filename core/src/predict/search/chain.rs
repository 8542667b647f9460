//! The blocks of a network in order, with sums over ranges in constant time.

use crate::cost::{Item, Workload};
use crate::units::{Bytes, Nanos};

/// A network for one size of micro-batch and one tensor-parallel degree.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Sums over the blocks before each.
    until: Vec<Sums>,
    /// By block: what its forward pass keeps.
    stash: Vec<Bytes>,
    /// By block: what crosses the border before it.
    inputs: Vec<Bytes>,
}

/// What blocks take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Forward pass.
    pub forward: Nanos,
    /// Gradient of the inputs.
    pub backward_input: Nanos,
    /// Gradient of the parameters.
    pub backward_weight: Nanos,
    /// Kept from the forward to the backward pass.
    pub stash: Bytes,
    /// What crosses the borders before the blocks.
    pub inputs: Bytes,
    /// Parameters.
    pub parameters: Bytes,
}

impl Sums {
    /// Forward and backward pass.
    pub fn time(&self) -> Nanos {
        self.forward + self.backward_input + self.backward_weight
    }

    fn add(&mut self, item: &Sums) {
        self.forward += item.forward;
        self.backward_input += item.backward_input;
        self.backward_weight += item.backward_weight;
        self.stash += item.stash;
        self.inputs += item.inputs;
        self.parameters += item.parameters;
    }

    fn minus(&self, before: &Sums) -> Sums {
        Sums {
            forward: self.forward.saturating_sub(before.forward),
            backward_input: self.backward_input.saturating_sub(before.backward_input),
            backward_weight: self.backward_weight.saturating_sub(before.backward_weight),
            stash: self.stash.saturating_sub(before.stash),
            inputs: self.inputs.saturating_sub(before.inputs),
            parameters: self.parameters.saturating_sub(before.parameters),
        }
    }
}

impl Chain {
    /// The blocks that begin at the items `blocks`; `None` where an item with work cannot be
    /// divided among `tensor` devices. Linear in items and edges.
    pub fn new(work: &Workload, blocks: &[u32], tensor: u32) -> Option<Self> {
        let block_of = |item: u32| blocks.partition_point(|first| *first <= item) - 1;
        let mut each = vec![Sums::default(); blocks.len()];
        for (index, item) in (0..).zip(&work.items) {
            each[block_of(index)].add(&costs(item, tensor)?);
        }
        for (block, crossing) in crossings(work, blocks.len(), block_of).into_iter().enumerate() {
            each[block].inputs = crossing;
        }
        let mut until = vec![Sums::default()];
        for sums in &each {
            let mut next = until[until.len() - 1];
            next.add(sums);
            until.push(next);
        }
        let stash = each.iter().map(|s| s.stash).collect();
        let inputs = each.iter().map(|s| s.inputs).collect();
        Some(Self { until, stash, inputs })
    }

    /// Blocks.
    pub fn len(&self) -> usize {
        self.stash.len()
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.stash.is_empty()
    }

    /// The blocks `from..to` together.
    pub fn range(&self, from: u32, to: u32) -> Sums {
        self.until[to as usize].minus(&self.until[from as usize])
    }

    /// The largest stash of one of the blocks `from..to`. O(to - from).
    pub fn largest_stash(&self, from: u32, to: u32) -> Bytes {
        self.stash[from as usize..to as usize].iter().copied().max().unwrap_or_default()
    }

    /// What crosses the border before `block`.
    pub fn input(&self, block: u32) -> Bytes {
        self.inputs[block as usize]
    }

    /// Forward and backward time of each block.
    pub fn times(&self) -> Vec<Nanos> {
        (0..self.len() as u32).map(|b| self.range(b, b + 1).time()).collect()
    }
}

/// An item on one of `tensor` devices.
fn costs(item: &Item, tensor: u32) -> Option<Sums> {
    let whole = Sums {
        forward: item.forward,
        backward_input: item.backward_input,
        backward_weight: item.backward_weight,
        stash: item.stash,
        inputs: Bytes::ZERO,
        parameters: item.parameters,
    };
    if tensor == 1 || item.time() == Nanos::ZERO {
        return Some(whole);
    }
    let shard = item.shards.iter().find(|s| s.degree == tensor && !s.recompute)?;
    // A shard's backward pass is divided as the item's own.
    let part = item.backward_weight.0 as f64 / item.backward().0.max(1) as f64;
    let weight = Nanos((shard.backward.0 as f64 * part) as u64);
    Some(Sums {
        forward: shard.forward,
        backward_input: shard.backward.saturating_sub(weight),
        backward_weight: weight,
        stash: shard.stash,
        inputs: Bytes::ZERO,
        parameters: shard.parameters,
    })
}

/// Bytes that cross the border before each block. A value with several readers travels once, as
/// far as its last reader.
fn crossings(work: &Workload, blocks: usize, block_of: impl Fn(u32) -> usize) -> Vec<Bytes> {
    let mut last: Vec<(usize, Bytes)> = vec![(0, Bytes::ZERO); work.items.len()];
    for edge in &work.edges {
        let entry = &mut last[edge.from as usize];
        entry.0 = entry.0.max(block_of(edge.to));
        entry.1 = entry.1.max(edge.bytes);
    }
    let mut total = vec![Bytes::ZERO; blocks];
    for (item, (reader, bytes)) in (0..).zip(last) {
        for border in total.iter_mut().take(reader + 1).skip(block_of(item) + 1) {
            *border += bytes;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Cluster, Costs};
    use crate::graph::Precision;
    use crate::graph::presets::Preset;

    #[test]
    fn blocks_add_up_and_borders_carry_what_the_division_says() {
        let graph = Preset::Resnet50.graph().unwrap();
        let cluster = Cluster::preset("dgx-a100").unwrap();
        let work = Workload::of(&graph, &Costs::new(&graph, &cluster, 4, Precision::F32));
        let blocks: Vec<u32> = graph.layers().iter().map(|l| l.first_node.0).collect();
        let chain = Chain::new(&work, &blocks, 1).unwrap();
        let all = chain.range(0, chain.len() as u32);
        assert_eq!(all.time(), work.time());
        assert_eq!(all.parameters, work.parameters());
        for (block, cut) in (1..).zip(&blocks[1..]) {
            let sent = graph.division(&[*cut]).crossings;
            let bytes: Bytes = sent.iter().map(|c| graph.node(c.node).output.bytes() * 4).sum();
            assert_eq!(chain.input(block), bytes, "before block {block}");
        }
        assert!(Chain::new(&work, &blocks, 2).is_none(), "has no shards");
    }
}
