//! Division of a bucket for a two-shot sum. Ranks own parts, parts travel in chunks, and a chunk
//! is encoded in pieces, each of one tensor.
//!
//! ```text
//! tensors  |      weight of layer 2       |bias|        weight of layer 1        |
//! parts    |        rank 0       |        rank 1       |         rank 2          |
//! chunks   |       |       |     |       |       |     |       |        |        |
//! pieces   |       |       |     |       | |    | |    |       |        |        |
//! ```
//! Pieces never hold values of two tensors, whose sizes may differ a thousandfold: each has scales,
//! levels and codebooks of its own. Encoding, wire and decoding of different chunks overlap.

use super::CodecKind;
use std::ops::Range;

/// Values of a chunk, at most: 128 KiB in single precision. In eight bits its message is below the 64
/// KiB up to which Open MPI sends at once: just above it, four hosts at 250 Mbit/s took 17 % longer.
pub const CHUNK: usize = 1 << 15;

/// Parts begin at multiples of so many values of all tensors together.
const GRAIN: usize = 64;

/// One message of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// What is encoded by itself, as places in the bucket, ascending.
    pub pieces: Vec<Range<usize>>,
}

impl Chunk {
    /// Values in it.
    pub fn values(&self) -> usize {
        self.pieces.iter().map(Range::len).sum()
    }

    /// Bytes of its message, at most: exact for every codec but top-k.
    pub fn wire_bytes(&self, codec: CodecKind) -> u64 {
        self.pieces.iter().map(|piece| codec.wire_bytes(piece.len() as u64)).sum()
    }
}

/// A bucket among ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// By rank: the chunks of the part that it sums.
    pub parts: Vec<Vec<Chunk>>,
}

impl Division {
    /// Divides `tensors`, given as places in the bucket in ascending order, among `ranks` ranks. A
    /// tensor may lie in several parts; parts differ by at most 128 values.
    pub fn new(tensors: &[Range<usize>], ranks: u32) -> Self {
        let chunks = |part: Vec<Range<usize>>| {
            let count = total(&part).div_ceil(CHUNK);
            split(&part, count).into_iter().map(|pieces| Chunk { pieces }).collect()
        };
        Self { parts: split(tensors, ranks as usize).into_iter().map(chunks).collect() }
    }

    /// Bytes that the rank of part `part` sends in a two-shot sum: its values of the others' parts,
    /// then the sum of its own part to each of them.
    pub fn sent_bytes(&self, part: usize, codec: CodecKind) -> u64 {
        let (all, own) = (self.wire_bytes(None, codec), self.wire_bytes(Some(part), codec));
        all - own + own * (self.parts.len() as u64 - 1)
    }

    /// Bytes of all chunks' messages: those of every part, or of one.
    pub fn wire_bytes(&self, part: Option<usize>, codec: CodecKind) -> u64 {
        let parts = self.parts.iter().enumerate().filter(|(at, _)| part.is_none_or(|p| p == *at));
        parts.flat_map(|(_, chunks)| chunks).map(|chunk| chunk.wire_bytes(codec)).sum()
    }
}

/// Values of several ranges together.
pub fn total(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(Range::len).sum()
}

/// Cuts `ranges` into `count` parts of equally many values, in order; a range may be cut.
pub fn split(ranges: &[Range<usize>], count: usize) -> Vec<Vec<Range<usize>>> {
    let grains = total(ranges).div_ceil(GRAIN);
    let ends = (1..=count).map(|part| grains * part / count * GRAIN);
    let mut rest = ranges.iter().filter(|range| !range.is_empty()).cloned();
    let mut open = rest.next();
    let mut done = 0;
    ends.map(|end| {
        let mut part = vec![];
        while done < end
            && let Some(range) = open.take()
        {
            let take = range.len().min(end - done);
            part.push(range.start..range.start + take);
            done += take;
            open =
                if take < range.len() { Some(range.start + take..range.end) } else { rest.next() };
        }
        part
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_is_in_one_piece(
            lens in prop::collection::vec((0usize..5000, 0usize..20), 0..12), ranks in 1u32..9,
        ) {
            let mut at = 0;
            let mut tensors = vec![];
            for (len, gap) in lens {
                tensors.push(at..at + len);
                at += len + gap;
            }
            let division = Division::new(&tensors, ranks);
            let chunks = division.parts.iter().flatten();
            let found: Vec<usize> = chunks.flat_map(|c| &c.pieces).flat_map(Range::clone).collect();
            let expected: Vec<usize> = tensors.iter().flat_map(Range::clone).collect();
            prop_assert_eq!(found, expected);
            let sizes = division.parts.iter().map(|p| p.iter().map(Chunk::values).sum::<usize>());
            let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
            prop_assert!(most - least <= 2 * GRAIN, "{} to {}", least, most);
            for piece in division.parts.iter().flatten().flat_map(|c| &c.pieces) {
                prop_assert!(tensors.iter().any(|t| t.start <= piece.start && piece.end <= t.end));
            }
        }
    }

    #[test]
    fn one_bit_sends_a_thirty_first_of_single_precision() {
        let division = Division::new(&[0..1 << 18, 1 << 18..(1 << 18) + 512], 4);
        let one_bit = CodecKind::OneBit { threshold: Default::default() };
        for part in 0..4 {
            let plain = division.sent_bytes(part, CodecKind::Fp32);
            let sent = division.sent_bytes(part, one_bit);
            assert!(sent * 31 <= plain, "{sent} of {plain} bytes");
        }
        assert_eq!(division.sent_bytes(0, CodecKind::Fp32), 6 * ((1 << 18) + 512));
    }
}
