//! All downsets of a directed acyclic graph, and which is which plus one unit.
//!
//! A downset (ideal) holds with a unit all that the unit needs; stages of a pipeline are the
//! differences of a chain of downsets. They correspond one to one to the antichains that PipeDream
//! (Narayanan et al. 2019) takes as states.
//!
//! Every downset but the empty one has one *parent*: itself without its unit of highest index,
//! which, units being in topological order, nothing in it needs. So a downset D grows into each of
//! its children exactly once and nothing is hashed or compared. The downset D + v with v below D's
//! highest unit h is found by the identity D + v = (P + v) + h, P being the parent of D: the child
//! that P + v has by h. O(downsets x width) time and memory.

/// Number of a downset; those with fewer units have lower numbers, the empty one has 0.
pub(super) type Downset = u32;

/// All downsets of a graph.
#[derive(Debug)]
pub(super) struct Lattice {
    /// The highest unit of each downset and the downset without it; of the empty one, nothing.
    tree: Vec<(u32, Downset)>,
    /// `next[first[d]..first[d + 1]]`: units that `d` can take in, ascending, and what comes out.
    first: Vec<u32>,
    next: Vec<(u32, Downset)>,
}

impl Lattice {
    /// Downsets of the graph where unit u needs all of `before[u]` (numbers below u). `None` when
    /// there are more than `limit`.
    pub(super) fn new(before: &[Vec<u32>], limit: usize) -> Option<Self> {
        let words = before.len().div_ceil(64).max(1);
        let needs = masks(before, words);
        let mut after = vec![vec![]; before.len()];
        for (unit, before) in (0..).zip(before) {
            before.iter().for_each(|need| after[*need as usize].push(unit));
        }
        let mut lattice = Self { tree: vec![(u32::MAX, 0)], first: vec![0, 0], next: Vec::new() };
        let mut bits = vec![0u64; words];
        let mut level = 0..1;
        while !level.is_empty() {
            let end = lattice.tree.len();
            lattice.first.truncate(level.start + 1);
            for downset in level.clone() {
                let own = &bits[downset * words..][..words];
                for unit in lattice.addable(downset, own, &needs, &after) {
                    // Numbers of non-children follow when the level is complete.
                    let mut grown = Downset::MAX;
                    let highest = lattice.tree[downset].0;
                    if highest == u32::MAX || unit > highest {
                        grown = lattice.tree.len() as Downset;
                        lattice.tree.push((unit, downset as Downset));
                        bits.extend_from_within(downset * words..(downset + 1) * words);
                        let last = bits.len() - words + unit as usize / 64;
                        bits[last] |= 1 << (unit % 64);
                    }
                    lattice.next.push((unit, grown));
                }
                lattice.first.push(lattice.next.len() as u32);
                if lattice.tree.len() > limit {
                    return None;
                }
            }
            for downset in level {
                lattice.complete(downset as Downset);
            }
            level = end..lattice.tree.len();
        }
        Some(lattice)
    }

