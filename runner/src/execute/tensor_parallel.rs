//! Tensor parallelism: this rank's part of sums within passes, and of parameters.

use super::PersistentTensor;
use super::compute::Pass;
use super::data_parallel::Replica;
use super::expert_parallel::{shard_index, speakers};
use super::rank::Rank;
use crate::device::Rooted;
use crate::init::init_param;
use crate::transport::{Collective, Transport, TransportError};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Graph, Op, ParallelLinear, Param, ParamShards};
use pipewright_core::ids::{NodeId, ParamId};
use pipewright_core::plan::{Kernel, Operand, Precision, Program, Region, StageProgram};
use pipewright_kernels::Shard;
use std::collections::BTreeMap;

/// What a rank computes otherwise than the first of its tensor group.
pub(super) struct TensorRank {
    /// Its place in the group.
    pub index: u32,
    /// The group that adds up partial sums.
    group: u32,
    /// Linear layers whose outputs are summed, without the bias that the first rank adds.
    unbiased: BTreeMap<NodeId, Op>,
    /// Tables and losses of which it has some entries, tokens of some experts, operations on slices of the sequence.
    shards: BTreeMap<NodeId, Shard>,
}

impl TensorRank {
    pub fn new(graph: &Graph, program: &Program, replica: &Replica) -> Self {
        let index = replica.tensor_rank();
        let unbiased = |id: NodeId| {
            let row = graph.parallel_linear(id) == Some(ParallelLinear::Row) && index > 0;
            match graph.node(id).op {
                Op::Linear { out_features, bias: true } if row => {
                    Some((id, Op::Linear { out_features, bias: false }))
                }
                _ => None,
            }
        };
        let shard = |id: NodeId| {
            let is_of_experts = matches!(graph.node(id).op, Op::Dispatch { .. } | Op::Combine)
                && graph.parallel_linear(id).is_some();
            let without = (graph.computes_slice(id) || is_of_experts).then_some(0);
            let vocabulary = graph.vocabulary(id).or(without)?;
            Some((id, Shard { tensor_rank: index, degree: program.tensor.degree, vocabulary }))
        };
        let nodes = || (0..graph.nodes().len() as u32).map(NodeId);
        let group = program.tensor.group + replica.index;
        let unbiased = nodes().filter_map(unbiased).collect();
        Self { index, group, unbiased, shards: nodes().filter_map(shard).collect() }
    }

    /// Which entries of the vocabulary, experts or positions a node has here.
    pub fn shard(&self, node: NodeId) -> Shard {
        self.shards.get(&node).copied().unwrap_or_default()
    }

    /// What a kernel computes here where that is not what its node does.
    pub fn unbiased(&self, kernel: &Kernel) -> Option<&Op> {
        self.unbiased.get(&kernel.node).filter(|_| kernel.kind == ComputationKind::Forward)
    }
}

/// Writes shard `index` of a parameter's first values.
pub(super) fn init_shard(
    shards: &ParamShards,
    param: &Param,
    seed: u64,
    index: u32,
    into: &mut [f32],
) {
    // Values follow from their place in the whole parameter.
    let whole = Param { shape: shards.shape.clone(), ..param.clone() };
    let mut values = vec![0.0; whole.elements() as usize];
    init_param(&whole, seed, &mut values);
    take(shards, index, &values, into);
}

/// Copies a shard out of the whole parameter.
fn take(shards: &ParamShards, index: u32, whole: &[f32], into: &mut [f32]) {
    let mut rest = into;
    for piece in shards.pieces(index) {
        let (own, others) = rest.split_at_mut(piece.len());
        own.copy_from_slice(&whole[piece]);
        rest = others;
    }
}

impl<T> Rank<'_, T> {
    /// Which shard of a parameter it has, where there are several.
    pub(super) fn shard_index(&self, param: ParamId) -> u32 {
        shard_index(self.graph, self.plan.mesh(), self.replica.rank, param)
    }

    /// Sets a tensor of [`Rank::persistent_state`] to what `read` writes, which is all of the parameter: here its
    /// shard, and of that this rank's part.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn fill<E>(
        &mut self,
        tensor: &PersistentTensor,
        read: impl FnOnce(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (graph, index) = (self.graph, self.shard_index(tensor.param));
        let (shards, part) = (graph.shards(tensor.param), tensor.part.clone());
        if shards.is_none() && part.is_none() {
            return read(self.values_mut(tensor));
        }
        let mut whole = vec![0.0; tensor.shape.iter().product::<u64>() as usize];
        read(&mut whole)?;
        if let Some(shards) = shards {
            let mut shard = vec![0.0; graph.param(tensor.param).elements() as usize];
            take(shards, index, &whole, &mut shard);
            whole = shard;
        }
        self.values_mut(tensor).copy_from_slice(&whole[part.unwrap_or(0..whole.len())]);
        Ok(())
    }
}

