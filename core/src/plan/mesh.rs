//! Mesh of ranks: which lane, replica, and part of a tensor group and an expert group each of them is.

use super::{DataParallel, Inputs, Plan};
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
    /// Replicas of an expert group: those in a row.
    pub experts: u32,
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

    /// A rank's place in its expert group.
    pub fn expert_rank(&self, rank: u32) -> u32 {
        self.replica(rank) % self.experts
    }

    /// Which shard of the weights of experts a rank has: a tensor group divides them, and its expert group each part.
    pub fn expert_shard(&self, rank: u32) -> u32 {
        self.tensor_rank(rank) * self.experts + self.expert_rank(rank)
    }

    /// The rank of an expert group, that of `rank`, in place `expert_rank`.
    pub fn expert_peer(&self, rank: u32, expert_rank: u32) -> u32 {
        rank - self.expert_rank(rank) * self.tensor + expert_rank * self.tensor
    }
}

impl Plan {
    /// Who of its ranks executes what.
    pub fn mesh(&self) -> Mesh {
        self.data_parallel.mesh(self.tensor)
    }
}

impl Inputs<'_> {
    /// Who executes what; the graph is a shard where tensor groups divide it.
    pub fn mesh(&self) -> Mesh {
        let tensor = self.graph.tensor_parallel().map_or(1, |tensor| tensor.degree);
        self.data_parallel.mesh(tensor)
    }
}

impl DataParallel {
    /// Replicas of tensor groups.
    pub(crate) fn mesh(&self, tensor: u32) -> Mesh {
        Mesh { replicas: self.replicas, tensor, experts: self.expert_parallel }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_group_is_innermost_and_every_rank_has_one_place() {
        let mesh = Mesh { replicas: 3, tensor: 2, experts: 1 };
        assert_eq!(mesh.rank(LaneId(1), 2 * mesh.tensor + 1), 11);
        let places: Vec<_> = (0..12)
            .map(|rank| (mesh.lane(rank).0, mesh.replica(rank), mesh.tensor_rank(rank)))
            .collect();
        assert_eq!(places[..4], [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]);
        assert_eq!(places[11], (1, 2, 1));
    }

    #[test]
    fn an_expert_group_is_replicas_in_a_row_and_has_every_shard_once() {
        let mesh = Mesh { replicas: 4, tensor: 2, experts: 2 };
        for rank in 0..16 {
            let first = mesh.expert_peer(rank, 0);
            let peers: Vec<_> = (0..2).map(|place| mesh.expert_peer(rank, place)).collect();
            assert_eq!(peers, [first, first + 2]);
            assert!(peers.contains(&rank) && mesh.lane(first) == mesh.lane(rank));
            assert_eq!(mesh.tensor_rank(first), mesh.tensor_rank(rank));
        }
        let shards: Vec<_> = (8..12).map(|rank| mesh.expert_shard(rank)).collect();
        assert_eq!(shards, [0, 2, 1, 3]);
        assert_eq!(mesh.expert_shard(14), 1, "the second group has them again");
    }
}
