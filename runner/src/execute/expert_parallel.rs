//! Expert parallelism: rows of tokens that this replica sends to those that have their experts, and the way back.

use super::compute::Pass;
use super::rank::Rank;
use crate::transport::{Transport, TransportError};
use bytemuck::{cast_slice, cast_slice_mut};
use pipewright_core::graph::Graph;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::ids::ParamId;
use pipewright_core::plan::{Kernel, Mesh, Operand, Region, StageProgram};
use pipewright_core::units::Bytes;

/// In which order the blocks of a sample lie: the rows of one expert from one replica.
#[derive(Clone, Copy)]
enum Layout {
    /// As its replica made them: expert by expert of all.
    Tokens,
    /// As an expert multiplies them: its own from all replicas together.
    Experts,
}

/// Rows of experts, as they are stored.
#[derive(Clone, Copy)]
struct Rows {
    /// Bytes of a block.
    block: usize,
    /// Experts of a replica.
    experts: usize,
    /// Replicas of an expert group.
    degree: usize,
}

impl Rows {
    /// Where the block of an expert of replica `expert`'s lies in a sample, for `peer`: who made the rows, or whose expert.
    fn place(self, order: Layout, expert: usize, peer: usize) -> usize {
        self.block
            * match order {
                Layout::Tokens => peer * self.experts + expert,
                Layout::Experts => expert * self.degree + peer,
            }
    }

    /// Bytes of a sample's blocks for a peer, and of all.
    fn of_sample(self) -> [usize; 2] {
        [self.block * self.experts, self.block * self.experts * self.degree]
    }

    /// Copies the blocks for a peer, or from it, one behind the other.
    fn take(self, order: Layout, rows: &[f32], peer: usize, into: &mut [f32]) {
        let (rows, into): (&[u8], &mut [u8]) = (cast_slice(rows), cast_slice_mut(into));
        let [part, all] = self.of_sample();
        for (sample, part) in rows.chunks_exact(all).zip(into.chunks_exact_mut(part)) {
            for (expert, block) in part.chunks_exact_mut(self.block).enumerate() {
                block.copy_from_slice(&sample[self.place(order, expert, peer)..][..self.block]);
            }
        }
    }

    /// Copies them back to their places.
    fn put(self, order: Layout, part: &[f32], peer: usize, rows: &mut [f32]) {
        let (part, rows): (&[u8], &mut [u8]) = (cast_slice(part), cast_slice_mut(rows));
        let [of_part, all] = self.of_sample();
        for (sample, part) in rows.chunks_exact_mut(all).zip(part.chunks_exact(of_part)) {
            for (expert, block) in part.chunks_exact(self.block).enumerate() {
                let place = self.place(order, expert, peer);
                sample[place..][..self.block].copy_from_slice(block);
            }
        }
    }
}

/// Which shard of a parameter a rank has, where there are several.
pub(super) fn shard_index(graph: &Graph, mesh: Mesh, rank: u32, param: ParamId) -> u32 {
    match graph.is_of_experts(param) {
        true => mesh.expert_shard(rank),
        false => mesh.tensor_rank(rank),
    }
}

/// Replicas that have different shards of a parameter: the first so many speak for it.
pub(super) fn speakers(graph: &Graph, mesh: Mesh, param: ParamId) -> u32 {
    if graph.is_of_experts(param) { mesh.experts } else { 1 }
}