    /// Units that `downset` can take in, ascending: its parent could already, or they needed its
    /// highest unit last.
    fn addable(&self, downset: usize, own: &[u64], needs: &[u64], after: &[Vec<u32>]) -> Vec<u32> {
        let (highest, parent) = self.tree[downset];
        let fits = |unit: &u32| {
            let needs = &needs[*unit as usize * own.len()..][..own.len()];
            own.iter().zip(needs).all(|(own, needs)| needs & !own == 0)
        };
        if highest == u32::MAX {
            return (0..after.len() as u32).filter(fits).collect();
        }
        let still = self.next(parent).iter().map(|(unit, _)| *unit).filter(|unit| *unit != highest);
        let mut units: Vec<u32> = still.collect();
        units.extend(after[highest as usize].iter().filter(|unit| fits(unit)));
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Fills in the downsets above `downset` that are not its children.
    fn complete(&mut self, downset: Downset) {
        let (highest, parent) = self.tree[downset as usize];
        for at in self.range(downset) {
            let (unit, grown) = self.next[at];
            if grown == Downset::MAX {
                let sibling = self.grown(parent, unit);
                self.next[at].1 = self.grown(sibling, highest);
            }
        }
    }

    fn range(&self, downset: Downset) -> std::ops::Range<usize> {
        self.first[downset as usize] as usize..self.first[downset as usize + 1] as usize
    }

    fn grown(&self, downset: Downset, unit: u32) -> Downset {
        let next = self.next(downset);
        let at = next.binary_search_by_key(&unit, |(unit, _)| *unit);
        next[at.expect("a unit that a downset can take in, a smaller one without it can too")].1
    }

    /// Units that `downset` can take in, and the downset that comes out.
    pub(super) fn next(&self, downset: Downset) -> &[(u32, Downset)] {
        &self.next[self.range(downset)]
    }

    /// Highest unit of `downset`, which is not the empty one, and the downset without it.
    pub(super) fn tree(&self, downset: Downset) -> (u32, Downset) {
        self.tree[downset as usize]
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    /// The downset of all units.
    pub(super) fn full(&self) -> Downset {
        self.tree.len() as Downset - 1
    }

    /// The units of `downset`, descending.
    pub(super) fn units(&self, mut downset: Downset) -> impl Iterator<Item = u32> + '_ {
        std::iter::from_fn(move || {
            let (unit, parent) = self.tree[downset as usize];
            downset = parent;
            (unit != u32::MAX).then_some(unit)
        })
    }

    /// Sum of `weight` over the units of each downset.
    pub(super) fn sums(&self, weight: impl Fn(u32) -> u64) -> Vec<u64> {
        let mut sums = vec![0u64; self.len()];
        for downset in 1..self.len() {
            let (unit, parent) = self.tree[downset];
            sums[downset] = sums[parent as usize].saturating_add(weight(unit));
        }
        sums
    }

    /// Every downset as a set of bits, one after the other, and how many words each has.
    pub(super) fn bits(&self, units: usize) -> (Vec<u64>, usize) {
        let words = units.div_ceil(64).max(1);
        let mut bits = vec![0u64; words * self.len()];
        for downset in 1..self.len() {
            let (unit, parent) = self.tree[downset];
            let from = parent as usize * words;
            bits.copy_within(from..from + words, downset * words);
            bits[downset * words + unit as usize / 64] |= 1 << (unit % 64);
        }
        (bits, words)
    }
}

/// What each unit needs, as bits.
fn masks(before: &[Vec<u32>], words: usize) -> Vec<u64> {
    let mut masks = vec![0u64; words * before.len()];
    for (unit, before) in before.iter().enumerate() {
        for need in before {
            masks[unit * words + *need as usize / 64] |= 1 << (need % 64);
        }
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Every subset tried.
        #[test]
        fn all_downsets_once(edges in prop::collection::vec((0u32..9, 0u32..9), 0..14)) {
            let mut before = vec![vec![]; 9];
            for (a, b) in edges.iter().filter(|(a, b)| a != b) {
                before[*a.max(b) as usize].push(*a.min(b));
            }
            let closed = |set: u32| (0..9).all(|u: usize| {
                set >> u & 1 == 0 || before[u].iter().all(|n| set >> n & 1 == 1)
            });
            let all: BTreeSet<u64> = (0..512u32).filter(|s| closed(*s)).map(u64::from).collect();
            let lattice = Lattice::new(&before, 1000).unwrap();
            let (bits, words) = lattice.bits(9);
            prop_assert_eq!(words, 1);
            prop_assert_eq!(bits.iter().copied().collect::<BTreeSet<_>>(), all);
            prop_assert_eq!(bits.len(), lattice.len());
            prop_assert_eq!(bits[lattice.full() as usize], 511);
            for d in 0..lattice.len() as u32 {
                let own = bits[d as usize];
                prop_assert_eq!(lattice.units(d).map(|u| 1 << u).sum::<u64>(), own);
                let next = lattice.next(d).iter().map(|(u, to)| (own | 1 << u, bits[*to as usize]));
                for (sum, to) in next {
                    prop_assert_eq!(sum, to);
                }
                let growing = (0..9).filter(|u| own >> u & 1 == 0 && closed((own | 1 << u) as u32));
                prop_assert_eq!(lattice.next(d).len(), growing.count());
            }
            prop_assert!(Lattice::new(&before, lattice.len() - 1).is_none());
        }
    }
}
