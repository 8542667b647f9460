//! One rank's share of the work for the sum of a bucket, and the memory that it takes.
//!
//! Flat: the group's ranks exchange encoded values with each other. Hierarchical: a host's ranks sum
//! in single precision first, and only sums travel encoded between hosts, on as many **shards** side by side
//! as each host has ranks:
//!
//! ```text
//!  host A  rank 0, 1     shard 0: rank 0 <-- encoded --> rank 2     first half of the values
//!  host B  rank 2, 3     shard 1: rank 1 <-- encoded --> rank 3     second half
//! ```

use super::division::{Division, split, total};
use super::{Algorithm, Reduction};
use std::ops::Range;

/// A rank's share of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Ranks that exchange encoded values of the same places, this one among them, in an order that
    /// all of them know. Empty where this rank has no shard, or the group is on one host.
    pub across: Vec<u32>,
    /// The places of those values in the bucket, a range a tensor.
    pub tensors: Vec<Range<usize>>,
    /// What the host does by itself; none in flat sums.
    pub intra_node: Option<IntraNode>,
    /// This rank's place among `across`.
    part: usize,
}

/// The part of a host in a hierarchical sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntraNode {
    /// Its ranks, in the order of the group; of shard j the j-th is the owner.
    pub ranks: Vec<u32>,
    /// By shard, its places in the bucket.
    pub shards: Vec<Vec<Range<usize>>>,
}

impl Share {
    /// The share of `rank` in a flat sum over `group`. One rank alone exchanges nothing.
    ///
    /// # Panics
    /// When the rank is not in its group.
    pub fn flat(group: &[u32], tensors: &[Range<usize>], rank: u32) -> Self {
        let part = place(group, rank).expect("a rank sums in its own groups");
        if group.len() == 1 {
            return Self { across: vec![], tensors: vec![], intra_node: None, part: 0 };
        }
        Self { across: group.to_vec(), tensors: tensors.to_vec(), intra_node: None, part }
    }

    /// The share of `rank` in a hierarchical sum; `host` names a rank's host by a number. Where no
    /// host has two of the ranks it is the flat one.
    ///
    /// # Panics
    /// When the rank is not in its group.
    pub fn hierarchical(
        group: &[u32],
        tensors: &[Range<usize>],
        rank: u32,
        host: impl Fn(u32) -> u32,
    ) -> Self {
        let mut hosts: Vec<(u32, Vec<u32>)> = vec![];
        for &member in group {
            match hosts.iter_mut().find(|(name, _)| *name == host(member)) {
                Some((_, ranks)) => ranks.push(member),
                None => hosts.push((host(member), vec![member])),
            }
        }
        if hosts.len() == group.len() {
            return Self::flat(group, tensors, rank);
        }
        let mut share = Self { across: vec![], tensors: vec![], intra_node: None, part: 0 };
        if hosts.len() == 1 {
            return share;
        }
        let count = hosts.iter().map(|(_, ranks)| ranks.len()).min().unwrap_or(1);
        let shards = split(tensors, count);
        let own = hosts.iter().position(|(_, ranks)| ranks.contains(&rank));
        share.part = own.expect("a rank sums in its own groups");
        let ranks = hosts[share.part].1.clone();
        if let Some(shard) = place(&ranks, rank).filter(|shard| *shard < count) {
            share.across = hosts.iter().map(|(_, ranks)| ranks[shard]).collect();
            share.tensors = shards[shard].clone();
        }
        share.intra_node = Some(IntraNode { ranks, shards });
        share
    }

    /// How its values are cut among the ranks across.
    pub fn division(&self) -> Division {
        Division::new(&self.tensors, self.across.len().max(1) as u32)
    }

    /// This rank's place among those across, which is also the number of the part that it sums.
    pub fn part(&self) -> usize {
        self.part
    }

    /// Values that this rank carries over with error feedback: its own of all places, and sums of its
    /// part. Neither depends on the codec.
    pub fn residuals(&self, reductions: &[Reduction]) -> (usize, usize) {
        if self.across.is_empty() {
            return (0, 0);
        }
        let with = |algorithm: Option<Algorithm>| {
            let fits = |r: &&Reduction| algorithm.is_none_or(|a| r.algorithm == a);
            reductions.iter().filter(fits).any(|r| r.method.feedback)
        };
        let own = || self.division().parts[self.part].iter().map(|chunk| chunk.values()).sum();
        let worker = if with(None) { total(&self.tensors) } else { 0 };
        (worker, if with(Some(Algorithm::TwoShot)) { own() } else { 0 })
    }

    /// Bytes that a rank keeps for sums of the bucket by any of `reductions`: buffers and residuals,
    /// and copies of these where a sum may have to be `undone`.
    pub fn bytes(&self, reductions: &[Reduction], undone: bool) -> u64 {
        let (worker, server) = self.residuals(reductions);
        let copies = 1 + u64::from(undone);
        self.buffers(reductions).total() + 4 * copies * (worker + server) as u64
    }

    /// Buffers that any of `reductions` fits in.
    pub fn buffers(&self, reductions: &[Reduction]) -> Buffers {
        reductions.iter().fold(Buffers::default(), |most, r| most.max(self.buffers_of(r)))
    }

    fn buffers_of(&self, reduction: &Reduction) -> Buffers {
        if self.across.is_empty() || reduction.is_plain() {
            return Buffers::default();
        }
        if reduction.algorithm == Algorithm::Operator {
            let codes = total(&self.tensors) as u64;
            return Buffers { out: codes, incoming: 0, scales: 4 * self.tensors.len() as u64 };
        }
        let (division, codec) = (self.division(), reduction.method.codec);
        let all = division.wire_bytes(None, codec);
        let own = division.wire_bytes(Some(self.part), codec);
        let incoming = all - own + own * (self.across.len() as u64 - 1);
        Buffers { out: all + own, incoming, scales: 0 }
    }
}

/// Bytes of messages of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// What this rank encodes: its values of all parts, and the sum of its own. Codes of the operator.
    pub out: u64,
    /// What others send: their values of this rank's part, and the sums of the other parts.
    pub incoming: u64,
    /// The operator's common scales.
    pub scales: u64,
}

impl Buffers {
    fn max(self, other: Self) -> Self {
        Self {
            out: self.out.max(other.out),
            incoming: self.incoming.max(other.incoming),
            scales: self.scales.max(other.scales),
        }
    }

    /// All of them.
    pub fn total(self) -> u64 {
        self.out + self.incoming + self.scales
    }
}

fn place(ranks: &[u32], rank: u32) -> Option<usize> {
    ranks.iter().position(|other| *other == rank)
}