impl<T: Transport> Rank<'_, T> {
    /// Has the replicas of the expert group give each other rows of tokens, or what experts made of them: each pair
    /// in turn, so that every rank sends to one and hears from one at a time.
    pub(super) fn exchange_rows(
        &mut self,
        stage: &StageProgram,
        kernel: &Kernel,
        pass: &Pass,
    ) -> Result<(), TransportError> {
        let region = |operand: &Operand| stage.region(operand, pass.slot, pass.outbox);
        let (from, to) = (region(&kernel.reads[0]), region(&kernel.writes[0]));
        let scratch = kernel.workspace.as_ref().map(region);
        let scratch = scratch.expect("lowering gave rows on their way a place");
        let rows = self.rows(kernel, from);
        let [leaving_order, arriving_order] = match kernel.kind {
            ComputationKind::RowsToExperts => [Layout::Tokens, Layout::Experts],
            _ => [Layout::Experts, Layout::Tokens],
        };
        let bytes = rows.of_sample()[0] as u64 * self.plan.samples();
        let leaving = Region { offset: scratch.offset, bytes: Bytes(bytes.next_multiple_of(4)) };
        let arriving = Region { offset: leaving.offset + leaving.bytes, ..leaving };
        let (rank, mesh) = (self.replica.rank, self.plan.mesh());
        let (own, degree) = (mesh.expert_rank(rank), mesh.experts);
        if let Some(model) = &self.model {
            model.catch_up(&self.transport);
        }
        self.arena.discard(to);
        for apart in 0..degree {
            let [to_peer, from_peer] = [(own + apart) % degree, (own + degree - apart) % degree];
            self.arena.discard(leaving);
            let whose = to_peer as usize;
            self.arena.convert(from, leaving, |rows_of, into| {
                rows.take(leaving_order, rows_of, whose, into)
            });
            let mut arrived = leaving;
            if apart > 0 {
                let peers = [to_peer, from_peer].map(|peer| mesh.expert_peer(rank, peer));
                self.swap(peers, leaving, arriving)?;
                arrived = arriving;
            }
            let whose = from_peer as usize;
            self.arena.convert(arrived, to, |part, rows_of| {
                rows.put(arriving_order, part, whose, rows_of)
            });
        }
        self.arena.discard(scratch);
        if let Some(model) = &mut self.model {
            model.met(&self.transport);
        }
        Ok(())
    }

    /// The rows that a kernel exchanges, as they are stored in a region.
    fn rows(&self, kernel: &Kernel, stored: Region) -> Rows {
        let shapes = [self.graph.result(kernel.node), &self.graph.node(kernel.node).output];
        let experts = shapes.map(|spec| spec.shape[0]).into_iter().min().unwrap_or(1);
        let degree = u64::from(self.plan.data_parallel.expert_parallel);
        let elements = shapes[0].elements();
        let packed = stored.bytes < Bytes(4) * elements * self.plan.samples();
        let block = elements / (experts * degree) * if packed { 2 } else { 4 };
        Rows { block: block as usize, experts: experts as usize, degree: degree as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_to_their_experts_and_back() {
        // Two samples, six experts on three replicas, blocks of two values.
        let rows = Rows { block: 8, experts: 2, degree: 3 };
        let made = |replica: usize| -> Vec<f32> {
            (0..24).map(|at| (100 * replica + at) as f32).collect()
        };
        let send = |from: Layout, all: &[Vec<f32>], to: Layout| -> Vec<Vec<f32>> {
            (0..3)
                .map(|own| {
                    let mut result = vec![0.0; 24];
                    for (peer, theirs) in all.iter().enumerate() {
                        let mut part = vec![0.0; 8];
                        rows.take(from, theirs, own, &mut part);
                        rows.put(to, &part, peer, &mut result);
                    }
                    result
                })
                .collect()
        };
        let tokens: Vec<Vec<f32>> = (0..3).map(made).collect();
        let experts = send(Layout::Tokens, &tokens, Layout::Experts);
        // The second replica has experts 2 and 3: of the first sample values 4..8 of all three.
        let of_second =
            [4.0, 5.0, 104.0, 105.0, 204.0, 205.0, 6.0, 7.0, 106.0, 107.0, 206.0, 207.0];
        assert_eq!(experts[1][..12], of_second);
        assert_eq!(send(Layout::Experts, &experts, Layout::Tokens), tokens);
    }
}