impl<T: Transport> Rank<'_, T> {
    /// Has the tensor group add up what a kernel wrote, where that is a partial sum.
    pub(super) fn add_up(
        &mut self,
        stage: &StageProgram,
        kernel: &Kernel,
        pass: &Pass,
    ) -> Result<(), TransportError> {
        let region = |operand: &Operand| stage.region(operand, pass.slot, pass.outbox);
        let Some(partial) = kernel.writes.first().filter(|_| kernel.reduces) else { return Ok(()) };
        match kernel.packed(partial) {
            Some(packed) => self.sum_packed_within(region(&packed), region(partial)),
            None => self.sum_within(region(partial)),
        }
    }

    /// Adds up numbers in single precision with the tensor group.
    pub(super) fn sum_within(&mut self, partial: Region) -> Result<(), TransportError> {
        if let Some(model) = &self.model {
            model.catch_up(&self.transport);
        }
        if self.arena.talks() {
            let values = [Rooted { root: 0, region: partial }];
            self.join_within(Collective::AllReduce, (partial, &values), Precision::F32);
            return Ok(());
        }
        let slot = self.last_slot();
        let values = self.arena.floats(partial);
        // SAFETY: nothing touches the values before the wait returns, and the transport is dropped before the
        // arena.
        unsafe {
            let group = self.tensor.group as usize;
            self.transport.start_collective(Collective::AllReduce, group, values, slot as usize)?;
        }
        self.transport.wait_collective(slot as usize)?;
        if let Some(model) = &mut self.model {
            model.met(&self.transport);
        }
        Ok(())
    }

    /// Has the devices of the tensor group do a collective call on parts of a region, without their hosts.
    pub(super) fn join_within(
        &mut self,
        call: Collective,
        parts: (Region, &[Rooted]),
        precision: Precision,
    ) {
        let (group, slot) = (self.tensor.group, self.last_slot());
        self.arena.join_parts(call, group, parts, precision, slot);
        self.arena.wait_join(slot);
    }

    /// All of the divided tensors that the first rank of a lane saves, by name, on that rank; the others of its tensor
    /// group send it theirs, those of its expert group experts', and other replicas their parts. All ranks call it.
    ///
    /// # Errors
    /// When a message fails.
    pub fn gather_shards(&mut self) -> Result<BTreeMap<String, Vec<f32>>, TransportError> {
        let (graph, mesh, rank) = (self.graph, self.plan.mesh(), self.transport.rank());
        let (mut all, slot) = (self.gather_state()?, self.program.handles as usize - 1);
        let first = mesh.rank(mesh.lane(rank), 0);
        for tensor in self.persistent_state() {
            let Some(shards) = graph.shards(tensor.param).filter(|_| tensor.gathers) else {
                continue;
            };
            let of_parts = all.remove(&tensor.name);
            if rank > first {
                let bytes = match &of_parts {
                    Some(shard) => bytemuck::cast_slice(shard),
                    None => self.arena.raw(tensor.region),
                };
                // SAFETY: the send is waited for before anything else happens to the tensor.
                unsafe { self.transport.start_send(first, SHARDS, bytes, slot)? };
                self.transport.wait_send(slot)?;
                continue;
            }
            let mut whole = vec![0.0; shards.shape.iter().product::<u64>() as usize];
            let own = || bytemuck::cast_slice(self.arena.raw(tensor.region)).to_vec();
            let mut shard = of_parts.unwrap_or_else(own);
            let experts = speakers(graph, mesh, tensor.param);
            for other in 0..shards.degree() {
                if other > 0 {
                    let bytes = bytemuck::cast_slice_mut(&mut shard);
                    let (tensor_rank, expert_rank) = (other / experts, other % experts);
                    let owner = first + expert_rank * mesh.tensor + tensor_rank;
                    self.transport.recv(owner, SHARDS, bytes)?;
                }
                let mut rest = &shard[..];
                for piece in shards.pieces(other) {
                    let (own, others) = rest.split_at(piece.len());
                    whole[piece].copy_from_slice(own);
                    rest = others;
                }
            }
            all.insert(tensor.name, whole);
        }
        Ok(all)
    }
}

/// Tag of shards on their way, of slices and of rows: ranks of a lane have no other messages for each other.
pub(super) const SHARDS: u32 = 0;
