//! Offsets for values whose lifetimes are known.
//!
//! Interval packing by decreasing size: each value takes the lowest offset at which it overlaps no
//! value that lives at the same time. Not optimal in general (the problem is NP-hard), usually
//! within a few percent of the largest sum of live bytes. O(n²) in the number of values.

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
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(blocks[i].bytes), blocks[i].first, i));
    let mut offsets = vec![Bytes::ZERO; blocks.len()];
    // Placed blocks by ascending offset, so that one pass finds the lowest gap.
    let mut placed: Vec<usize> = vec![];
    let mut area = Bytes::ZERO;
    for i in order {
        let block = &blocks[i];
        let size = aligned(block.bytes);
        let mut offset = Bytes::ZERO;
        for &other in &placed {
            let overlaps = blocks[other].first <= block.last && block.first <= blocks[other].last;
            if !overlaps {
                continue;
            }
            if offsets[other] >= offset + size {
                break;
            }
            offset = offset.max(offsets[other] + aligned(blocks[other].bytes));
        }
        offsets[i] = offset;
        area = area.max(offset + size);
        let at = placed.partition_point(|&other| offsets[other] < offset);
        placed.insert(at, i);
    }
    (offsets, area)
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

    proptest! {
        #[test]
        fn living_blocks_never_overlap(
            raw in prop::collection::vec((0u64..5000, 0u32..20, 0u32..20), 0..40)
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
            let most = (0..20).map(|t| {
                let live = blocks.iter().filter(|b| b.first <= t && t <= b.last);
                live.map(|b| aligned(b.bytes)).sum::<Bytes>()
            }).max().unwrap();
            prop_assert!(area >= most);
        }
    }
}
