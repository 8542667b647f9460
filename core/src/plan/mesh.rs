//! Mesh of ranks: which lane, replica and part of a tensor group each of them is.

use super::{Inputs, Plan};
use crate::ids::LaneId;

/// Rank `(lane x replicas + replica) x tensor + tensor rank` executes its part of `lane` for `replica`. As in
/// Megatron-LM, who talks most are neighbours: tensor groups, which sum activations, then replicas, because sums
/// of gradients are usually larger than messages between stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Copies of the pipeline.
    pub replicas: u32,
    /// Ranks of a tensor group.
    pub tensor: u32,
}

impl Mesh {
    /// Ranks of a lane. The `n`-th is tensor rank `n mod tensor` of replica `n / tensor`.
    pub fn copies(&self) -> u32 {
        self.replicas.saturating_mul(self.tensor)
    }

    /// The `copy`-th rank of a lane.
    pub fn rank(&self, lane: LaneId, copy: u32) -> u32 {
        lane.0 * self.copies() + copy
    }

    /// The lane of a rank, and which of the lane's ranks it is.
    pub fn place(&self, rank: u32) -> (LaneId, u32) {
        (LaneId(rank / self.copies()), rank % self.copies())
    }

    /// The lane of a rank.
    pub fn lane(&self, rank: u32) -> LaneId {
        self.place(rank).0
    }

    /// The replica of a rank.
    pub fn replica(&self, rank: u32) -> u32 {
        self.place(rank).1 / self.tensor
    }

    /// A rank's place in its tensor group.
    pub fn tensor_rank(&self, rank: u32) -> u32 {
        rank % self.tensor
    }
}

impl Plan {
    /// Who of its ranks executes what.
    pub fn mesh(&self) -> Mesh {
        Mesh { replicas: self.data_parallel.replicas, tensor: self.tensor }
    }
}

impl Inputs<'_> {
    /// Who executes what; the graph is a shard where tensor groups divide it.
    pub fn mesh(&self) -> Mesh {
        let tensor = self.graph.tensor_parallel().map_or(1, |tensor| tensor.degree);
        Mesh { replicas: self.data_parallel.replicas, tensor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_group_is_innermost_and_every_rank_has_one_place() {
        let mesh = Mesh { replicas: 3, tensor: 2 };
        assert_eq!(mesh.rank(LaneId(1), 2 * mesh.tensor + 1), 11);
        let places: Vec<_> = (0..12)
            .map(|rank| (mesh.lane(rank).0, mesh.replica(rank), mesh.tensor_rank(rank)))
            .collect();
        assert_eq!(places[..4], [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]);
        assert_eq!(places[11], (1, 2, 1));
    }
}
