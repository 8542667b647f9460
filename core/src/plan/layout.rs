//! Offsets for values whose lifetimes are known.
//!
//! Interval packing by decreasing size: each value takes the lowest offset at which it overlaps no
//! value that lives at the same time. Not optimal in general (the problem is NP-hard), usually
//! within a few percent of the largest sum of live bytes. Values are compared with those of the same
//! time only: O(n k log k) where a value shares its time with k others.

use crate::units::Bytes;

/// Everything begins at a multiple of this: a cache line, and enough for any vector unit.
pub(super) const ALIGN: u64 = 64;

/// `bytes` rounded up to [`ALIGN`]; down where no number is that large.
pub(super) fn aligned(bytes: Bytes) -> Bytes {
    Bytes(bytes.0.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX - (ALIGN - 1)))
}

/// A block of memory and when it is needed: from the start of computation `first` to the end of
/// computation `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub bytes: Bytes,
    pub first: u32,
    pub last: u32,
}

/// Offsets of the blocks, and the size of the area that holds them all.
pub(super) fn pack(blocks: &[Block]) -> (Vec<Bytes>, Bytes) {
    // Largest first. Both lists that are sorted here are of one type: the page has the code once.
    let key = |i: usize| [u64::MAX - blocks[i].bytes.0, blocks[i].first.into(), i as u64];
    let mut order: Vec<[u64; 3]> = (0..blocks.len()).map(key).collect();
    order.sort_unstable();
    let mut offsets = vec![Bytes::ZERO; blocks.len()];
    let mut placed = Placed::new(blocks);
    let mut area = Bytes::ZERO;
    let mut living: Vec<[u64; 3]> = vec![];
    for i in order.into_iter().map(|[_, _, i]| i as usize) {
        let block = &blocks[i];
        let size = aligned(block.bytes);
        placed.living_with(blocks, block, &offsets, &mut living);
        // By ascending offset, so that one pass finds the lowest gap.
        living.sort_unstable();
        let mut offset = Bytes::ZERO;
        for &[from, end, _] in &living {
            if Bytes(from) >= offset + size {
                break;
            }
            offset = offset.max(Bytes(end));
        }
        offsets[i] = offset;
        area = area.max(offset + size);
        placed.insert(i, block);
    }
    (offsets, area)
}

/// Computations of a period.
const PERIOD: u32 = 32;

/// Placed blocks by the periods of time in which they live.
struct Placed {
    periods: Vec<Vec<usize>>,
    /// By block: the last one that asked about it.
    seen: Vec<usize>,
    asked: usize,
}

impl Placed {
    fn new(blocks: &[Block]) -> Self {
        let end = blocks.iter().map(|block| block.last / PERIOD + 1).max().unwrap_or(0);
        Self { periods: vec![vec![]; end as usize], seen: vec![0; blocks.len()], asked: 0 }
    }

    fn periods(block: &Block) -> std::ops::RangeInclusive<usize> {
        (block.first / PERIOD) as usize..=(block.last / PERIOD) as usize
    }

    fn insert(&mut self, at: usize, block: &Block) {
        self.periods[Self::periods(block)].iter_mut().for_each(|period| period.push(at));
    }

    /// Writes where the placed blocks lie that live at the same time as `block`: from, end, number.
    fn living_with(
        &mut self,
        blocks: &[Block],
        block: &Block,
        offsets: &[Bytes],
        living: &mut Vec<[u64; 3]>,
    ) {
        living.clear();
        self.asked += 1;
        for &other in self.periods[Self::periods(block)].iter().flatten() {
            let overlaps = blocks[other].first <= block.last && block.first <= blocks[other].last;
            if overlaps && std::mem::replace(&mut self.seen[other], self.asked) != self.asked {
                let (from, bytes) = (offsets[other], aligned(blocks[other].bytes));
                living.push([from.0, (from + bytes).0, other as u64]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_that_never_meet_share_memory() {
        let block = |bytes, first, last| Block { bytes: Bytes(bytes), first, last };
        let (offsets, area) = pack(&[block(100, 0, 1), block(64, 1, 2), block(128, 2, 3)]);
        assert_eq!(area, Bytes(192));
        assert_eq!(offsets[0], offsets[2]);
    }

    /// What [`pack`] says, looking at every block each time.
    fn plainly(blocks: &[Block]) -> (Vec<Bytes>, Bytes) {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(blocks[i].bytes), blocks[i].first, i));
        let mut offsets = vec![Bytes::ZERO; blocks.len()];
        let mut area = Bytes::ZERO;
        for (at, &i) in order.iter().enumerate() {
            let (block, size) = (&blocks[i], aligned(blocks[i].bytes));
            let meets = |other: &&usize| {
                blocks[**other].first <= block.last && block.first <= blocks[**other].last
            };
            let mut living: Vec<usize> = order[..at].iter().filter(meets).copied().collect();
            living.sort_by_key(|other| offsets[*other]);
            let mut offset = Bytes::ZERO;
            for other in living {
                if offsets[other] < offset + size {
                    offset = offset.max(offsets[other] + aligned(blocks[other].bytes));
                }
            }
            offsets[i] = offset;
            area = area.max(offset + size);
        }
        (offsets, area)
    }

    proptest! {
        #[test]
        fn living_blocks_never_overlap(
            raw in prop::collection::vec((0u64..5000, 0u32..90, 0u32..90), 0..60)
        ) {
            let block = |&(bytes, a, b): &(u64, u32, u32)| Block {
                bytes: Bytes(bytes),
                first: a.min(b),
                last: a.max(b),
            };
            let blocks: Vec<Block> = raw.iter().map(block).collect();
            let (offsets, area) = pack(&blocks);
            for (i, a) in blocks.iter().enumerate() {
                prop_assert!(offsets[i] + aligned(a.bytes) <= area);
                prop_assert_eq!(offsets[i].0 % ALIGN, 0);
                for (j, b) in blocks.iter().enumerate().skip(i + 1) {
                    let live = a.first <= b.last && b.first <= a.last;
                    let apart = offsets[i] + a.bytes <= offsets[j]
                        || offsets[j] + b.bytes <= offsets[i];
                    prop_assert!(!live || apart);
                }
            }
            prop_assert_eq!((&offsets, area), (&plainly(&blocks).0, plainly(&blocks).1));
            let most = (0..90).map(|t| {
                let live = blocks.iter().filter(|b| b.first <= t && t <= b.last);
                live.map(|b| aligned(b.bytes)).sum::<Bytes>()
            }).max().unwrap();
            prop_assert!(area >= most);
        }
    }
}
