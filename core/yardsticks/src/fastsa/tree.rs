//! The largest prefix sum of a changing array, bytes in use over time: as in core's `recompute::tree`, but
//! for batches of changes that are mostly taken back.
//!
//! A value that lives from slot `a` to slot `b` adds its bytes at `a` and takes them away at
//! `b + 1`; the memory at a slot is the sum up to it, its peak the largest prefix sum. Slots lie in
//! blocks of one cache line, and the tree stands on blocks: an eighth of the nodes, and three levels
//! fewer to climb.
//!
//! What two changes of a batch have in common is climbed once, and a climb ends where nothing
//! changes any more, which is soon where a batch moves bytes by a few slots: then the sums above are
//! as they were, and mostly the maxima too. O(log slots) a change at worst; the peak is O(1).

/// Slots of a block: 64 bytes.
const BLOCK: usize = 8;

/// Sum of a part, and the largest sum of a prefix of it that is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Part {
    sum: i64,
    most: i64,
}

impl Part {
    fn join(self, later: Self) -> Self {
        Self { sum: self.sum + later.sum, most: self.most.max(self.sum + later.most) }
    }
}

/// The array.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    slots: Vec<[i64; BLOCK]>,
    /// Node `i` has the children `2 i` and `2 i + 1`; the last half are the blocks.
    parts: Vec<Part>,
    /// Numbers of nodes to compute again, ascending.
    dirty: Vec<u32>,
    /// Nodes as they were before the last batch.
    log: Vec<(u32, Part)>,
}

impl Tree {
    /// Zeros, at least `slots` of them.
    pub fn new(slots: usize) -> Self {
        let blocks = slots.div_ceil(BLOCK).next_power_of_two().max(2);
        Self {
            slots: vec![[0; BLOCK]; blocks],
            parts: vec![Part::default(); 2 * blocks],
            dirty: vec![],
            log: vec![],
        }
    }

    /// Adds to each of some slots (in any order, also repeatedly) so many bytes, from there on.
    pub fn apply(&mut self, changes: &[(u32, i64)]) {
        self.log.clear();
        self.dirty.clear();
        for &(slot, bytes) in changes {
            let (block, place) = (slot as usize / BLOCK, slot as usize % BLOCK);
            self.slots[block][place] += bytes;
            // Batches are short: insertion keeps them sorted for less than a call of `sort`.
            let at = self.dirty.iter().rposition(|other| *other <= block as u32);
            if at.is_none_or(|at| self.dirty[at] != block as u32) {
                self.dirty.insert(at.map_or(0, |at| at + 1), block as u32);
            }
        }
        self.blocks();
        while !self.dirty.is_empty() && self.dirty[0] > 1 {
            self.level();
        }
    }

    /// Takes back the last batch, which was `changes`.
    pub fn undo(&mut self, changes: &[(u32, i64)]) {
        for &(slot, bytes) in changes {
            self.slots[slot as usize / BLOCK][slot as usize % BLOCK] -= bytes;
        }
        for (node, part) in self.log.drain(..) {
            self.parts[node as usize] = part;
        }
    }

    /// Computes the nodes of dirty blocks; those that changed are dirty then.
    fn blocks(&mut self) {
        let width = self.slots.len();
        let mut kept = 0;
        for i in 0..self.dirty.len() {
            let block = self.dirty[i] as usize;
            let mut part = Part { sum: 0, most: i64::MIN };
            for bytes in &self.slots[block] {
                part.sum += bytes;
                part.most = part.most.max(part.sum);
            }
            kept = self.set(width + block, part, kept);
        }
        self.dirty.truncate(kept);
    }

    /// Computes the parents of dirty nodes; those that changed are dirty then.
    fn level(&mut self) {
        let (mut kept, mut last) = (0, 0);
        for i in 0..self.dirty.len() {
            let node = self.dirty[i] as usize / 2;
            if node == last {
                continue;
            }
            last = node;
            let part = self.parts[2 * node].join(self.parts[2 * node + 1]);
            kept = self.set(node, part, kept);
        }
        self.dirty.truncate(kept);
    }

    /// Sets a node; if that changes it, it is dirty and so many are, one more than `kept`.
    fn set(&mut self, node: usize, part: Part, kept: usize) -> usize {
        let old = std::mem::replace(&mut self.parts[node], part);
        if old == part {
            return kept;
        }
        self.log.push((node as u32, old));
        self.dirty[kept] = node as u32;
        kept + 1
    }

    /// The largest prefix sum.
    pub fn peak(&self) -> i64 {
        self.parts[1].most
    }

    /// The first slot at which it is reached.
    pub fn peak_at(&self) -> usize {
        let mut i = 1;
        while i < self.slots.len() {
            let (left, right) = (self.parts[2 * i], self.parts[2 * i + 1]);
            i = if left.most >= left.sum + right.most { 2 * i } else { 2 * i + 1 };
        }
        let block = i - self.slots.len();
        let mut sum = 0;
        let reached = self.slots[block].iter().position(|bytes| {
            sum += bytes;
            sum == self.parts[i].most
        });
        block * BLOCK + reached.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Batches, and batches taken back, against sums from the beginning.
        #[test]
        fn batches_agree_with_plain_sums(
            batches in prop::collection::vec(
                (prop::collection::vec((0u32..200, -50i64..50), 0..9), any::<bool>()), 1..40),
        ) {
            let mut tree = Tree::new(200);
            let mut plain = vec![0i64; 256];
            for (batch, keep) in batches {
                tree.apply(&batch);
                if keep {
                    batch.iter().for_each(|(slot, bytes)| plain[*slot as usize] += bytes);
                } else {
                    tree.undo(&batch);
                }
                let mut sum = 0;
                let sums: Vec<i64> = plain.iter().map(|bytes| { sum += bytes; sum }).collect();
                let peak = *sums.iter().max().unwrap();
                prop_assert_eq!(tree.peak(), peak);
                prop_assert_eq!(Some(tree.peak_at()), sums.iter().position(|sum| *sum == peak));
            }
        }
    }
}
